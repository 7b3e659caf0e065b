#include "studies/command/method_comparison.h"

#include <gmock/gmock.h>

#include <array>

#include "base/status.h"
#include "job/profile/device_times.h"
#include "job/resolve.h"
#include "job/yaml/yaml.h"
#include "studies/command/study_output.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kComparedJob[] = R"(name: tiny
model:
  gpt: {layers: 2, width: 32, heads: 2, context: 16, tied_head: false}
data:
  text: {path: input.txt, tokenizer: bytes}
training:
  steps: 30
  batch: 16
  microbatches: 4
  optimizer: {adamw: {learning_rate: 1.0e-2}}
validation: {every_steps: 10}
pipeline: {stages: 2, method: )";

// A finished job on two stages whose validations after 10, 20 and 30 steps gave `losses`.
v1::GetJobResponse Job(const std::string& method, const std::vector<double>& losses) {
  v1::GetJobResponse job;
  *job.mutable_spec() = ParseJobYaml(kComparedJob + method + "}", "job.yaml").value();
  job.mutable_summary()->set_name("tiny");
  job.mutable_summary()->set_method(method);
  v1::JobResult& result = *job.mutable_result();
  result.set_stages(2);
  result.set_microbatches(4);
  result.set_steps(30);
  result.set_bubble_ratio(0.25);
  for (int stage = 0; stage < 2; ++stage) {
    v1::StageAssignment& assignment = *job.mutable_plan()->add_stages();
    assignment.set_first_layer(stage * 4);
    assignment.set_layers(stage == 0 ? 4 : 3);
    v1::StageReport& report = *result.add_per_stage();
    report.set_first_layer(assignment.first_layer());
    report.set_window_seconds(60 - stage);
    report.set_versions_peak(2 - stage);
    report.mutable_staleness()->set_max(1 - stage);
    report.set_peak_memory_bytes(int64_t{3 + stage} << 20);
    result.mutable_feedback()->mutable_measured()->add_workers()->set_sent_bytes_per_step(
        stage == 0 ? 1000 : 500);
    for (const auto& [action, seconds] :
         {std::pair("F", 0.5), std::pair("I", 1.0), std::pair("W", 1.5)}) {
      v1::ActionTime& time = *report.add_actions();
      time.set_action(action);
      time.set_median_seconds(seconds);
    }
  }
  for (size_t i = 0; i < losses.size(); ++i) {
    v1::LossPoint& point = *result.add_validations();
    point.set_step(static_cast<int64_t>(i + 1) * 10);
    point.set_loss(losses[i]);
  }
  return job;
}

// Each of two stages takes a second for every pass.
v1::DeviceTimes Seconds() {
  return ParseDeviceTimes(
             "model: {forward_ms: 2000, backward_input_ms: 2000, backward_weight_ms: 2000}", "t")
      .value();
}

