// Timelines that the simulator "measured", held against what is predicted of them.
#include "results/job_timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "job/resolve.h"
#include "job/run/run_schedule.h"
#include "job/yaml/yaml.h"
#include "results/predicted_timeline.h"
#include "schedule/simulate.h"
#include "services/cli/timeline_shares.h"
#include "services/worker/timeline_message.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kClockNs =
    5'000 * kMs;  // where the coordinator's clock stands when the job begins

// 7 layers; `pipeline` and more in the form of a job file.
v1::GetJobResponse JobOf(const std::string& method, int workers, int64_t steps,
                         const std::string& more = "") {
  const std::string yaml = absl::StrCat(
      "name: t\nmodel:\n  gpt: {layers: 2, width: 32, heads: 2, context: 16, tied_head: false}\n"
      "data:\n  text: {path: input.txt}\ntraining:\n  steps: ",
      steps,
      "\n  batch: 12\n  microbatches: 6\n  optimizer: {adamw: {learning_rate: 1.0e-3}}\n"
      "  clip: {layer_norm: 1.0}\npipeline:\n",
      method, more);
  v1::GetJobResponse job;
  const absl::StatusOr<v1::JobSpec> spec = ParseJobYaml(yaml, "job.yaml");
  EXPECT_THAT(spec, IsOk());
  *job.mutable_spec() = *spec;
  const ResolvedJob resolved = ResolveJob(*spec).value();
  const int stages = spec->pipeline().stages();
  const Topology topology = TopologyOf(resolved, stages);
  EXPECT_EQ(topology.workers, workers);
  for (int stage = 0; stage < topology.stages(); ++stage) {
    v1::StageAssignment& assignment = *job.mutable_plan()->add_stages();
    assignment.set_stage(stage);
    assignment.set_worker_index(topology.worker(StageId(stage)).value);
    assignment.set_worker(absl::StrCat("w", assignment.worker_index()));
    const int place = topology[StageId(stage)].part;
    assignment.set_first_layer(place == 0 ? 0 : 3 + (place - 1));
    assignment.set_layers(place == 0 ? 3 : 1);
  }
  if (stages > 0) job.mutable_plan()->mutable_stages()->rbegin()->set_layers(7 - 3 - (stages - 2));
  job.mutable_result()->set_stages(stages);
  job.mutable_result()->set_steps(steps);
  return job;
}

SimulationCosts CostsOf(const Topology& topology) {
  SimulationCosts costs;
  for (int stage = 0; stage < topology.stages(); ++stage) {
    costs.stages.push_back({.forward_s = 0.010 + 0.001 * stage,
                            .backward_input_s = 0.011,
                            .backward_weight_s = 0.009,
                            .update_s = 0.002});
  }
  return costs;
}

// What a run with these costs measures of the steps between two cuts, from `start_ns` on.
Timeline RunOf(const v1::GetJobResponse& job, int64_t from_step, int64_t to_step,
               int64_t start_ns) {
  const ResolvedJob resolved = ResolveJob(job.spec()).value();
  const ScheduleOptions options =
      ScheduleOptionsOf(resolved, TopologyOf(resolved, job.result().stages()));
  const Schedule schedule = ScheduleOfSteps(resolved, options, from_step, to_step).value();
  Timeline timeline =
      Simulate(schedule, CostsOf(options.topology), {.timeline_spans_max = 1 << 20})->timeline;
  for (Span& span : timeline.spans) {
    span.start_ns += start_ns;
    span.end_ns += start_ns;
  }
  return timeline;
}

void Append(const Timeline& more, Timeline& timeline) {
  timeline.workers = more.workers;
  timeline.spans.insert(timeline.spans.end(), more.spans.begin(), more.spans.end());
}

