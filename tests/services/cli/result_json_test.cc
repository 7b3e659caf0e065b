#include "services/documents/result_json.h"

#include <gmock/gmock.h>

#include <sstream>

#include "services/cli/json_output.h"
#include "services/cli/planning_text.h"
#include "services/cli/result_table.h"
#include "tests/support/golden.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

void SetStatistic(v1::Statistic& statistic, double max, double mean) {
  statistic.set_max(max);
  statistic.set_mean(mean);
}

v1::StageReport Stage(int stage) {
  v1::StageReport report;
  report.set_stage(stage);
  report.set_worker("worker-" + std::to_string(stage));
  report.set_first_layer(stage * 6);
  report.set_layers(stage == 0 ? 6 : 1);
  report.set_busy_seconds(18.25);
  report.set_idle_seconds(1.75);
  report.set_window_seconds(20);
  report.set_bubble_ratio(0.0875);
  v1::IdleCause& input = *report.add_idle_causes();
  input.set_cause("input");
  input.set_seconds(1.5);
  v1::IdleCause& credit = *report.add_idle_causes();
  credit.set_cause("credit");
  credit.set_seconds(0.05);
  SetStatistic(*report.mutable_staleness(), 1 - stage, 0.5 * (1 - stage));
  report.mutable_version_drift();
  report.set_versions_peak(2);
  report.set_activations_peak(2);
  report.set_bytes_sent(123'456'789);
  report.set_messages_sent(400);
  report.set_peak_memory_bytes(98'765'432);
  report.set_predicted_memory_bytes(97'531'908);
  report.set_memory_bytes(54'321'000);
  v1::StageMemory& memory = *report.mutable_memory();
  memory.set_weights(10'000'000);
  memory.set_gradients(10'000'000);
  memory.set_optimizer(20'000'000);
  memory.set_stashed_weights(10'000'000);
  memory.set_activations(1'234'567);
  report.mutable_copies_to_host()->set_count(400);
  report.mutable_copies_to_host()->set_seconds(0.25);
  v1::GraphCounts& graphs = *report.mutable_graphs();
  graphs.set_passes(4800);
  graphs.set_replayed(4500);
  graphs.set_recorded(90);
  graphs.set_kept(80);
  report.set_attention_fallbacks(3);
  v1::EdgePath& path = *report.add_edges();
  path.set_edge(stage == 0 ? "activation 0->1" : "gradient 1->0");
  path.set_path("cuda-ipc");
  report.set_updates(400);
  v1::ActionTime& forward = *report.add_actions();
  forward.set_action("F");
  forward.set_count(400);
  forward.set_seconds(6.5);
  forward.set_median_seconds(0.016);
  return report;
}