TEST(MethodComparison, MethodsThatReachTheLoss_AreTimedOnEqualDevices) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const StudyResult result,
      CompareMethods({Job("1f1b", {3.0, 2.0}), Job("pipedream", {3.5, 2.5, 1.5})}, Seconds(), 2.0));
  ASSERT_EQ(result.table.rows.size(), 2u);
  // 20 steps of 4 microbatches of 4 samples of 16 tokens; a step of 1f1b takes 3 (4 + 1) seconds.
  const double flushed_s = 20 * 3 * 5;
  // Streamed from cut to cut: the pipeline fills once in 10 steps.
  const double streamed_s = 3 * 3 * (10 * 4 + 1);
  EXPECT_EQ(std::get<int64_t>(result.table.rows[0][1]), 20);
  EXPECT_EQ(std::get<int64_t>(result.table.rows[0][2]), 20 * 256);
  EXPECT_NEAR(std::get<double>(result.table.rows[0][3]), flushed_s, 1e-6);
  EXPECT_NEAR(std::get<double>(result.table.rows[0][4]), 20 * 60 / 30.0, 1e-9);
  EXPECT_NEAR(std::get<double>(result.table.rows[0][5]), 1.0, 1e-12);
  EXPECT_NEAR(std::get<double>(result.table.rows[0][8]), 0.2, 1e-9);
  EXPECT_NEAR(std::get<double>(result.table.rows[1][3]), streamed_s, 1e-6);
  EXPECT_NEAR(std::get<double>(result.table.rows[1][5]), flushed_s / streamed_s, 1e-9);
  EXPECT_EQ(std::get<double>(result.table.rows[1][10]), 1.0);
  EXPECT_EQ(std::get<int64_t>(result.table.rows[1][11]), 2);
  EXPECT_EQ(std::get<double>(result.table.rows[1][12]), 4.0);
  // An activation and a gradient of each of 4 microbatches: 4 samples of 16 tokens, 32 numbers each.
  EXPECT_EQ(std::get<double>(result.table.rows[0][13]), 2.0 * 4 * 4 * 16 * 32 * 4);
  EXPECT_EQ(std::get<double>(result.table.rows[1][13]), 2.0 * 4 * 4 * 16 * 32 * 4);
  EXPECT_EQ(std::get<double>(result.table.rows[0][14]), 1000.0 + 500.0);
  EXPECT_EQ(std::get<double>(result.table.rows[1][15]), 1.5);
}

// A loss is known every 10 steps. 1f1b reaches it after 10 to 20 steps of 15 s, pipedream after 20 to 30 of little
// more than 12 s.
TEST(MethodComparison, Speedup_IsToldAsFinelyAsValidationsTell) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const StudyResult result,
      CompareMethods({Job("1f1b", {3.0, 2.0}), Job("pipedream", {3.5, 2.5, 1.5}),
                      Job("zb-h1", {3.0, 2.0}), Job("gpipe", {1.9})},
                     Seconds(), 2.0));
  const auto speedup = [&](int row) {
    const nlohmann::ordered_json json = StudyJson("compare", result, 0, {})["rows"][row];
    return std::array{json["speedup"], json["speedup_min"], json["speedup_max"]};
  };
  const double streamed_s = 3 * (10 * 4 + 1);  // from a cut to the next
  EXPECT_NEAR(speedup(1)[0].get<double>(), 300 / (3 * streamed_s), 1e-9);
  EXPECT_NEAR(speedup(1)[1].get<double>(), 150 / (3 * streamed_s), 1e-9);
  EXPECT_NEAR(speedup(1)[2].get<double>(), 300 / (2 * streamed_s), 1e-9);
  // The same losses in the same steps: nothing is open.
  EXPECT_EQ(speedup(0)[1], 1.0);
  EXPECT_EQ(speedup(0)[2], 1.0);
  EXPECT_GT(speedup(2)[0].get<double>(), 1.0);
  EXPECT_NEAR(speedup(2)[1].get<double>(), speedup(2)[2].get<double>(), 1e-9);
  // By the first validation: it may have been at any time before.
  EXPECT_NEAR(speedup(3)[1].get<double>(), 1.0, 1e-9);
  EXPECT_TRUE(speedup(3)[2].is_null());
}

TEST(MethodComparison, Text_HasUnits) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const StudyResult result,
      CompareMethods(
          {Job("1f1b", {3.0, 2.0}), Job("pipedream", {3.5, 2.5, 1.5}), Job("gpipe", {3.0, 2.9})},
          Seconds(), 2.0));
  EXPECT_EQ(ComparisonText(result),
            "tiny: time to a validation loss of 2 nats per token\n"
            "loss 2, stages 2, microbatches 4, tokens per step 256, times emulated\n"
            "\n"
            "METHOD     STEPS  TOKENS  SIMULATED  MEASURED  SPEED-UP               BUBBLE  "
            "BUBBLE MEASURED  STALENESS (UPDATES)  VERSIONS    MEMORY  BEST LOSS (NATS)\n"
            "1f1b          20  5.12 k      300 s      40 s  1x                     20.0 %  "
            "         25.0 %                    1         2  4.00 MiB            2.0000\n"
            "pipedream     30  7.68 k      369 s      60 s  0.81x (0.41x to 1.2x)   2.4 %  "
            "         25.0 %                    1         2  4.00 MiB            1.5000\n"
            "gpipe          -       -          -         -  -                      20.0 %  "
            "         25.0 %                    1         2  4.00 MiB            2.9000\n");
}

