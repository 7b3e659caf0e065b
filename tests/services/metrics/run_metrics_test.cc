#include "services/metrics/run_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace penstock {
namespace {

// "name{a=b,c=d}" -> value
std::map<std::string, double> Flatten(const std::vector<MetricFamily>& families) {
  std::map<std::string, double> values;
  for (const MetricFamily& family : families) {
    for (const MetricSample& sample : family.samples) {
      values[absl::StrCat(family.name, "{",
                          absl::StrJoin(sample.labels, ",", absl::PairFormatter("=")), "}")] =
          sample.value;
    }
  }
  return values;
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
                            .messages = 2});
  snapshot.last_step.set_step(9);
  snapshot.last_step.set_loss(2.25);
  snapshot.tokens = 1000;
  return snapshot;
}

TEST(RunMetrics, Stage_IsShownByJobWorkerAndStage) {
  const auto values = Flatten(RunMetrics(Running()));
  const std::string labels = "{job=j1,worker=w0,stage=2}";
  EXPECT_EQ(values.at("penstock_stage_busy_seconds_total" + labels), 1.5);
  EXPECT_EQ(values.at("penstock_stage_window_seconds_total" + labels), 2);
  EXPECT_EQ(values.at("penstock_stage_bubble_ratio" + labels), 0.25);
  EXPECT_EQ(values.at("penstock_stage_staleness_updates_max" + labels), 3);
  EXPECT_EQ(values.at("penstock_stage_staleness_updates_mean" + labels), 2.5);
  EXPECT_EQ(values.at("penstock_stage_weight_versions_peak" + labels), 4);
  EXPECT_EQ(values.at("penstock_stage_updates_total" + labels), 17);
  EXPECT_EQ(values.at("penstock_stage_idle_seconds_total{job=j1,worker=w0,stage=2,cause=credit}"),
            0.5);
}

TEST(RunMetrics, MemoryActionsAndCopies_AreShown) {
  const auto values = Flatten(RunMetrics(Running()));
  const std::string labels = "job=j1,worker=w0,stage=2";
  const auto value = [&](const std::string& name, const std::string& more = "") {
    return values.at(absl::StrCat("penstock_stage_", name, "{", labels, more, "}"));
  };
  EXPECT_EQ(value("memory_bytes"), 900);
  EXPECT_EQ(value("memory_peak_bytes"), 1000);
  EXPECT_EQ(value("memory_predicted_bytes"), 1010);
  EXPECT_EQ(value("stashed_weights_bytes"), 300);
  EXPECT_EQ(value("host_stashed_weights_bytes"), 200);
  EXPECT_EQ(value("actions_total", ",action=I"), 12);
  EXPECT_EQ(value("action_seconds_total", ",action=I"), 0.75);
  EXPECT_EQ(value("copies_total", ",direction=to_host"), 5);
  EXPECT_EQ(value("copy_seconds_total", ",direction=to_host"), 0.125);
  EXPECT_EQ(value("copies_total", ",direction=to_device"), 0);
  EXPECT_EQ(value("graph_passes_total", ",how=replayed"), 90);
  EXPECT_EQ(value("graph_passes_total", ",how=queued"), 10);
}

TEST(RunMetrics, LinksAndSteps_AreShown) {
  const auto values = Flatten(RunMetrics(Running()));
  const std::string link =
      "{job=j1,worker=w0,peer=w1,edge=activation,source=2,destination=3,direction=sent,path=host}";
  EXPECT_EQ(values.at("penstock_link_bytes_total" + link), 4096);
  EXPECT_EQ(values.at("penstock_link_messages_total" + link), 2);
  EXPECT_EQ(values.at("penstock_run_step{job=j1,worker=w0}"), 9);
  EXPECT_EQ(values.at("penstock_run_loss{job=j1,worker=w0}"), 2.25);
  EXPECT_EQ(values.at("penstock_run_tokens_total{job=j1,worker=w0}"), 1000);
  EXPECT_EQ(values.at("penstock_worker_running{worker=w0}"), 1);
}

TEST(RunMetrics, BeforeTheFirstRun_OnlySaysThatNothingRuns) {
  const auto values = Flatten(RunMetrics({.worker = "w0"}));
  EXPECT_EQ(values, (std::map<std::string, double>{{"penstock_worker_running{worker=w0}", 0}}));
}

TEST(RunMetrics, WorkerWithoutTheLastStage_ShowsNoLoss) {
  RunSnapshot snapshot = Running();
  snapshot.last_step.Clear();
  EXPECT_EQ(Flatten(RunMetrics(snapshot)).count("penstock_run_loss{job=j1,worker=w0}"), 0u);
}

TEST(RunMetrics, Names_FollowPrometheus) {
  std::set<std::string> names;
  for (const MetricFamily& family : RunMetrics(Running())) {
    EXPECT_TRUE(std::regex_match(family.name, std::regex("penstock_[a-z_]+"))) << family.name;
    const bool counter = family.kind == MetricFamily::Kind::kCounter;
    EXPECT_EQ(counter, family.name.ends_with("_total")) << family.name;
    EXPECT_TRUE(family.help.ends_with(".")) << family.name;
    EXPECT_TRUE(names.insert(family.name).second) << family.name;
  }
}

}  // namespace
}  // namespace penstock
