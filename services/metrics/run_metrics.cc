#include "services/metrics/run_metrics.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace penstock {
namespace {

using Kind = MetricFamily::Kind;
using Labels = std::vector<std::pair<std::string, std::string>>;

// A number of a stage report and how it is shown.
struct StageMetric {
  Kind kind;
  const char* name;
  const char* help;
  double (*value)(const v1::StageReport&);
};

const StageMetric kStageMetrics[] = {
    {Kind::kCounter, "penstock_stage_busy_seconds_total",
     "Time the stage's worker computed for it.",
     [](const v1::StageReport& s) { return s.busy_seconds(); }},
    {Kind::kCounter, "penstock_stage_window_seconds_total",
     "Time of training, cuts and validation left out; busy and idle time are shares of it.",
     [](const v1::StageReport& s) { return s.window_seconds(); }},
    {Kind::kGauge, "penstock_stage_bubble_ratio",
     "1 - busy time / window: the share of time lost to waiting and overhead.",
     [](const v1::StageReport& s) { return s.bubble_ratio(); }},
    {Kind::kGauge, "penstock_stage_staleness_updates_max",
     "Most updates of the stage between the forward that read the weights and the update its "
     "gradient made.",
     [](const v1::StageReport& s) { return s.staleness().max(); }},
    {Kind::kGauge, "penstock_stage_staleness_updates_mean",
     "Mean number of updates of the stage between the forward that read the weights and the update "
     "its gradient made.",
     [](const v1::StageReport& s) { return s.staleness().mean(); }},
    {Kind::kGauge, "penstock_stage_version_drift_updates_max",
     "Most updates of the stage between forward and backward of one microbatch.",
     [](const v1::StageReport& s) { return s.version_drift().max(); }},
    {Kind::kGauge, "penstock_stage_version_drift_updates_mean",
     "Mean number of updates of the stage between forward and backward of one microbatch.",
     [](const v1::StageReport& s) { return s.version_drift().mean(); }},
    {Kind::kGauge, "penstock_stage_weight_versions_peak",
     "Most weight versions the stage kept at one time.",
     [](const v1::StageReport& s) { return double(s.versions_peak()); }},
    {Kind::kGauge, "penstock_stage_activations_peak",
     "Most microbatches whose activations the stage kept at one time.",
     [](const v1::StageReport& s) { return double(s.activations_peak()); }},
    {Kind::kGauge, "penstock_stage_memory_bytes", "Device memory that the stage's worker uses now.",
     [](const v1::StageReport& s) { return double(s.memory_bytes()); }},
    {Kind::kGauge, "penstock_stage_memory_peak_bytes",
     "Most device memory that the stage's worker used at one time.",
     [](const v1::StageReport& s) { return double(s.peak_memory_bytes()); }},
    {Kind::kGauge, "penstock_stage_memory_predicted_bytes",
     "What the peak must be, by the verified schedule.",
     [](const v1::StageReport& s) { return double(s.predicted_memory_bytes()); }},
    {Kind::kGauge, "penstock_stage_stashed_weights_bytes",
     "Most memory that weight versions beside the current one took on the device.",
     [](const v1::StageReport& s) { return double(s.memory().stashed_weights()); }},
    {Kind::kGauge, "penstock_stage_host_stashed_weights_bytes",
     "Most memory that weight versions took which waited on the host.",
     [](const v1::StageReport& s) { return double(s.memory().host_stashed_weights()); }},
    {Kind::kCounter, "penstock_stage_updates_total", "Updates of the stage's weights.",
     [](const v1::StageReport& s) { return double(s.updates()); }},
};

Labels StageLabels(const RunSnapshot& snapshot, const v1::StageReport& stage) {
  return {{"job", snapshot.job_id},
          {"worker", snapshot.worker},
          {"stage", absl::StrCat(stage.stage())}};
}

MetricFamily StageFamily(const RunSnapshot& snapshot, const StageMetric& metric) {
  MetricFamily family = {metric.kind, metric.name, metric.help, {}};
  for (const v1::StageReport& stage : snapshot.stages) {
    family.samples.push_back({StageLabels(snapshot, stage), metric.value(stage)});
  }
  return family;
}

MetricFamily IdleFamily(const RunSnapshot& snapshot) {
  MetricFamily family = {Kind::kCounter,
                         "penstock_stage_idle_seconds_total",
                         "Time the stage's worker waited, by cause.",
                         {}};
  for (const v1::StageReport& stage : snapshot.stages) {
    for (const v1::IdleCause& idle : stage.idle_causes()) {
      Labels labels = StageLabels(snapshot, stage);
      labels.emplace_back("cause", idle.cause());
      family.samples.push_back({std::move(labels), idle.seconds()});
    }
  }
  return family;
}

// By kind of action: how often, or how long. On a GPU F, I, W and STEP are the GPU's time.
MetricFamily ActionFamily(const RunSnapshot& snapshot, const char* name, const char* help,
                          double (*value)(const v1::ActionTime&)) {
  MetricFamily family = {Kind::kCounter, name, help, {}};
  for (const v1::StageReport& stage : snapshot.stages) {
    for (const v1::ActionTime& action : stage.actions()) {
      Labels labels = StageLabels(snapshot, stage);
      labels.emplace_back("action", action.action());
      family.samples.push_back({std::move(labels), value(action)});
    }
  }
  return family;
}

MetricFamily CopyFamily(const RunSnapshot& snapshot, const char* name, const char* help,
                        double (*value)(const v1::CopyTime&)) {
  MetricFamily family = {Kind::kCounter, name, help, {}};
  for (const v1::StageReport& stage : snapshot.stages) {
    for (const auto& [direction, time] : {std::pair("to_device", &stage.copies_to_device()),
                                          std::pair("to_host", &stage.copies_to_host())}) {
      Labels labels = StageLabels(snapshot, stage);
      labels.emplace_back("direction", direction);
      family.samples.push_back({std::move(labels), value(*time)});
    }
  }
  return family;
}

MetricFamily GraphFamily(const RunSnapshot& snapshot) {
  MetricFamily family = {Kind::kCounter,
                         "penstock_stage_graph_passes_total",
                         "Passes of the stage's layers where the device may record them "
                         "(training.device_graphs): replayed, or queued call by call.",
                         {}};
  for (const v1::StageReport& stage : snapshot.stages) {
    const v1::GraphCounts& graphs = stage.graphs();
    for (const auto& [how, count] : {std::pair("replayed", graphs.replayed()),
                                     std::pair("queued", graphs.passes() - graphs.replayed())}) {
      Labels labels = StageLabels(snapshot, stage);
      labels.emplace_back("how", how);
      family.samples.push_back({std::move(labels), static_cast<double>(count)});
    }
  }
  return family;
}

MetricFamily LinkFamily(const RunSnapshot& snapshot, const char* name, const char* help,
                        int64_t LinkCount::*value) {
  MetricFamily family = {Kind::kCounter, name, help, {}};
  for (const LinkCount& link : snapshot.links) {
    family.samples.push_back({{{"job", snapshot.job_id},
                               {"worker", snapshot.worker},
                               {"peer", link.peer},
                               {"edge", link.kind},
                               {"source", absl::StrCat(link.source)},
                               {"destination", absl::StrCat(link.destination)},
                               {"direction", link.sent ? "sent" : "received"},
                               {"path", link.path}},
                              static_cast<double>(link.*value)});
  }
  return family;
}

}  // namespace