// A classifier of images has samples, and losses whose unit is not told.
TEST(MethodComparison, ModelWithoutTokens_CountsSamples) {
  v1::GetJobResponse job = Job("1f1b", {3.0, 2.0});
  *job.mutable_spec()->mutable_model() = ParseJobYaml(R"(name: tiny
model: {cifar_resnet: {depth: 8, width: 4, image: {size: 8}}}
data: {synthetic: {}}
training: {steps: 30, batch: 16, microbatches: 4, optimizer: {sgd: {learning_rate: 0.1}}}
)",
                                                      "job.yaml")
                                             ->model();
  job.mutable_spec()->mutable_data()->mutable_synthetic();
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob resolved, ResolveJob(job.spec()));
  job.mutable_plan()->mutable_stages(1)->set_layers(resolved.model.size() - 4);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const StudyResult result, CompareMethods({job}, Seconds(), 2.0));
  EXPECT_THAT(ComparisonText(result),
              HasSubstr("tiny: time to a validation loss of 2\n"
                        "loss 2, stages 2, microbatches 4, samples per step 16, times emulated\n"));
  EXPECT_THAT(ComparisonText(result), HasSubstr("STEPS  SAMPLES "));
  const nlohmann::ordered_json row = StudyJson("compare", result, 0, {})["rows"][0];
  EXPECT_EQ(row["samples"], 20 * 16);
  EXPECT_TRUE(row["tokens"].is_null());
  EXPECT_EQ(result.charts[1].name, "samples");
  EXPECT_EQ(result.charts[1].chart.y_label, "validation loss");
}

TEST(MethodComparison, SpeedsAndLinksOfTheFile_AreCounted) {
  const auto simulated_s = [](const v1::DeviceTimes& times) -> absl::StatusOr<double> {
    PENSTOCK_ASSIGN_OR_RETURN(const StudyResult result,
                              CompareMethods({Job("gpipe", {3.0, 2.0})}, times, 2.0));
    return std::get<double>(result.table.rows[0][3]);
  };
  v1::DeviceTimes times = Seconds();
  for (int worker = 0; worker < 2; ++worker) times.add_speeds(2.0);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const double fast_s, simulated_s(times));
  EXPECT_NEAR(fast_s, 20 * 15 / 2.0, 1e-6);
  // A step waits for the first activation and for the last gradient.
  times.clear_speeds();
  times.add_links()->set_latency_ms(500);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const double linked_s, simulated_s(times));
  EXPECT_NEAR(linked_s, 20 * (15 + 2 * 0.5), 1e-6);
  times.add_speeds(1.0);
  EXPECT_THAT(simulated_s(times), StatusIs(absl::StatusCode::kInvalidArgument,
                                           HasSubstr("speeds has 1 numbers, but the run has 2")));
}

// Two replicas on the same two stages: each takes its own time for a pass.
v1::GetJobResponse Replicas() {
  v1::GetJobResponse job = Job("local-sgd", {3.0, 2.0});
  job.mutable_spec()->mutable_pipeline()->add_replicas(2);
  job.mutable_plan()->set_pipelines(2);
  v1::JobResult& result = *job.mutable_result();
  for (int stage = 0; stage < 2; ++stage) {
    *job.mutable_plan()->add_stages() = job.plan().stages(stage);
    *result.add_per_stage() = result.per_stage(stage);
  }
  return job;
}

