// penstock theory, as a user runs it.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "tests/services/cli/job_directory.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class TheoryCommandTest : public ::testing::Test {
 protected:
  ProcessResult Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {ProgramPath("penstock"), "theory"});
    arguments.insert(arguments.end(), {"--output", directory_.path("results")});
    return RunProcess(arguments);
  }
  std::string Read(const std::string& name) {
    return RealFiles().Read(directory_.path("results/" + name), 1 << 24).value_or("");
  }

  JobDirectory directory_;
};

TEST_F(TheoryCommandTest, Delays_PrintsWritesAndAgrees) {
  const ProcessResult result = Run({"delays", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto json = nlohmann::ordered_json::parse(result.out, nullptr, false);
  EXPECT_EQ(json["study"], "delays");
  EXPECT_EQ(json["rows"][7]["A_max"], 60);
  EXPECT_EQ(json["rows"][7]["A_mean"], 31.5);
  for (const auto& finding : json["findings"]) EXPECT_EQ(finding["agrees"], true) << finding;
  EXPECT_EQ(json["files"].size(), 3u);
  EXPECT_THAT(Read("delays.csv"), HasSubstr("stages,bound,A_max,A_mean"));
  EXPECT_THAT(Read("delays-curves.csv"), HasSubstr("chart,line,x,mean,least,greatest"));
  EXPECT_THAT(Read("delays.svg"), HasSubstr("</svg>"));
}

TEST_F(TheoryCommandTest, BadInput_IsRefusedInOneLine) {
  directory_.Write("broken", "1 1:1\n0 nonsense\n");
  directory_.Write("small", "1 1:1\n0 2:1\n");
  const std::string broken = directory_.path("broken");
  const std::string small = directory_.path("small");
  std::string large;  // and alike
  for (int row = 1; row <= 16; ++row) {
    absl::StrAppend(&large, row % 2, " 1:", 3'000'000 * row, " 2:", 3'000'000 * row, " 16:1\n");
  }
  directory_.Write("large", large);
  directory_.Write("wide", "1 1000000:1\n");
  directory_.Write("text", std::string(1000, 'x'));
  const std::string text = directory_.path("text");
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"nothing"}, "nothing"},
      {{"quadratic", "--seeds", "0"}, "--seeds"},
      {{"quadratic", "--data", broken}, "--data: the study quadratic has no use for data"},
      {{"logistic", "--data", directory_.path("absent")}, "absent"},
      {{"logistic", "--data", broken}, "broken:2:3: expected INDEX:VALUE, got \"nonsense\""},
      {{"local-sgd", "--data", small}, "small: has 2 features; the studies need at least 16"},
      {{"logistic", "--data", directory_.path("large")}, "scale them, for example to [0, 1]"},
      {{"logistic", "--data", directory_.path("wide")}, "an index from 1 to 4096"},
      {{"quadratic", "--full"}, "--full: is a flag of the study language-model"},
      {{"delays", "--local-steps", "1,8"}, "--local-steps: is a flag of the study language-model"},
      {{"delays", "--microbatches", "64"}, "--microbatches: is a flag of the study language-model"},
      {{"pipedream"}, "--data: the study pipedream needs a directory with PipeDream's profiles"},
      {{"pipedream", "--data", directory_.path("absent")}, "absent/vgg16.txt"},
      {{"pipedream", "--seeds", "2"}, "--seeds: the study pipedream leaves nothing to chance"},
      {{"quadratic", "--caption", "--data", broken}, "--caption: is for figures whose caption"},
      {{"bound", "--caption"}, "--caption: is for figures whose caption"},
      {{"drawn"},
       "--data: the study drawn needs the file that studies/theory/draw_numbers.py writes"},
      {{"drawn", "--data", text}, "text: "},
      {{"drawn", "--seeds", "2"}, "--seeds: the study drawn leaves nothing to chance"},
      {{"language-model"}, "--data: the study language-model needs a text"},
      {{"language-model", "--seeds", "2"}, "--seeds: the study language-model has one seed"},
      {{"language-model", "--data", directory_.path("absent")}, "absent"},
      {{"language-model", "--data", small}, "small is too short"},
      {{"language-model", "--data", text, "--microbatches", "many"}, "--microbatches"},
      {{"language-model", "--data", text, "--microbatches", "0"}, "microbatches: is 0"},
      {{"language-model", "--data", text, "--microbatches", "63"}, "takes 158; give at least 64"},
      {{"language-model", "--data", text, "--microbatches", "64", "--full"},
       "a round of LocalSGD H = 8 takes 286; give at least 128"}};
  for (const auto& [arguments, expected] : cases) {
    const ProcessResult result = Run(arguments);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr(expected));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_EQ(result.out, "");
  }
  EXPECT_THAT(Read("quadratic.csv"), IsEmpty());
}

}  // namespace
}  // namespace penstock
