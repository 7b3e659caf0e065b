// Reports that cannot be true, and true ones that come late.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/rejected_messages.h"
#include "coordinator/coordinator.h"
#include "tests/coordinator/simulated_cluster.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A job of 2 stages that trains, and what w1 reports of it.
class HostileWorkerTest : public ::testing::Test {
 protected:
  HostileWorkerTest() {
    cluster_.RunFor(10);
    v1::JobSpec spec = SmallJob(1000, 2);
    spec.mutable_checkpoint()->set_directory("/ckpt");
    spec.mutable_checkpoint()->set_every_steps(10);
    job_ = cluster_.Submit(spec);
    cluster_.RunFor(1500);
  }

  absl::Status Report(const v1::RunEvent& event) { return ReportAll(1, {event}).status(); }
  // Returns how many of the events are taken.
  absl::StatusOr<int64_t> ReportAll(int worker, const std::vector<v1::RunEvent>& events) {
    v1::ReportRunRequest report = cluster_.ReportOf(job_, worker);
    report.set_first_sequence(cluster_.coordinator().FindRun(job_)->NextSequence(worker));
    for (const v1::RunEvent& event : events) *report.add_events() = event;
    const auto answer = cluster_.coordinator().ReportRun(report, cluster_.now());
    cluster_.PerformEffects();
    if (!answer.ok()) return answer.status();
    return answer->next_sequence() - report.first_sequence();
  }

  SimulatedCluster cluster_{{.workers = 2}};
  std::string job_;
};

TEST_F(HostileWorkerTest, StagesThatTheRunDoesNotHave_FailTheAttemptAndAreNotKept) {
  v1::RunEvent event;
  event.mutable_cut_reached()->set_step(20);
  for (int stage = 0; stage < 44'000; ++stage) {
    event.mutable_cut_reached()->add_stages()->set_stage(stage);
  }
  EXPECT_THAT(Report(event), StatusIs(absl::StatusCode::kInvalidArgument,
                                      AllOf(HasSubstr("worker w1"),
                                            HasSubstr("reports 44000 stages; the run has 2"))));
  EXPECT_EQ(cluster_.Summary(job_).state(), v1::JOB_STATE_RECOVERING);
  EXPECT_EQ(cluster_.Summary(job_).reason(),
            "worker w1 (stage 1): reports 44000 stages; the run has 2");
  EXPECT_LE(cluster_.Saved(job_).result().per_stage_size(), 2);
  EXPECT_EQ(cluster_.coordinator().rejected().count(Rejection::kMalformed), 1);
  EXPECT_THAT(cluster_.violations(), IsEmpty());
}