TEST(MethodComparison, Replicas_AreTimedAsWholeModels) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const StudyResult result,
      CompareMethods({Job("1f1b", {3.0, 2.0}), Replicas()}, Seconds(), 2.0));
  // Of 4 microbatches each of 2 replicas makes 2 local steps: 2 S H + 2 (S - 1) slots, of which
  // forwards take one second and backwards two, so that a round takes no less than 4 microbatches
  // on a stage.
  EXPECT_GE(std::get<double>(result.table.rows[1][3]), 20 * 4 * 3.0);
  EXPECT_LE(std::get<double>(result.table.rows[1][3]), 20 * 5 * 3.0);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::DeviceTimes measured, MeasuredTimes(Replicas()));
  EXPECT_DOUBLE_EQ(measured.model().forward_ms(), 1000.0);
  EXPECT_DOUBLE_EQ(measured.model().backward_weight_ms(), 3000.0);
}

TEST(MethodComparison, MethodThatDoesNotReachIt_HasDashes) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const StudyResult result,
      CompareMethods({Job("1f1b", {3.0, 2.0}), Job("gpipe", {3.0, 2.5, 2.1})}, Seconds(), 2.0));
  EXPECT_EQ(StudyJson("compare", result, 0, {})["rows"][1]["steps"], nullptr);
  for (const char* key : {"speedup", "speedup_min", "speedup_max"}) {
    EXPECT_EQ(StudyJson("compare", result, 0, {})["rows"][1][key], nullptr) << key;
  }
  EXPECT_EQ(StudyJson("compare", result, 0, {})["rows"][1]["best_loss"], 2.1);
}

TEST(MethodComparison, WithoutALoss_TakesTheLowestThatAllReached) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const StudyResult result,
      CompareMethods({Job("1f1b", {3.0, 2.0, 1.0}), Job("gpipe", {2.9, 2.2, 2.4})}, Seconds(), {}));
  EXPECT_EQ(std::get<double>(result.settings[0].second), 2.2);
  EXPECT_EQ(std::get<int64_t>(result.table.rows[0][1]), 20);
  EXPECT_EQ(std::get<int64_t>(result.table.rows[1][1]), 20);
}

TEST(MethodComparison, Charts_HaveALineForEachMethodAndTheLoss) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const StudyResult result,
      CompareMethods({Job("1f1b", {3.0, 2.0}), Job("pipedream", {3.5, 2.5, 1.5})}, Seconds(), 2.0));
  ASSERT_EQ(result.charts.size(), 2u);
  std::vector<std::string> labels;
  for (const ChartLine& line : result.charts[0].chart.lines) labels.push_back(line.label);
  EXPECT_THAT(labels, ElementsAre("1f1b", "pipedream", "2"));
  EXPECT_EQ(result.charts[0].chart.lines[0].points.size(), 2u);
  EXPECT_NEAR(result.charts[0].chart.lines[0].points[0].x, 10 * 15, 1e-6);
  EXPECT_EQ(result.charts[1].chart.lines[1].points[2].x, 30 * 256);
  EXPECT_EQ(result.charts[1].chart.y_label, "validation loss, nats per token");
}

TEST(MeasuredTimes, OfAJob_AreTheSumsOverItsStages) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::DeviceTimes times, MeasuredTimes(Job("1f1b", {})));
  EXPECT_DOUBLE_EQ(times.model().forward_ms(), 1000);
  EXPECT_DOUBLE_EQ(times.model().backward_input_ms(), 2000);
  EXPECT_DOUBLE_EQ(times.model().backward_weight_ms(), 3000);
}

TEST(MeasuredTimes, OfAJobWithoutReports_AreRefused) {
  v1::GetJobResponse job = Job("1f1b", {});
  job.mutable_result()->clear_per_stage();
  EXPECT_THAT(MeasuredTimes(job).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("--times")));
}

}  // namespace
}  // namespace penstock
