// Loss curves of earlier jobs, as their records tell them.
#include "coordinator/learned_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "absl/strings/str_cat.h"
#include "job/defaults.h"
#include "job/open_job.h"
#include "tests/job/jobs.h"

namespace penstock {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

v1::JobSpec JobWithMethod(const std::string& method) {
  v1::JobSpec spec = SmallJob(100, 2);
  spec.mutable_model()->mutable_gpt()->set_tied_head(false);
  spec.mutable_pipeline()->set_method(method);
  FillDefaults(spec);
  return spec;
}

// Of a job that has trained `steps` steps.
v1::GetJobResponse RecordWithLosses(const std::string& job_id, const v1::JobSpec& spec,
                                    int64_t steps) {
  v1::GetJobResponse record;
  record.mutable_summary()->set_job_id(job_id);
  *record.mutable_spec() = spec;
  for (int32_t stage = 0; stage < 2; ++stage) {
    v1::StageAssignment& assigned = *record.mutable_plan()->add_stages();
    assigned.set_stage(stage);
    assigned.set_first_layer(stage * 4);
    assigned.set_layers(4 - stage);
  }
  for (int64_t step = 1; step <= steps; ++step) {
    v1::LossPoint& point = *record.mutable_result()->add_losses();
    point.set_step(step);
    point.set_loss(1.0 / static_cast<double>(step));
  }
  return record;
}

TEST(SetupOf, Method_SplitNameAndSeed_DoNotCount) {
  const std::string setup = SetupOf(JobWithMethod("1f1b"));
  EXPECT_EQ(SetupOf(JobWithMethod("paci")), setup);
  EXPECT_EQ(SetupOf(JobWithMethod("pipedream")), setup);
  v1::JobSpec other_stages = JobWithMethod("1f1b");
  other_stages.mutable_pipeline()->set_stages(3);
  EXPECT_EQ(SetupOf(other_stages), setup);
  v1::JobSpec other = JobWithMethod("1f1b");
  other.set_name("other");
  other.mutable_training()->set_seed(7);
  other.mutable_training()->set_microbatches(2);
  other.mutable_checkpoint()->set_directory("/ck");
  EXPECT_EQ(SetupOf(other), setup);
  v1::JobSpec open = JobWithMethod("1f1b");
  open.clear_pipeline();
  open.mutable_pipeline()->set_method("auto");
  open.mutable_training()->clear_staleness();
  open.mutable_planning()->set_race_seconds(5);
  EXPECT_EQ(SetupOf(open), setup);
}

TEST(SetupOf, WhatChangesTheLosses_Counts) {
  const v1::JobSpec job = JobWithMethod("1f1b");
  std::set<std::string> setups = {SetupOf(job)};
  const auto with = [&](const std::function<void(v1::JobSpec&)>& change) {
    v1::JobSpec spec = job;
    change(spec);
    setups.insert(SetupOf(spec));
  };
  with([](v1::JobSpec& spec) { spec.mutable_training()->set_batch(16); });
  with([](v1::JobSpec& spec) { spec.mutable_training()->set_steps(99); });
  with([](v1::JobSpec& spec) { spec.mutable_model()->mutable_gpt()->set_width(16); });
  with([](v1::JobSpec& spec) { spec.mutable_data()->mutable_text()->set_path("b.txt"); });
  with([](v1::JobSpec& spec) {
    spec.mutable_training()->mutable_optimizer()->mutable_adamw()->set_learning_rate(0.02);
  });
  with([](v1::JobSpec& spec) {
    spec.mutable_training()->mutable_staleness()->set_delay_compensation(0.1);
  });
  EXPECT_THAT(setups, SizeIs(7));
}

TEST(LearnedSteps, JobThatEnded_TellsItsCurve) {
  LearnedSteps learned;
  learned.Learn(RecordWithLosses("small-1", JobWithMethod("paci"), 100));
  const std::vector<ObservedRun> runs = learned.Runs();
  ASSERT_THAT(runs, SizeIs(1));
  EXPECT_EQ(runs[0].setup, SetupOf(JobWithMethod("1f1b")));
  EXPECT_EQ(runs[0].steps, 100);
  EXPECT_EQ(runs[0].pattern.method, "paci");
  EXPECT_GT(runs[0].pattern.delay, 0);
  EXPECT_EQ(runs[0].curve.steps(), 100);
  // What it tells later takes the place of this.
  learned.Learn(RecordWithLosses("small-1", JobWithMethod("paci"), 50));
  ASSERT_THAT(learned.Runs(), SizeIs(1));
  EXPECT_EQ(learned.Runs()[0].curve.steps(), 50);
}

TEST(LearnedSteps, CurvesThatDoNotBeginAtTheFirstStep_TellNothing) {
  LearnedSteps learned;
  v1::GetJobResponse resumed = RecordWithLosses("small-1", JobWithMethod("paci"), 100);
  resumed.mutable_result()->mutable_losses()->DeleteSubrange(0, 40);
  learned.Learn(resumed);
  learned.Learn(RecordWithLosses("small-2", JobWithMethod("paci"), 0));
  v1::GetJobResponse profile = RecordWithLosses("small-3", JobWithMethod("paci"), 100);
  profile.mutable_profile_spec();
  learned.Learn(profile);
  EXPECT_THAT(learned.Runs(), IsEmpty());
}

// A coordinator that was killed takes the plan out of the record of a job that waits again, and the job may end so.
TEST(LearnedSteps, RecordWithoutAPlan_TellsNothing) {
  LearnedSteps learned;
  v1::GetJobResponse unplanned = RecordWithLosses("small-1", JobWithMethod("paci"), 100);
  unplanned.clear_plan();
  learned.Learn(unplanned);
  EXPECT_THAT(learned.Runs(), IsEmpty());
}

TEST(LearnedSteps, ThinnedOutCurves_KeepTheirSteps) {
  v1::GetJobResponse record = RecordWithLosses("small-1", JobWithMethod("paci"), 0);
  for (int64_t step = 1; step <= 97; step += 4) {
    v1::LossPoint& point = *record.mutable_result()->add_losses();
    point.set_step(step);
    point.set_loss(1.0 / static_cast<double>(step));
  }
  v1::LossPoint& last = *record.mutable_result()->add_losses();  // off the others' grid
  last.set_step(100);
  LearnedSteps learned;
  learned.Learn(record);
  ASSERT_THAT(learned.Runs(), SizeIs(1));
  EXPECT_EQ(learned.Runs()[0].curve.steps(), 97);
}

TEST(LearnedSteps, Memory_IsBounded) {
  LearnedSteps learned;
  for (int i = 0; i < 100; ++i) {
    v1::JobSpec spec = JobWithMethod("paci");
    spec.mutable_training()->set_batch(8 * (i + 1));
    learned.Learn(RecordWithLosses(absl::StrCat("setup-", i), spec, 20));
  }
  EXPECT_THAT(learned.Runs(), SizeIs(LearnedSteps::kSetupsMax));
  for (int i = 0; i < 400; ++i) {
    learned.Learn(RecordWithLosses(absl::StrCat("run-", i), JobWithMethod("paci"), 20));
  }
  EXPECT_THAT(learned.Runs(), SizeIs(LearnedSteps::kRunsMax));
  for (const ObservedRun& run : learned.Runs())
    EXPECT_EQ(run.setup, SetupOf(JobWithMethod("1f1b")));
}

}  // namespace
}  // namespace penstock