// Forwards of a validation, numbered from 0, on each of two workers.
Timeline ValidationOf(int64_t microbatches, int64_t start_ns) {
  Timeline timeline = {.workers = 2, .spans = {}};
  for (int64_t m = 0; m < microbatches; ++m) {
    for (int32_t stage = 0; stage < 2; ++stage) {
      timeline.spans.push_back({.worker = WorkerId(stage),
                                .action = {ActionKind::kForward, stage, m},
                                .start_ns = start_ns + (m + stage) * kMs,
                                .end_ns = start_ns + (m + stage + 1) * kMs});
    }
  }
  return timeline;
}

// Where compute spans are, by worker and action.
using Places = std::map<std::tuple<int32_t, std::string>, int64_t>;
Places StartsOf(const Timeline& timeline) {
  Places places;
  for (const Span& span : timeline.spans) {
    if (span.lane != Lane::kCompute || !HasMicrobatch(span.action.kind)) continue;
    places[{span.worker.value, ToString(span.action)}] = span.start_ns;
  }
  return places;
}

// Every span of one side is on the other at the same time, to within rounding of medians.
void ExpectSamePlaces(const ComparedSteps& compared) {
  const Places measured = StartsOf(compared.measured);
  const Places predicted = StartsOf(compared.predicted);
  EXPECT_GT(measured.size(), 20u);
  EXPECT_EQ(measured.size(), predicted.size());
  for (const auto& [what, start_ns] : measured) {
    const auto found = predicted.find(what);
    ASSERT_NE(found, predicted.end()) << std::get<1>(what);
    EXPECT_NEAR(found->second, start_ns, 1000) << std::get<1>(what);
  }
}

TEST(ComparedSteps, RunAsPredicted_HasEverySpanAtItsPlace) {
  for (const auto& [pipeline, workers] :
       {std::pair("  method: 1f1b\n  stages: 2\n", 2),
        {"  method: gpipe\n  stages: 3\n", 3},
        {"  method: interleaved-1f1b\n  stages: 4\n  stages_per_worker: 2\n", 2},
        {"  method: 1f1b\n  stages: 2\n  replicas: [2, 1]\n", 3},
        {"  method: roundpipe\n  stages: 3\n  workers: 2\n", 2}}) {
    SCOPED_TRACE(pipeline);
    const v1::GetJobResponse job = JobOf(pipeline, workers, 12);
    const Timeline measured = RunOf(job, 0, 12, kClockNs);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const ComparedSteps compared,
                                  CompareWithPrediction(job, measured));
    EXPECT_EQ(compared.source, TimesSource::kMeasurements);
    EXPECT_EQ(compared.steps, 12);
    EXPECT_EQ(compared.first_step, 0);
    EXPECT_EQ(compared.measured.start_ns(), kClockNs);
    EXPECT_NEAR(compared.error(), 0.0, 1e-4);
    ExpectSamePlaces(compared);
  }
}

// What workers keep is the end of a long run: it begins anywhere in a step, and a stream is in its steady state.
TEST(ComparedSteps, EndOfALongStream_IsComparedInItsSteadyState) {
  const v1::GetJobResponse job = JobOf("  method: pipedream\n  stages: 2\n", 2, 100);
  Timeline measured = RunOf(job, 0, 100, kClockNs);
  const int64_t end_ns = measured.end_ns();
  std::erase_if(measured.spans,
                [&](const Span& span) { return span.start_ns < end_ns - 2'000 * kMs; });
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ComparedSteps compared, CompareWithPrediction(job, measured));
  EXPECT_GT(compared.steps, 3);
  EXPECT_EQ(compared.first_step + compared.steps, 100);
  EXPECT_NEAR(compared.error(), 0.0, 0.01);
  ExpectSamePlaces(compared);
}

TEST(ComparedSteps, CutsAndValidations_AreLeftOut) {
  const v1::GetJobResponse job =
      JobOf("  method: 1f1b\n  stages: 2\n", 2, 20, "validation: {every_steps: 6, batches: 20}\n");
  // 0 to 6, a validation, 6 to 12, a validation, 12 to 15 so far. Of the first range the beginning is missing.
  Timeline measured = RunOf(job, 0, 6, kClockNs);
  const int64_t first_end_ns = measured.end_ns();
  std::erase_if(measured.spans,
                [&](const Span& span) { return span.start_ns < kClockNs + 250 * kMs; });
  Append(ValidationOf(120, first_end_ns), measured);
  const int64_t second_ns = measured.end_ns() + 7 * kMs;
  Append(RunOf(job, 6, 12, second_ns), measured);
  Append(ValidationOf(120, measured.end_ns()), measured);
  const int64_t third_ns = measured.end_ns() + 3 * kMs;
  const Timeline third = RunOf(job, 12, 18, third_ns);
  for (const Span& span : third.spans) {
    if (span.end_ns < third_ns + 700 * kMs) measured.spans.push_back(span);
  }
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ComparedSteps compared, CompareWithPrediction(job, measured));
  EXPECT_EQ(compared.first_step, 6);
  EXPECT_EQ(compared.steps, 6);
  EXPECT_EQ(compared.measured.start_ns(), second_ns);
  EXPECT_NEAR(compared.error(), 0.0, 1e-4);
  ExpectSamePlaces(compared);
}

