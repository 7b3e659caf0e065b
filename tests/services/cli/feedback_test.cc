// What a job was planned to take, held against what it takes: on emulated devices, one of which is slower than the plan
// says.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "tests/services/cli/job_directory.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::ordered_json;

// Every pass of a layer takes 2 ms on a device of speed 1.
std::string Times(const std::string& indent) {
  std::string text = indent + "layers:\n";
  for (const char* layer : {"embedding", "attention", "mlp", "final_norm", "head"}) {
    text += indent + "  - {layer: " + layer +
            ", times: {forward_ms: 2, backward_input_ms: 2, backward_weight_ms: 2}}\n";
  }
  return text;
}

class FeedbackTest : public ::testing::Test {
 protected:
  // Seven layers on two workers of speed 1, planned as 3 and 4 of them. A step of 4 microbatches then is, in 1f1b, 6 ms
  // in, 4 times 3 passes of 8 ms on the last worker, and 12 ms back.
  FeedbackTest() {
    job_.EditJob("  method: 1f1b\n",
                 "  method: 1f1b\n  stages: 2\n  stage_layers: [3, 4]\nprediction:\n"
                 "  step_seconds: 0.114\n  times:\n" +
                     Times("    ") + "feedback: {drift_steps: 3}\n");
    job_.EditJob("validation: {every_steps: 3, batches: 1}",
                 "validation: {every_steps: 0, batches: 1}");
    job_.Write("times.yaml", Times(""));
    job_.Write("slow.yaml", Times("") + "speeds: [1, 0.5]\n");
  }

  ProcessResult Run(const std::vector<std::string>& flags) {
    ProcessResult result = RunProcess(job_.Train(flags));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result;
  }
  static std::vector<int> LayersOf(const Json& result) {
    std::vector<int> layers;
    for (const Json& stage : result["per_stage"]) layers.push_back(stage["layers"]);
    return layers;
  }

  JobDirectory job_;
};

TEST_F(FeedbackTest, SlowWorker_IsToldAsDrift) {
  const ProcessResult result = Run({"--steps", "8", "--emulate", job_.path("slow.yaml"), "--json"});
  EXPECT_THAT(result.err, AllOf(HasSubstr("0.114 s were predicted (+"),
                                HasSubstr("penstock plan JOB.yaml --coordinator")));
  const Json feedback = Json::parse(result.out)["feedback"];
  EXPECT_EQ(feedback["drifts"], true);
  EXPECT_EQ(feedback["drifts_told"], 1);
  EXPECT_EQ(feedback["replans"], 0);
  EXPECT_EQ(feedback["predicted"]["step_seconds"], 0.114);
  EXPECT_EQ(feedback["predicted"]["workers"][0]["memory_bytes"], nullptr);
  // 6 ms in, 4 times 48 ms, 12 ms back; at least, for an emulated device is never faster.
  EXPECT_GT(feedback["measured"]["step_seconds"], 0.200);
  EXPECT_GT(feedback["measured"]["workers"][1]["memory_bytes"], 0);
  // 4 activations there and 4 gradients back, each of 4 samples of 16 time steps of 32 floats.
  for (const Json& worker : feedback["measured"]["workers"]) {
    EXPECT_EQ(worker["sent_bytes_per_step"], 4 * 4 * 16 * 32 * 4.0);
  }
}

TEST_F(FeedbackTest, Summary_ShowsBothSidesAndTheTimelineNamesThem) {
  const ProcessResult result =
      Run({"--steps", "6", "--emulate", job_.path("slow.yaml"), "--timeline", job_.path("steps")});
  EXPECT_THAT(result.out, AllOf(HasSubstr("PREDICTED  MEASURED  DIFFERENCE"), HasSubstr("step"),
                                HasSubstr("114.0 ms")));
  for (const char* file : {"steps.svg", "steps.trace.json"}) {
    EXPECT_THAT(*RealFiles().Read(job_.path(file), int64_t{1} << 30),
                HasSubstr(" ms, 114.0 ms predicted"))
        << file;
  }
}