v1::GetJobResponse Job() {
  v1::GetJobResponse job;
  job.mutable_summary()->set_job_id("job-1");
  job.mutable_summary()->set_name("shakespeare");
  job.mutable_summary()->set_method("pipedream");
  job.mutable_summary()->set_state(v1::JOB_STATE_SUCCEEDED);
  v1::JobResult& result = *job.mutable_result();
  result.set_stages(2);
  result.set_microbatches(8);
  result.set_steps(50);
  result.set_tokens(204'800);
  result.set_samples(1600);
  result.set_wall_seconds(20.5);
  result.set_tokens_per_second(9990.2);
  result.set_samples_per_second(78.05);
  result.set_model_flops_per_second(2.5e9);
  result.set_product_flops_per_second(8e9);
  result.set_mfu(0.3125);
  result.set_train_loss(2.3412);
  result.set_validation_loss(2.4021);
  result.set_weights_sha256(std::string(64, 'a'));
  result.set_bubble_ratio(0.0875);
  SetStatistic(*result.mutable_block_delay(), 3, 1.5);
  *result.add_per_stage() = Stage(0);
  *result.add_per_stage() = Stage(1);
  result.set_checkpoint("checkpoints/step-000000000050");
  result.add_extra_cuts(17);
  v1::LossPoint& validation = *result.add_validations();
  validation.set_step(50);
  validation.set_loss(2.4021);
  for (const auto& [name, value] : {std::pair("accuracy", 0.3412), {"top5", 0.7}}) {
    v1::MetricValue& metric = *validation.add_metrics();
    metric.set_name(name);
    metric.set_value(value);
  }
  *result.mutable_validation_metrics() = validation.metrics();
  v1::LossPoint& loss = *result.add_losses();
  loss.set_step(1);
  loss.set_loss(5.5);
  v1::Attempt& failed = *result.add_attempts();
  failed.set_epoch(1'700'000'000'000);
  failed.set_last_step(17);
  failed.set_cause(v1::ATTEMPT_CAUSE_WORKER_LOST);
  failed.set_worker("worker-1");
  failed.set_message("worker worker-1 (stage 1): was lost: no heartbeat for 3.0 s");
  failed.set_detected_ms(1'700'000'005'000);
  failed.set_resumed_ms(1'700'000'006'000);
  failed.set_steps_redone(7);
  v1::Attempt& attempt = *result.add_attempts();
  attempt.set_epoch(1'700'000'000'001);
  attempt.set_first_step(10);
  attempt.set_last_step(50);
  return job;
}

TEST(ResultJsonTest, FinishedJob_MatchesGolden) {
  ExpectEqualsGolden("cli/result.json", ResultJson(Job(), {.losses = true}).dump(2) + "\n");
}

TEST(ResultJsonTest, JobWithoutSteps_HasAllKeysAndNulls) {
  const nlohmann::ordered_json full = ResultJson(Job(), {});
  const nlohmann::ordered_json empty = ResultJson(v1::GetJobResponse(), {});
  std::vector<std::string> full_keys;
  std::vector<std::string> empty_keys;
  for (const auto& [key, value] : full.items()) full_keys.push_back(key);
  for (const auto& [key, value] : empty.items()) empty_keys.push_back(key);
  EXPECT_EQ(full_keys, empty_keys);
  EXPECT_TRUE(empty["train_loss"].is_null());
  EXPECT_TRUE(empty["validation_loss"].is_null());
  EXPECT_TRUE(empty["weights_sha256"].is_null());
  EXPECT_TRUE(empty["tokens_per_second"].is_null());
  EXPECT_TRUE(empty["samples_per_second"].is_null());
  EXPECT_TRUE(empty["unit"].is_null());
  EXPECT_TRUE(empty["bubble_ratio"].is_null());
}

TEST(ResultTextTest, AttemptsAreATableOnceThereAreSeveral) {
  v1::GetJobResponse job;
  v1::Attempt& first = *job.mutable_result()->add_attempts();
  first.set_last_step(40);
  EXPECT_THAT(ResultText(job), ::testing::Not(::testing::HasSubstr("ATTEMPT")));
  first.set_message("worker w1: was lost");
  first.set_detected_ms(10'000);
  first.set_resumed_ms(11'500);
  first.set_steps_redone(10);
  job.mutable_result()->add_attempts()->set_first_step(30);
  EXPECT_THAT(ResultText(job),
              ::testing::AllOf(::testing::ContainsRegex("ATTEMPT +STEPS +BACK AFTER"),
                               ::testing::ContainsRegex("1 +1-40 +1.5 s +10 +worker w1: was lost"),
                               ::testing::ContainsRegex("2 +- +- +0 +-")));
}

TEST(ResultTextTest, BeforeTheFirstReport_SpeedAndBubbleAreNotKnown) {
  v1::GetJobResponse job = Job();
  EXPECT_THAT(ResultText(job), ::testing::HasSubstr("bubble 8.8 %"));
  job.mutable_result()->clear_per_stage();
  job.mutable_result()->clear_tokens_per_second();
  job.mutable_result()->clear_samples_per_second();
  job.mutable_result()->clear_bubble_ratio();
  EXPECT_THAT(ResultText(job), ::testing::AllOf(::testing::HasSubstr("(- tokens/s)"),
                                                ::testing::HasSubstr("bubble -, ")));
}

TEST(ResultJsonTest, WithoutTokens_WorkIsInSamples) {
  v1::GetJobResponse job = Job();
  EXPECT_EQ(ResultJson(job, {})["unit"], "tokens");
  job.mutable_result()->set_tokens(0);
  job.mutable_result()->set_tokens_per_second(0);
  const nlohmann::ordered_json json = ResultJson(job, {});
  EXPECT_EQ(json["unit"], "samples");
  EXPECT_EQ(json["samples"], 1600);
  EXPECT_EQ(json["samples_per_second"], 78.05);
  EXPECT_EQ(json["tokens"], 0);
  EXPECT_TRUE(json["tokens_per_second"].is_null());
  EXPECT_THAT(ResultText(job), ::testing::HasSubstr("50 steps, 1.60 k samples in "));
  EXPECT_THAT(ResultText(job), ::testing::HasSubstr("(78 samples/s)"));
}

TEST(ResultTextTest, LossOfSeveralSteps_SaysOfHowMany) {
  v1::GetJobResponse job = Job();
  EXPECT_THAT(ResultText(job), ::testing::HasSubstr("\ntraining loss 2.3412, "));
  for (const int losses : {3, 12}) {
    while (job.result().losses_size() < losses) job.mutable_result()->add_losses();
    EXPECT_THAT(ResultText(job), ::testing::HasSubstr("training loss 2.3412 (mean of the last " +
                                                      std::to_string(std::min(losses, 10)) +
                                                      " steps), validation loss 2.4021, "
                                                      "accuracy 34.1 %, top-5 70.0 %, bubble"));
  }
  job.mutable_result()->set_train_loss(2.1e23);
  EXPECT_THAT(ResultText(job), ::testing::HasSubstr("training loss 2.1e+23 (mean"));
}

TEST(ResultJsonTest, Prediction_IsAlwaysThere) {
  const nlohmann::ordered_json without = ResultJson(Job(), {});
  ASSERT_TRUE(without.contains("prediction"));
  EXPECT_TRUE(without["prediction"].is_null());
  const StepPrediction prediction = {.steps_measured = 7};
  EXPECT_EQ(ResultJson(Job(), {.prediction = prediction})["prediction"]["steps"], 7);
}

TEST(ResultJsonTest, BlockDelay_IsNullWhereItIsNotKnown) {
  v1::GetJobResponse job = Job();
  EXPECT_EQ(ResultJson(job, {})["block_delay"]["max"], 3);
  job.mutable_result()->clear_block_delay();
  EXPECT_TRUE(ResultJson(job, {})["block_delay"].is_null());
  EXPECT_TRUE(ResultJson(job, {})["block_delay_measured"].is_null());
  SetStatistic(*job.mutable_result()->mutable_block_delay_measured(), 5, 2.5);
  EXPECT_EQ(ResultJson(job, {})["block_delay_measured"],
            (nlohmann::ordered_json{{"max", 5}, {"mean", 2.5}}));
}

TEST(ResultJsonTest, Losses_OnlyWhenAskedFor) {
  EXPECT_FALSE(ResultJson(Job(), {}).contains("losses"));
}

TEST(JobJsonTest, ProgressAndRemainingSeconds_AreWholeNumbersOrNull) {
  v1::JobSummary job;
  EXPECT_TRUE(JobJson(job)["progress_percentage"].is_null()) << "of a profile without workers";
  EXPECT_TRUE(JobJson(job)["estimated_remaining_seconds"].is_null());
  job.set_steps(7);
  job.set_step(2);
  job.set_estimated_remaining_seconds(12.2);
  EXPECT_EQ(JobJson(job)["progress_percentage"], 28);
  EXPECT_EQ(JobJson(job)["estimated_remaining_seconds"], 13);
  job.set_step(7);
  job.set_estimated_remaining_seconds(0);
  EXPECT_EQ(JobJson(job)["progress_percentage"], 100);
  EXPECT_EQ(JobJson(job)["estimated_remaining_seconds"], 0);
}

TEST(ResultTableTest, FinishedJob_MatchesGolden) {
  ExpectEqualsGolden("cli/result.txt", ResultText(Job()));
}

TEST(JsonOutputTest, BytesThatAreNotUtf8_AreReplaced) {
  std::ostringstream out;
  std::ostringstream err;
  Console console{out, err};
  PrintJson({{"text", "a\xff\xfe"}}, console);
  EXPECT_EQ(out.str(), "{\n  \"text\": \"a\xEF\xBF\xBD\xEF\xBF\xBD\"\n}\n");
}

// One that drains, and one whose steps were predicted.
v1::JobPlanning ChosenByExpectedTime() {
  v1::JobPlanning planning;
  planning.set_reason("the expected time to the same loss: 0.2 s a step");
  planning.set_in_time(true);
  v1::PlannedCandidate& drains = *planning.add_candidates();
  drains.set_name("zb-h1, 4 stages, 8 microbatches");
  drains.mutable_update_pattern()->set_synchronous(true);
  for (const auto set : {&v1::StepsFactor::set_median, &v1::StepsFactor::set_low,
                         &v1::StepsFactor::set_high, &v1::StepsFactor::set_expected}) {
    (drains.mutable_steps_factor()->*set)(1);
  }
  v1::PlannedCandidate& late = *planning.add_candidates();
  late.set_name("paci, 4 stages, 8 microbatches");
  late.mutable_update_pattern()->set_delay(0.5);
  v1::StepsFactor& factor = *late.mutable_steps_factor();
  factor.set_median(1.25);
  factor.set_low(0.9);
  factor.set_high(1.7);
  factor.set_expected(1.3);
  return planning;
}

TEST(PlanningJson, StepsFactor_IsThereWhereItWasPredicted) {
  v1::JobPlanning planning = ChosenByExpectedTime();
  EXPECT_EQ(PlanningJson(planning)["candidates"][1]["steps_factor"].dump(),
            R"({"expected":1.3,"median":1.25,"low":0.9,"high":1.7})");
  planning.mutable_candidates(1)->clear_steps_factor();
  EXPECT_TRUE(PlanningJson(planning)["candidates"][1]["steps_factor"].is_null());
}

TEST(PlanningText, StepsToALoss_AreToldWithTheirRange) {
  v1::JobPlanning planning = ChosenByExpectedTime();
  EXPECT_THAT(PlanningText(planning), ::testing::AllOf(::testing::HasSubstr("STEPS TO A LOSS"),
                                                       ::testing::HasSubstr("1.3 (0.9-1.7)")));
  planning.mutable_candidates(0)->clear_steps_factor();
  planning.mutable_candidates(1)->clear_steps_factor();
  EXPECT_THAT(PlanningText(planning), ::testing::Not(::testing::HasSubstr("STEPS TO A LOSS")));
}

}  // namespace
}  // namespace penstock