TEST(ComparedSteps, PlannedJob_IsSimulatedWithTheTimesOfItsPlan) {
  std::string layers;
  for (const char* layer : {"embedding", "attention", "mlp", "final_norm", "head"}) {
    absl::StrAppend(&layers, "    - {layer: ", layer,
                    ", times: {forward_ms: 2, backward_input_ms: 2, backward_weight_ms: 2}}\n");
  }
  const v1::GetJobResponse job =
      JobOf("  method: 1f1b\n  stages: 2\n  stage_layers: [3, 4]\n", 2, 12,
            absl::StrCat("prediction:\n  step_seconds: 0.162\n  times:\n    layers:\n", layers));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ComparedSteps compared,
                                CompareWithPrediction(job, RunOf(job, 0, 12, kClockNs)));
  EXPECT_EQ(compared.source, TimesSource::kPlan);
  // 6 ms in, 6 times 3 passes of 8 ms on the last worker, and 12 ms back.
  EXPECT_NEAR(compared.predicted_step_s, 0.162, 1e-6);
  EXPECT_GT(compared.error(), 0.05) << "the run takes other times";
  EXPECT_EQ(compared.predicted.start_ns(), compared.measured.start_ns());
}

TEST(ComparedSteps, NothingToCompareWith_SaysWhy) {
  v1::GetJobResponse job = JobOf("  method: 1f1b\n  stages: 2\n", 2, 12);
  EXPECT_THAT(CompareWithPrediction(job, ValidationOf(3, 0)),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("no whole step")));
  // The worker of one stage did not answer.
  Timeline measured = RunOf(job, 0, 12, kClockNs);
  std::erase_if(measured.spans, [](const Span& span) { return span.worker == WorkerId(0); });
  EXPECT_THAT(CompareWithPrediction(job, measured),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("")));
  const v1::GetJobResponse recorded =
      JobOf("  method: pipedream\n  stages: 2\n  order: recorded\n", 2, 12);
  EXPECT_THAT(CompareWithPrediction(recorded, RunOf(recorded, 0, 12, kClockNs)),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("recorded")));
  measured.workers = 3;
  EXPECT_THAT(CompareWithPrediction(job, measured),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("of 3 workers")));
  job.clear_plan();
  EXPECT_THAT(CompareWithPrediction(job, measured),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("no plan")));
}

v1::GetTimelineResponse ResponseOf(const Timeline& timeline) {
  v1::GetTimelineResponse response;
  response.set_workers(timeline.workers);
  *response.mutable_spans() = ToMessage(timeline, INT64_MAX).spans();
  return response;
}

