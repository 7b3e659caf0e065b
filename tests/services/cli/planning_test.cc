// Jobs that leave their split to the coordinator, on workers as processes that emulate unequal devices.
#include <gmock/gmock.h>

#include <map>

#include "absl/strings/str_cat.h"
#include "tests/services/cli/cluster_fixture.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

// The times of every layer of a device of this speed; one of speed 1 takes 10 ms a pass. Emulation refuses passes that
// take this machine more than half of their time, and a busy machine is several times slower than a quiet one.
std::string DeviceFile(const std::string& name, double speed) {
  const std::string ms = std::to_string(10.0 / speed);
  std::string text = "device: " + name + "\nlayers:\n";
  for (const char* layer : {"embedding", "h.0.attention", "h.0.mlp", "h.1.attention", "h.1.mlp",
                            "final_norm", "head"}) {
    absl::StrAppend(&text, "  - {layer: ", layer, ", times: {forward_ms: ", ms,
                    ", backward_input_ms: ", ms, ", backward_weight_ms: ", ms, "}}\n");
  }
  return text;
}

class PlanningTest : public ClusterFixture {
 protected:
  void SetUp() override {
    MakeCertificates();
    StartCoordinator("127.0.0.1:0");
  }

  void StartWorkers(const std::vector<double>& speeds) {
    for (size_t worker = 0; worker < speeds.size(); ++worker) {
      const std::string file = "device-" + std::to_string(worker) + ".yaml";
      const std::string name = "speed-" + std::to_string(static_cast<int>(10 * speeds[worker]));
      job_.Write(file, DeviceFile(name, speeds[worker]));
      StartWorker({"--emulate", job_.path(file)});
    }
    ASSERT_TRUE(Eventually([&] { return RunJson({"workers"}).size() == speeds.size(); }));
  }

  // Neither method nor split is said.
  Json Submit(const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"submit",      job_.job(), "--set",
                                          "planning={}", "--set",    "pipeline={stages: 3}"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunJson(arguments);
  }

  std::map<std::string, int> LayersOf(const std::string& id) const {
    std::map<std::string, int> layers;
    const Json status = RunJson({"status", id});
    for (const Json& stage : status["plan"]["stages"]) {
      layers[stage["worker"]] = stage["layers"];
    }
    return layers;
  }
};

TEST_F(PlanningTest, UnequalWorkers_GetLayersBySpeed_AndTheSecondJobMeasuresNothing) {
  StartWorkers({1, 0.5, 2});
  const Json first = Submit();
  ASSERT_EQ(first["state"], "succeeded") << first["error"];
  const std::string id = first["job_id"];
  std::map<std::string, int> layers = LayersOf(id);
  EXPECT_GT(layers["worker-2"], layers["worker-0"]);
  EXPECT_GE(layers["worker-0"], layers["worker-1"]);
  const Json status = RunJson({"status", id});
  EXPECT_GT(status["planning"]["measuring_seconds"], 0.0);
  EXPECT_GT(first["feedback"]["predicted"]["step_seconds"], 0.0);

  const Json second = Submit();
  ASSERT_EQ(second["state"], "succeeded") << second["error"];
  EXPECT_EQ(LayersOf(second["job_id"]), LayersOf(id));
  EXPECT_EQ(RunJson({"status", second["job_id"]})["planning"]["measuring_seconds"], 0.0);
  EXPECT_EQ(second["weights_sha256"], first["weights_sha256"]);
}

TEST_F(PlanningTest, PermutedSpeeds_PermuteTheSplit) {
  StartWorkers({2, 1, 0.5});
  const Json result = Submit();
  ASSERT_EQ(result["state"], "succeeded") << result["error"];
  std::map<std::string, int> layers = LayersOf(result["job_id"]);
  EXPECT_GT(layers["worker-0"], layers["worker-1"]);
  EXPECT_GE(layers["worker-1"], layers["worker-2"]);
}

TEST_F(PlanningTest, SearchedOrder_IsShownByTheCoordinatorAndRepeatedFromItsFile) {
  StartWorkers({1, 0.5, 2});
  const std::vector<std::string> searched = {"--set", "pipeline.method=searched"};
  const Json result = Submit(searched);
  ASSERT_EQ(result["state"], "succeeded") << result["error"];
  EXPECT_EQ(result["method"], "searched");
  const std::string id = result["job_id"];
  const ProcessResult shown = Run({"schedule", "show", id, "-o", job_.path("order.schedule")});
  ASSERT_EQ(shown.exit_code, 0) << shown.err;
  const Json repeated = Submit(
      {"--set", "pipeline.method=searched", "--set", "pipeline.schedule_file=order.schedule"});
  ASSERT_EQ(repeated["state"], "succeeded") << repeated["error"];
  EXPECT_EQ(RunJson({"status", repeated["job_id"]})["planning"], Json());
  EXPECT_EQ(repeated["weights_sha256"], result["weights_sha256"]);
  EXPECT_EQ(Submit()["weights_sha256"], result["weights_sha256"]);  // of 1f1b
  EXPECT_THAT(Run({"schedule", "show", "absent-1"}).err,
              HasSubstr("'absent-1' is neither a method nor a file"));
}

TEST_F(PlanningTest, SplitOfASavedJob_IsThatOfItsReference) {
  StartWorkers({1, 0.5, 2});
  const std::vector<std::string> saved = {"--set", "pipeline.method=pipedream",
                                          "--set", "checkpoint.every_steps=3",
                                          "--set", "checkpoint.directory=" + job_.checkpoints()};
  const Json result = Submit(saved);
  ASSERT_EQ(result["state"], "succeeded") << result["error"];
  std::vector<std::string> flags = {"--reference", "--json", "--workers",           "3", "--set",
                                    "planning={}", "--set",  "pipeline={stages: 3}"};
  flags.insert(flags.end(), saved.begin(), saved.end());
  const ProcessResult reference = RunProcess(job_.Train(flags));
  ASSERT_EQ(reference.exit_code, 0) << reference.err;
  EXPECT_THAT(reference.err, HasSubstr("layers are split "));
  EXPECT_EQ(Json::parse(reference.out)["weights_sha256"], result["weights_sha256"]);
}

}  // namespace
}  // namespace penstock
