// `penstock compare` with real processes.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "tests/services/cli/job_directory.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::ordered_json;

constexpr char kTimes[] =
    "model: {forward_ms: 40, backward_input_ms: 40, backward_weight_ms: 40}\n";

class CompareTest : public ::testing::Test {
 protected:
  CompareTest() { job_.Write("times.yaml", kTimes); }

  ProcessResult Compare(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {ProgramPath("penstock"), "compare"});
    arguments.insert(arguments.end(), {"--device", "cpu", "-o", job_.path("results")});
    return RunProcess(arguments);
  }
  Json CompareJson(std::vector<std::string> arguments) {
    arguments.push_back("--json");
    const ProcessResult result = Compare(std::move(arguments));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return Json::parse(result.out, nullptr, /*allow_exceptions=*/false);
  }
  void ExpectRefused(std::vector<std::string> arguments, const std::string& message) {
    const ProcessResult result = Compare(std::move(arguments));
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr(message));
    EXPECT_THAT(result.out, IsEmpty());
  }

  JobDirectory job_;
};

TEST_F(CompareTest, TwoMethods_HaveRowsFilesAndSimulatedTimes) {
  const Json json = CompareJson({job_.job(), "--workers", "2", "--methods", "1f1b,pipedream",
                                 "--times", job_.path("times.yaml")});
  EXPECT_EQ(json["study"], "compare");
  ASSERT_EQ(json["rows"].size(), 2u) << json;
  EXPECT_EQ(json["rows"][0]["method"], "1f1b");
  EXPECT_EQ(json["rows"][1]["method"], "pipedream");
  EXPECT_EQ(json["rows"][0]["speedup"], 1.0);
  EXPECT_EQ(json["rows"][0]["staleness_max"], 0.0);
  EXPECT_EQ(json["rows"][1]["staleness_max"], 1.0);
  EXPECT_EQ(json["rows"][1]["versions"], 2);
  // Three or six steps of 3 x 20 ms x (4 + 1), as simulated.
  const double steps = json["rows"][0]["steps"].get<double>();
  EXPECT_NEAR(json["rows"][0]["simulated_seconds"].get<double>(), steps * 0.3, 1e-6);
  EXPECT_EQ(json["files"].size(), 4u);
  const std::string picture =
      RealFiles().Read(job_.path("results/compare-time.svg"), 1 << 20).value_or("");
  EXPECT_THAT(picture, HasSubstr("pipedream"));
  EXPECT_THAT(job_.Processes(), IsEmpty());
}

TEST_F(CompareTest, SearchedOrder_HasTheLossesOfAnyOther) {
  const Json json = CompareJson({job_.job(), "--workers", "2", "--methods", "1f1b,searched",
                                 "--times", job_.path("times.yaml")});
  ASSERT_EQ(json["rows"].size(), 2u) << json;
  EXPECT_EQ(json["rows"][1]["method"], "searched");
  EXPECT_EQ(json["rows"][1]["staleness_max"], 0.0);
  EXPECT_EQ(json["rows"][1]["best_loss"], json["rows"][0]["best_loss"]);
  EXPECT_LE(json["rows"][1]["simulated_seconds"].get<double>(),
            json["rows"][0]["simulated_seconds"].get<double>());
}

TEST_F(CompareTest, DrawnDelays_StandBesideThoseOfTheOrder) {
  const Json json =
      CompareJson({job_.job(), "--workers", "2", "--methods", "pipedream,rpd,1f1b", "--set",
                   "pipeline.rpd.delta=5", "--times", job_.path("times.yaml")});
  ASSERT_EQ(json["rows"].size(), 3u) << json;
  EXPECT_EQ(json["rows"][1]["method"], "rpd");
  EXPECT_EQ(json["rows"][0]["staleness_max"], 1.0);
  EXPECT_EQ(json["rows"][1]["staleness_max"], 5.0) << "in updates of the model";
  EXPECT_EQ(json["rows"][1]["bubble"], json["rows"][0]["bubble"]);
}

TEST_F(CompareTest, LossThatIsReachedEarly_EndsTheMethodThere) {
  const Json json = CompareJson({job_.job(), "--workers", "2", "--methods", "1f1b", "--until",
                                 "100", "--steps", "10000", "--set", "checkpoint.directory=none"});
  ASSERT_EQ(json["rows"].size(), 1u) << json;
  EXPECT_EQ(json["rows"][0]["steps"], 3);
  EXPECT_EQ(json["settings"]["times"], "as measured");
  EXPECT_FALSE(std::filesystem::exists(job_.path("none")));
}

TEST_F(CompareTest, EmulatedDevices_TakeTheirTime) {
  const Json json = CompareJson(
      {job_.job(), "--workers", "2", "--methods", "1f1b", "--emulate", job_.path("times.yaml")});
  ASSERT_EQ(json["rows"].size(), 1u) << json;
  EXPECT_GE(json["rows"][0]["measured_seconds"].get<double>(),
            json["rows"][0]["simulated_seconds"].get<double>());
}

TEST_F(CompareTest, BadInput_IsRefusedBeforeAnythingTrains) {
  const std::string job = job_.job();
  ExpectRefused({}, "expected JOB.yaml and --methods");
  ExpectRefused({job}, "expected JOB.yaml and --methods");
  ExpectRefused({job, "--methods", "1f1b,1f2b"}, "--methods 1f2b: pipeline.method: ");
  ExpectRefused({job, "--methods", "1f1b,pipedream", "--set", "training.clip.global_norm=1"},
                "pipedream");
  ExpectRefused({job, "--methods", "1f1b", "--set", "validation.every_steps=0"},
                "validation.every_steps");
  ExpectRefused({job, "--methods", "1f1b", "--until", "-1"}, "--until");
  ExpectRefused({job, "--methods", "1f1b", "--times", job_.path("none.yaml")}, "none.yaml");
  job_.Write("bad.yaml", "model: {forward_ms: -3}\n");
  ExpectRefused({job, "--methods", "1f1b", "--emulate", job_.path("bad.yaml")},
                "model.forward_ms: is -3 ms");
}

}  // namespace
}  // namespace penstock