TEST(JobTimeline, BothSides_StandBesideEachOther) {
  const v1::GetJobResponse job = JobOf("  method: 1f1b\n  stages: 2\n", 2, 12);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const JobTimeline timeline,
                                JobTimelineOf(job, ResponseOf(RunOf(job, 0, 12, kClockNs))));
  const std::vector<DrawnTimeline> rows = RowsOf(timeline);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].name, "measured");
  EXPECT_THAT(rows[0].note, HasSubstr("the mean of 12 from step 1 on"));
  EXPECT_EQ(rows[1].name, "predicted");
  EXPECT_THAT(rows[1].workers, ElementsAre("w0", "w1"));
  EXPECT_EQ(TimelineNotes(timeline), "");
  EXPECT_THAT(SharesText(timeline), AllOf(HasSubstr("WORKER"), HasSubstr("PREDICTED BUSY"),
                                          HasSubstr("w1"), HasSubstr("predicted: a step takes")));
  const nlohmann::ordered_json json = SharesJson(timeline);
  EXPECT_EQ(json["compared"]["steps"], 12);
  EXPECT_EQ(json["compared"]["times_from"], "measurements");
  EXPECT_EQ(json["workers"][1]["name"], "w1");
  EXPECT_NEAR(json["compared"]["measured"]["workers"][0]["busy_seconds"],
              json["compared"]["predicted"]["workers"][0]["busy_seconds"], 1e-3);
}

TEST(JobTimeline, WorkerThatDidNotAnswer_IsNamedAndNotSaidToBeIdle) {
  const v1::GetJobResponse job = JobOf("  method: 1f1b\n  stages: 2\n", 2, 12);
  Timeline measured = RunOf(job, 0, 12, kClockNs);
  std::erase_if(measured.spans, [](const Span& span) { return span.worker == WorkerId(1); });
  v1::GetTimelineResponse response = ResponseOf(measured);
  response.add_missing_workers("w1");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const JobTimeline timeline, JobTimelineOf(job, response));
  EXPECT_EQ(TitleNotes(timeline), ", no answer from w1");
  EXPECT_THAT(TimelineNotes(timeline),
              AllOf(HasSubstr("without w1"), HasSubstr("nothing is predicted")));
  const nlohmann::ordered_json json = SharesJson(timeline);
  EXPECT_THAT(json["missing_workers"], ElementsAre("w1"));
  EXPECT_TRUE(json["workers"][0]["busy_seconds"].is_number());
  EXPECT_TRUE(json["workers"][1]["busy_seconds"].is_null());
  EXPECT_TRUE(json["compared"].is_null());
}

TEST(JobTimeline, AfterOtherAttempts_SaysWhyTheyEnded) {
  v1::GetJobResponse job = JobOf("  method: 1f1b\n  stages: 2\n", 2, 12);
  v1::Attempt& lost = *job.mutable_result()->add_attempts();
  lost.set_last_step(30);
  lost.set_steps_redone(6);
  lost.set_message("w1 is lost");
  job.mutable_result()->add_attempts()->set_first_step(24);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const JobTimeline timeline,
                                JobTimelineOf(job, ResponseOf(RunOf(job, 0, 12, kClockNs))));
  EXPECT_EQ(TitleNotes(timeline), ", attempt 2 from step 25 on");
  EXPECT_EQ(TimelineNotes(timeline), "attempt 1 ended after step 30: w1 is lost\n");
}

TEST(JobTimeline, WithoutSpans_SaysWhoDidNotAnswer) {
  v1::GetJobResponse job = JobOf("  method: 1f1b\n  stages: 2\n", 2, 12);
  v1::GetTimelineResponse response;
  response.set_workers(2);
  EXPECT_THAT(JobTimelineOf(job, response),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("no step is done yet")));
  job.mutable_summary()->set_state(v1::JOB_STATE_FAILED);
  EXPECT_THAT(JobTimelineOf(job, response), StatusIs(absl::StatusCode::kFailedPrecondition,
                                                     HasSubstr("it ended before a step was done")));
  response.add_missing_workers("w0");
  response.add_missing_workers("w1");
  EXPECT_THAT(JobTimelineOf(job, response),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("w0, w1")));
}

}  // namespace
}  // namespace penstock