std::vector<MetricFamily> RunMetrics(const RunSnapshot& snapshot) {
  const Labels worker = {{"worker", snapshot.worker}};
  std::vector<MetricFamily> families;
  families.push_back({Kind::kGauge,
                      "penstock_worker_running",
                      "1 while the worker executes a run.",
                      {{worker, double(snapshot.running)}}});
  if (snapshot.job_id.empty()) return families;

  const Labels job = {{"job", snapshot.job_id}, {"worker", snapshot.worker}};
  families.push_back({Kind::kCounter,
                      "penstock_run_actions_total",
                      "Actions of its program that the worker has done.",
                      {{job, double(snapshot.actions_done)}}});
  for (const StageMetric& metric : kStageMetrics) families.push_back(StageFamily(snapshot, metric));
  families.push_back(IdleFamily(snapshot));
  families.push_back(ActionFamily(
      snapshot, "penstock_stage_actions_total", "Actions of the stage, by kind.",
      [](const v1::ActionTime& action) { return static_cast<double>(action.count()); }));
  families.push_back(ActionFamily(snapshot, "penstock_stage_action_seconds_total",
                                  "Time at work on the stage's actions, by kind: on a GPU the "
                                  "GPU's time of F, R, I, W and STEP.",
                                  [](const v1::ActionTime& action) { return action.seconds(); }));
  families.push_back(
      CopyFamily(snapshot, "penstock_stage_copies_total",
                 "Copies of the stage's tensors between host and device that did not wait first.",
                 [](const v1::CopyTime& time) { return static_cast<double>(time.count()); }));
  families.push_back(CopyFamily(snapshot, "penstock_stage_copy_seconds_total",
                                "Time of these copies, which run beside the computation.",
                                [](const v1::CopyTime& time) { return time.seconds(); }));
  families.push_back(GraphFamily(snapshot));
  families.push_back(LinkFamily(snapshot, "penstock_link_bytes_total",
                                "Tensor bytes that travelled over an edge.", &LinkCount::bytes));
  families.push_back(LinkFamily(snapshot, "penstock_link_messages_total",
                                "Tensors that travelled over an edge.", &LinkCount::messages));
  if (snapshot.last_step.step() == 0) return families;

  const v1::StepDone& step = snapshot.last_step;
  families.push_back({Kind::kGauge,
                      "penstock_run_step",
                      "Steps done, from the start of the job.",
                      {{job, double(step.step())}}});
  families.push_back({Kind::kCounter,
                      "penstock_run_tokens_total",
                      "Tokens trained on in this run.",
                      {{job, double(snapshot.tokens)}}});
  families.push_back({Kind::kGauge,
                      "penstock_run_loss",
                      "Mean training loss over the samples of the last step.",
                      {{job, step.loss()}}});
  families.push_back({Kind::kGauge,
                      "penstock_run_learning_rate",
                      "Learning rate of the last step.",
                      {{job, step.learning_rate()}}});
  families.push_back(
      {Kind::kGauge,
       "penstock_run_gradient_norm",
       "Norm of the last step's gradient before clipping; 0 where the method has none.",
       {{job, step.gradient_norm()}}});
  return families;
}

}  // namespace penstock