TEST_F(HostileWorkerTest, WhatCannotBeTrueOfTheRun_IsRefused) {
  std::vector<std::pair<v1::RunEvent, std::string>> events;
  const auto add = [&events](const std::string& said) -> v1::RunEvent& {
    return events.emplace_back(v1::RunEvent(), said).first;
  };
  v1::CutReached& others = *add("reports stage 0; expected its own").mutable_cut_reached();
  others.set_step(20);
  others.add_stages()->set_stage(0);
  v1::CutReached& twice = *add("reports stage 1; expected its own").mutable_cut_reached();
  twice.set_step(20);
  twice.add_stages()->set_stage(1);
  twice.add_stages()->set_stage(1);
  v1::CutReached& large = *add("bytes of stage 1; at most").mutable_cut_reached();
  large.set_step(20);
  large.add_stages()->set_stage(1);
  large.mutable_stages(0)->set_worker(std::string(100'000, 'x'));
  add("reports a cut after step 21, where").mutable_cut_reached()->set_step(21);
  v1::CutReached& ordered = *add("records none").mutable_cut_reached();
  ordered.set_step(20);
  ordered.mutable_order()->set_blocks("x");
  v1::LayersSaved& saved = *add("reports layer 999; the model has").mutable_layers_saved();
  saved.set_step(20);
  saved.add_layers()->set_layer(999);
  add("reports a cut after step 3").mutable_save_failed()->set_step(3);
  v1::LayersSaved& files = *add("files of a checkpoint; at most").mutable_layers_saved();
  files.set_step(20);
  for (int i = 0; i < 10'000; ++i) files.add_files();
  add("reports -1 samples in a step").mutable_step_done()->set_samples(-1);
  add("tokens in a step; expected 0 to")
      .mutable_step_done()
      ->set_tokens(std::numeric_limits<int64_t>::max());
  add("ns as the time of a step").mutable_step_done()->set_monotonic_ns(-1);
  const auto add_stage = [&add](const std::string& said) -> v1::StageReport& {
    v1::CutReached& cut = *add(said).mutable_cut_reached();
    cut.set_step(20);
    v1::StageReport& stage = *cut.add_stages();
    stage.set_stage(1);
    return stage;
  };
  add_stage("bytes sent; expected 0 to").set_bytes_sent(std::numeric_limits<int64_t>::max());
  add_stage("reports -5 bytes sent for validations").set_validation_bytes_sent(-5);
  add_stage("reports -1 bytes of memory").set_peak_memory_bytes(-1);
  add_stage("actions of a kind").add_actions()->set_count(std::numeric_limits<int64_t>::min());
  add("reports layer -1;").mutable_run_done()->add_layers()->set_layer(-1);
  add("reports a digest of 65 bytes")
      .mutable_run_done()
      ->add_layers()
      ->set_sha256(std::string(65, 'x'));
  add("metrics; at most 16")
      .mutable_validation_done()
      ->add_metrics()
      ->set_name(std::string(1000, 'x'));
  add("reports an event of").mutable_run_failed()->set_message(std::string(500'000, 'x'));
  for (const auto& [event, said] : events) {
    EXPECT_THAT(Report(event), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(said)));
  }
}

TEST_F(HostileWorkerTest, NumbersOfEventsThatCannotBe_AreRefused) {
  v1::ReportRunRequest report = cluster_.ReportOf(job_, 1);
  report.add_events();
  report.add_events();
  for (const int64_t first :
       {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()}) {
    report.set_first_sequence(first);
    EXPECT_THAT(
        cluster_.coordinator().ReportRun(report, cluster_.now()),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("reports events from number")));
  }
}

// Each is a cut, but no other worker has come so far. Reports of others may be late, so nobody is blamed, and what would take
// memory waits with the worker.
TEST_F(HostileWorkerTest, CheckpointsFarAhead_WaitUntilOthersHaveReported) {
  std::vector<v1::RunEvent> events;
  for (int64_t step = 20; step <= 1000; step += 10) {
    events.emplace_back().mutable_layers_saved()->set_step(step);
  }
  EXPECT_THAT(ReportAll(1, events), IsOkAndHolds(16)) << "also within a report";
  const std::vector<v1::RunEvent> later(events.begin() + 16, events.end());
  EXPECT_THAT(ReportAll(1, later), IsOkAndHolds(0));
  EXPECT_EQ(cluster_.Summary(job_).state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(cluster_.coordinator().rejected().count(Rejection::kMalformed), 0);
  EXPECT_THAT(ReportAll(0, {events[0], events[1], events[2]}), IsOkAndHolds(3));
  EXPECT_THAT(ReportAll(1, later), IsOkAndHolds(3));
}

TEST_F(HostileWorkerTest, CheckpointsFarAheadThatFailed_WaitUntilOthersHaveReported) {
  std::vector<v1::RunEvent> events;
  for (int64_t step = 20; step <= 1000; step += 10) {
    events.emplace_back().mutable_save_failed()->set_step(step);
  }
  EXPECT_THAT(ReportAll(1, events), IsOkAndHolds(16));
  EXPECT_EQ(cluster_.Summary(job_).state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(cluster_.coordinator().rejected().count(Rejection::kMalformed), 0);
}

// One worker has trained all its steps before the other, which hangs for a while, reports its third checkpoint.
TEST(Reports, ThatComeLate_FailNoJob) {
  SimulatedCluster cluster({.workers = 2});
  cluster.RunFor(10);
  const std::string job = cluster.Submit(OftenSavedJob(100, 2));
  cluster.RunFor(500);
  cluster.FreezeExecutor(0);
  cluster.RunFor(20'000);
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_RUNNING);
  EXPECT_LT(cluster.Summary(job).step(), 100) << "what it reports waits with it";
  cluster.ThawExecutor(0);
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED) << cluster.Summary(job).error();
  EXPECT_EQ(cluster.commits().size(), 50u);
  EXPECT_EQ(cluster.coordinator().rejected().count(Rejection::kMalformed), 0);
  EXPECT_THAT(cluster.violations(), IsEmpty());
}

TEST_F(HostileWorkerTest, LongJobIdInAHeartbeat_IsRefused) {
  v1::HeartbeatRequest request;
  request.set_name("w1");
  request.set_incarnation(101);
  request.set_job_id(std::string(1'000'000, 'x'));
  EXPECT_THAT(cluster_.coordinator().Heartbeat(request, cluster_.now()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at most 128 letters")));
  EXPECT_EQ(cluster_.coordinator().ListWorkers(cluster_.now()).workers(1).job_id(), job_);
}

}  // namespace
}  // namespace penstock