TEST_F(FeedbackTest, ReplanAuto_SplitsByTheMeasuredSpeedsToTheSameWeights) {
  const std::vector<std::string> job = {"--steps", "24",
                                        "--set",   "feedback.replan=auto",
                                        "--set",   "checkpoint.every_steps=5",
                                        "--set",   "checkpoint.directory=" + job_.checkpoints(),
                                        "--set",   "validation.every_steps=8",
                                        "--json"};
  std::vector<std::string> slow = job;
  slow.insert(slow.end(), {"--emulate", job_.path("slow.yaml")});
  const ProcessResult result = Run(slow);
  EXPECT_THAT(result.err, HasSubstr("goes on with its layers split 5-2"));
  const Json json = Json::parse(result.out);
  EXPECT_EQ(json["state"], "succeeded");
  EXPECT_EQ(json["steps"], 24);
  EXPECT_EQ(json["tokens"], 24 * 16 * 16);
  EXPECT_EQ(json["feedback"]["replans"], 1);
  EXPECT_EQ(json["extra_cuts"].size(), 1u);
  EXPECT_THAT(LayersOf(json), ElementsAre(5, 2));

  std::vector<std::string> reference = job;
  reference.emplace_back("--reference");
  EXPECT_EQ(json["weights_sha256"], Json::parse(Run(reference).out)["weights_sha256"]);
}

// Two pairs of workers, of which the first is slower: gradients are added up over replicas, over the tied weight, and
// for the norm.
TEST_F(FeedbackTest, ReplanAutoOfReplicas_ComesToTheWeightsOfTheReference) {
  job_.Write("slow.yaml", Times("") + "speeds: [0.3, 0.3, 1, 1]\n");
  const std::vector<std::string> job = {"--steps", "16",
                                        "--set",   "feedback.replan=auto",
                                        "--set",   "checkpoint.every_steps=5",
                                        "--set",   "checkpoint.directory=" + job_.checkpoints(),
                                        "--set",   "pipeline.method=gpipe",
                                        "--set",   "pipeline.replicas=[2, 2]",
                                        "--set",   "pipeline.stage_layers=[5, 2]",
                                        "--set",   "model.gpt.tied_head=true",
                                        "--set",   "training.clip={global_norm: 1.0}",
                                        "--json"};
  std::vector<std::string> slow = job;
  slow.insert(slow.end(), {"--emulate", job_.path("slow.yaml")});
  const Json json = Json::parse(Run(slow).out);
  EXPECT_EQ(json["feedback"]["replans"], 1);
  EXPECT_LT(LayersOf(json)[0], 5);
  std::vector<std::string> reference = job;
  reference.emplace_back("--reference");
  EXPECT_EQ(json["weights_sha256"], Json::parse(Run(reference).out)["weights_sha256"]);
}

TEST_F(FeedbackTest, WorkersAsFastAsPlanned_KeepTheirSplit) {
  // Wide, for this machine may be busy with other things.
  const ProcessResult result = Run({"--steps", "6", "--emulate", job_.path("times.yaml"), "--set",
                                    "feedback.drift_bound=10", "--json"});
  EXPECT_THAT(result.err, Not(HasSubstr("predicted")));
  const Json feedback = Json::parse(result.out)["feedback"];
  EXPECT_EQ(feedback["drifts"], false);
  EXPECT_GT(feedback["measured"]["step_seconds"], 0.110);
}

TEST_F(FeedbackTest, WithoutAPrediction_OnlyMeasures) {
  const ProcessResult result = Run({"--method", "gpipe", "--json"});
  const Json feedback = Json::parse(result.out)["feedback"];
  EXPECT_EQ(feedback["predicted"], nullptr) << "of 1f1b";
  EXPECT_GT(feedback["measured"]["step_seconds"], 0.0);
}

TEST_F(FeedbackTest, WrongPrediction_IsNamedWithItsPlace) {
  const auto error_of = [this](const std::string& set) {
    const ProcessResult result = RunProcess(job_.Train({"--set", set}));
    EXPECT_EQ(result.exit_code, 2) << set;
    return result.err;
  };
  EXPECT_THAT(error_of("prediction.step_seconds=-1"), HasSubstr("prediction.step_seconds: is -1"));
  EXPECT_THAT(error_of("prediction.memory_bytes=[1, 2, 3]"),
              HasSubstr("prediction.memory_bytes: has 3 numbers, but the pipeline has 2 workers"));
  EXPECT_THAT(error_of("feedback.drift_bound=0"), HasSubstr("feedback.drift_bound: is 0"));
  EXPECT_THAT(error_of("feedback.replan=auto"), HasSubstr("checkpoint.every_steps"));
}

}  // namespace
}  // namespace penstock
