#include "services/metrics/run_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "absl/strings/str_cat.h"
#include "tests/services/metrics/flatten.h"

namespace penstock {
namespace {

std::map<std::string, double> Shown(const RunSnapshot& snapshot) {
  MetricSet metrics;
  AddWorkerMetrics(snapshot, metrics);
  AddRunMetrics(snapshot, metrics);
  return Flatten(metrics.Take());
}

RunSnapshot Running() {
  RunSnapshot snapshot = {.worker = "w0", .job_id = "j1", .running = true};
  v1::StageReport& stage = snapshot.stages.emplace_back();
  stage.set_stage(2);
  stage.set_busy_seconds(1.5);
  stage.set_idle_seconds(0.5);
  stage.set_window_seconds(2);
  stage.set_bubble_ratio(0.25);
  stage.mutable_staleness()->set_max(3);
  stage.mutable_staleness()->set_mean(2.5);
  stage.set_staleness_bound(3);
  for (const int64_t count : {1, 0, 4, 12})
    stage.mutable_staleness_counts()->add_microbatches(count);
  stage.mutable_staleness_counts()->set_sum(44);
  stage.set_versions_live(2);
  stage.set_activations_live(5);
  stage.set_recent_bubble_ratio(0.125);
  stage.mutable_memory()->set_stashed_weights_now(150);
  stage.mutable_memory()->set_activations_now(640);
  v1::OverheadPart& overhead = *stage.add_overhead();
  overhead.set_part("between");
  overhead.set_seconds(0.0625);
  stage.set_versions_peak(4);
  stage.set_updates(17);
  stage.set_memory_bytes(900);
  stage.set_peak_memory_bytes(1000);
  stage.set_predicted_memory_bytes(1010);
  stage.mutable_memory()->set_stashed_weights(300);
  stage.mutable_memory()->set_host_stashed_weights(200);
  stage.mutable_copies_to_host()->set_count(5);
  stage.mutable_copies_to_host()->set_seconds(0.125);
  stage.mutable_graphs()->set_passes(100);
  stage.mutable_graphs()->set_replayed(90);
  v1::ActionTime& backward = *stage.add_actions();
  backward.set_action("I");
  backward.set_count(12);
  backward.set_seconds(0.75);
  v1::IdleCause& idle = *stage.add_idle_causes();
  idle.set_cause("credit");
  idle.set_seconds(0.5);
  snapshot.links.push_back({.kind = "activation",
                            .source = 2,
                            .destination = 3,
                            .peer = "w1",
                            .sent = true,
                            .path = "host",
                            .bytes = 4096,
                            .messages = 2,
                            .waiting = 1,
                            .wait_seconds = 0.5,
                            .transfer_seconds = 0.25,
                            .round_trip_seconds = 0.001,
                            .redials = 5,
                            .resent = 4,
                            .duplicates = 3,
                            .damaged = 6});
  snapshot.last_step_unix_seconds = 1.7e9;
  snapshot.last_step.set_step(9);
  snapshot.last_step.set_loss(2.25);
  snapshot.tokens = 1000;
  snapshot.samples = 60;
  return snapshot;
}

TEST(RunMetrics, Stage_IsShownByJobWorkerAndStage) {
  const auto values = Shown(Running());
  const std::string labels = "{job=j1,worker=w0,stage=2}";
  EXPECT_EQ(values.at("penstock_stage_busy_seconds_total" + labels), 1.5);
  EXPECT_EQ(values.at("penstock_stage_window_seconds_total" + labels), 2);
  EXPECT_EQ(values.at("penstock_stage_bubble_ratio" + labels), 0.25);
  EXPECT_EQ(values.at("penstock_stage_recent_bubble_ratio" + labels), 0.125);
  EXPECT_EQ(values.at("penstock_stage_staleness_max_updates" + labels), 3);
  EXPECT_EQ(values.at("penstock_stage_staleness_bound_updates" + labels), 3);
  EXPECT_EQ(values.at("penstock_stage_staleness_updates" + labels), 17) << "microbatches";
  EXPECT_EQ(values.at("penstock_stage_weight_versions" + labels), 2);
  EXPECT_EQ(values.at("penstock_stage_peak_weight_versions" + labels), 4);
  EXPECT_EQ(values.at("penstock_stage_activations" + labels), 5);
  EXPECT_EQ(values.at("penstock_stage_updates_total" + labels), 17);
  EXPECT_EQ(values.at("penstock_stage_idle_seconds_total{job=j1,worker=w0,stage=2,cause=credit}"),
            0.5);
}

TEST(RunMetrics, MemoryActionsAndCopies_AreShown) {
  const auto values = Shown(Running());
  const std::string labels = "job=j1,worker=w0,stage=2";
  const auto value = [&](const std::string& name, const std::string& more = "") {
    return values.at(absl::StrCat("penstock_stage_", name, "{", labels, more, "}"));
  };
  EXPECT_EQ(value("memory_bytes"), 900);
  EXPECT_EQ(value("memory_peak_bytes"), 1000);
  EXPECT_EQ(value("memory_predicted_bytes"), 1010);
  EXPECT_EQ(value("activation_bytes"), 640);
  EXPECT_EQ(value("weight_stash_bytes", ",place=device"), 150);
  EXPECT_EQ(value("weight_stash_peak_bytes", ",place=device"), 300);
  EXPECT_EQ(value("weight_stash_peak_bytes", ",place=host"), 200);
  EXPECT_EQ(value("overhead_seconds_total", ",part=between"), 0.0625);
  EXPECT_EQ(value("actions_total", ",action=I"), 12);
  EXPECT_EQ(value("action_seconds_total", ",action=I"), 0.75);
  EXPECT_EQ(value("copies_total", ",direction=to_host"), 5);
  EXPECT_EQ(value("copy_seconds_total", ",direction=to_host"), 0.125);
  EXPECT_EQ(value("copies_total", ",direction=to_device"), 0);
  EXPECT_EQ(value("graph_passes_total", ",how=replayed"), 90);
  EXPECT_EQ(value("graph_passes_total", ",how=queued"), 10);
}

TEST(RunMetrics, LinksAndSteps_AreShown) {
  const auto values = Shown(Running());
  const std::string link =
      "{job=j1,worker=w0,peer=w1,edge=activation,source=2,destination=3,direction=sent,path=host}";
  EXPECT_EQ(values.at("penstock_link_bytes_total" + link), 4096);
  EXPECT_EQ(values.at("penstock_link_messages_total" + link), 2);
  EXPECT_EQ(values.at("penstock_link_queue_messages" + link), 1);
  EXPECT_EQ(values.at("penstock_link_wait_seconds_total" + link), 0.5);
  EXPECT_EQ(values.at("penstock_link_transfer_seconds_total" + link), 0.25);
  EXPECT_EQ(values.at("penstock_link_round_trip_seconds" + link), 0.001);
  EXPECT_EQ(values.at("penstock_link_redials_total" + link), 5);
  EXPECT_EQ(values.at("penstock_link_resent_messages_total" + link), 4);
  EXPECT_EQ(values.at("penstock_link_duplicate_messages_total" + link), 3);
  EXPECT_EQ(values.at("penstock_link_checksum_errors_total" + link), 6);
  EXPECT_EQ(values.at("penstock_run_last_step_timestamp_seconds{job=j1,worker=w0}"), 1.7e9);
  EXPECT_EQ(values.at("penstock_run_steps_total{job=j1,worker=w0}"), 9);
  EXPECT_EQ(values.at("penstock_run_loss{job=j1,worker=w0}"), 2.25);
  EXPECT_EQ(values.at("penstock_run_tokens_total{job=j1,worker=w0}"), 1000);
  EXPECT_EQ(values.at("penstock_run_samples_total{job=j1,worker=w0}"), 60);
  EXPECT_EQ(values.at("penstock_worker_running{worker=w0}"), 1);
}

TEST(RunMetrics, BeforeTheFirstRun_OnlySaysThatNothingRuns) {
  const auto values = Shown({.worker = "w0"});
  EXPECT_EQ(values,
            (std::map<std::string, double>{{"penstock_worker_running{worker=w0}", 0},
                                           {"penstock_worker_snapshot_bytes{worker=w0}", 0}}));
}

TEST(RunMetrics, WorkerWithoutTheLastStage_ShowsNoLoss) {
  RunSnapshot snapshot = Running();
  snapshot.last_step.Clear();
  EXPECT_EQ(Shown(snapshot).count("penstock_run_loss{job=j1,worker=w0}"), 0u);
}

}  // namespace
}  // namespace penstock
