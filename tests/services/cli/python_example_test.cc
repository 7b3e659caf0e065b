// The Python example, as its README says, against a cluster.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "tests/services/cli/cluster_fixture.h"

namespace penstock {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr char kSource[] = PENSTOCK_SOURCE_DIR;

class PythonExampleTest : public ClusterFixture {
 protected:
  void SetUp() override {
    ClusterFixture::SetUp();
    std::filesystem::create_directory(stubs_);
    const ProcessResult made =
        RunProcess({"/bin/sh", "-c",
                    "cd " + std::string(kSource) + " && " +
                        std::regex_replace(Line("protoc "), std::regex("=stubs"), "=" + stubs_)});
    ASSERT_EQ(made.exit_code, 0) << made.err;
  }

  // The line of the README's that begins so.
  static std::string Line(const std::string& begin) {
    std::ifstream file(std::string(kSource) + "/examples/python/README.md");
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with("    " + begin)) return line.substr(4);
    }
    ADD_FAILURE() << "examples/python/README.md has no line " << begin;
    return "";
  }

  // Debian's Python, for which the packages are.
  ProcessResult Train(const std::vector<std::string>& more) const {
    std::vector<std::string> call = {"/usr/bin/env",
                                     "PYTHONPATH=" + stubs_,
                                     "PYTHONDONTWRITEBYTECODE=1",
                                     "/usr/bin/python3",
                                     std::string(kSource) + "/examples/python/train.py",
                                     "--coordinator",
                                     address_,
                                     "--data",
                                     "input.txt"};
    call.insert(call.end(), more.begin(), more.end());
    return RunProcess(call);
  }

  const std::string stubs_ = job_.path("stubs");
};

TEST_F(PythonExampleTest, TrainsAJobAndPrintsItsLosses) {
  const ProcessResult result = Train({"--certificates", certificates("client"), "--steps", "6"});
  ASSERT_EQ(result.exit_code, 0) << result.err << result.out;
  for (int step = 1; step <= 6; ++step) {
    EXPECT_THAT(result.out, HasSubstr("\nstep " + std::to_string(step) + " loss "));
  }
  EXPECT_THAT(result.out,
              ContainsRegex("\nstep 6 validation loss [0-9.]+, accuracy [0-9.]+ %, top5 "));
  EXPECT_THAT(result.out, ContainsRegex("\nvalidation loss [0-9.]+, accuracy [0-9.]+ %, top5 "));
  EXPECT_THAT(result.out, HasSubstr("\nsucceeded"));
  const Json list = RunJson({"list"});
  EXPECT_THAT(result.out, HasSubstr("submitted " + list[0]["job_id"].get<std::string>() + "\n"));
  EXPECT_EQ(list[0]["name"], "python-example");
}

TEST_F(PythonExampleTest, JobThatFails_IsExitCodeOne) {
  const ProcessResult result = Train(
      {"--certificates", certificates("client"), "--data", "no-such-text.txt", "--steps", "6"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("no-such-text.txt"));
}

TEST_F(PythonExampleTest, WithoutACertificate_IsRefused) {
  const ProcessResult result = Train({"--steps", "6"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("UNAVAILABLE"));
}

}  // namespace
}  // namespace penstock
