#include "services/metrics/run_metrics.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace penstock {
namespace {

using Labels = std::vector<std::string>;

// A number of a stage report and the metric that shows it.
struct StageMetric {
  const char* name;
  double (*value)(const v1::StageReport&);
};

constexpr StageMetric kStageMetrics[] = {
    {"penstock_stage_busy_seconds_total",
     [](const v1::StageReport& s) { return s.busy_seconds(); }},
    {"penstock_stage_window_seconds_total",
     [](const v1::StageReport& s) { return s.window_seconds(); }},
    {"penstock_stage_bubble_ratio", [](const v1::StageReport& s) { return s.bubble_ratio(); }},
    {"penstock_stage_staleness_max_updates",
     [](const v1::StageReport& s) { return s.staleness().max(); }},
    {"penstock_stage_version_drift_max_updates",
     [](const v1::StageReport& s) { return s.version_drift().max(); }},
    {"penstock_stage_weight_versions",
     [](const v1::StageReport& s) { return double(s.versions_live()); }},
    {"penstock_stage_peak_weight_versions",
     [](const v1::StageReport& s) { return double(s.versions_peak()); }},
    {"penstock_stage_updates_total", [](const v1::StageReport& s) { return double(s.updates()); }},
    {"penstock_stage_activations",
     [](const v1::StageReport& s) { return double(s.activations_live()); }},
    {"penstock_stage_peak_activations",
     [](const v1::StageReport& s) { return double(s.activations_peak()); }},
    {"penstock_stage_activation_bytes",
     [](const v1::StageReport& s) { return double(s.memory().activations_now()); }},
    {"penstock_stage_memory_bytes",
     [](const v1::StageReport& s) { return double(s.memory_bytes()); }},
    {"penstock_stage_memory_peak_bytes",
     [](const v1::StageReport& s) { return double(s.peak_memory_bytes()); }},
    {"penstock_stage_memory_predicted_bytes",
     [](const v1::StageReport& s) { return double(s.predicted_memory_bytes()); }},
};

// The series of one stage.
class StageSeries {
 public:
  StageSeries(const RunSnapshot& run, const v1::StageReport& stage, MetricSet& metrics)
      : labels_{run.job_id, run.worker, absl::StrCat(stage.stage())}, metrics_(metrics) {}

  void Add(const char* name, double value) { metrics_.Add(name, labels_, value); }
  void Add(const char* name, std::string last_label, double value) {
    Labels labels = labels_;
    labels.push_back(std::move(last_label));
    metrics_.Add(name, std::move(labels), value);
  }
  void Add(const char* name, const v1::DelayCounts& delays) {
    metrics_.AddHistogram(name, labels_,
                          {.counts = {delays.microbatches().begin(), delays.microbatches().end()},
                           .sum = static_cast<double>(delays.sum())});
  }

 private:
  const Labels labels_;
  MetricSet& metrics_;
};

void AddStage(const v1::StageReport& stage, StageSeries& series) {
  for (const StageMetric& metric : kStageMetrics) series.Add(metric.name, metric.value(stage));
  if (stage.has_staleness_bound()) {
    series.Add("penstock_stage_staleness_bound_updates", double(stage.staleness_bound()));
  }
  if (stage.has_version_drift_bound()) {
    series.Add("penstock_stage_version_drift_bound_updates", double(stage.version_drift_bound()));
  }
  if (stage.has_recent_bubble_ratio()) {
    series.Add("penstock_stage_recent_bubble_ratio", stage.recent_bubble_ratio());
  }
  for (const v1::IdleCause& idle : stage.idle_causes()) {
    series.Add("penstock_stage_idle_seconds_total", idle.cause(), idle.seconds());
  }
  for (const v1::OverheadPart& overhead : stage.overhead()) {
    series.Add("penstock_stage_overhead_seconds_total", overhead.part(), overhead.seconds());
  }
  for (const v1::ActionTime& action : stage.actions()) {
    series.Add("penstock_stage_actions_total", action.action(), double(action.count()));
    series.Add("penstock_stage_action_seconds_total", action.action(), action.seconds());
  }
  for (const auto& [direction, time] : {std::pair("to_device", &stage.copies_to_device()),
                                        std::pair("to_host", &stage.copies_to_host())}) {
    series.Add("penstock_stage_copies_total", direction, double(time->count()));
    series.Add("penstock_stage_copy_seconds_total", direction, time->seconds());
  }
  const v1::GraphCounts& graphs = stage.graphs();
  series.Add("penstock_stage_graph_passes_total", "replayed", double(graphs.replayed()));
  series.Add("penstock_stage_graph_passes_total", "queued",
             double(graphs.passes() - graphs.replayed()));
  series.Add("penstock_stage_staleness_updates", stage.staleness_counts());
  series.Add("penstock_stage_version_drift_updates", stage.version_drift_counts());
  const v1::StageMemory& memory = stage.memory();
  series.Add("penstock_stage_weight_stash_bytes", "device", double(memory.stashed_weights_now()));
  series.Add("penstock_stage_weight_stash_bytes", "host",
             double(memory.host_stashed_weights_now()));
  series.Add("penstock_stage_weight_stash_peak_bytes", "device", double(memory.stashed_weights()));
  series.Add("penstock_stage_weight_stash_peak_bytes", "host",
             double(memory.host_stashed_weights()));
}

void AddLink(const RunSnapshot& run, const LinkCount& link, MetricSet& metrics) {
  const Labels labels = {run.job_id,
                         run.worker,
                         link.peer,
                         link.kind,
                         absl::StrCat(link.source),
                         absl::StrCat(link.destination),
                         link.sent ? "sent" : "received",
                         link.path};
  metrics.Add("penstock_link_bytes_total", labels, double(link.bytes));
  metrics.Add("penstock_link_messages_total", labels, double(link.messages));
  metrics.Add("penstock_link_queue_messages", labels, double(link.waiting));
  metrics.Add("penstock_link_wait_seconds_total", labels, link.wait_seconds);
  metrics.Add("penstock_link_transfer_seconds_total", labels, link.transfer_seconds);
  if (link.round_trip_seconds > 0) {
    metrics.Add("penstock_link_round_trip_seconds", labels, link.round_trip_seconds);
  }
}

// Of the worker with the last stage.
void AddLastStep(const RunSnapshot& run, MetricSet& metrics) {
  const Labels labels = {run.job_id, run.worker};
  const v1::StepDone& step = run.last_step;
  metrics.Add("penstock_run_steps_total", labels, double(step.step()));
  metrics.Add("penstock_run_tokens_total", labels, double(run.tokens));
  metrics.Add("penstock_run_loss", labels, step.loss());
  metrics.Add("penstock_run_learning_rate", labels, step.learning_rate());
  metrics.Add("penstock_run_gradient_norm", labels, step.gradient_norm());
  metrics.Add("penstock_run_last_step_timestamp_seconds", labels, run.last_step_unix_seconds);
}

}  // namespace

void AddRunMetrics(const RunSnapshot& snapshot, MetricSet& metrics) {
  if (snapshot.job_id.empty()) return;
  metrics.Add("penstock_run_actions_total", {snapshot.job_id, snapshot.worker},
              double(snapshot.actions_done));
  for (const v1::StageReport& stage : snapshot.stages) {
    StageSeries series(snapshot, stage, metrics);
    AddStage(stage, series);
  }
  for (const LinkCount& link : snapshot.links) AddLink(snapshot, link, metrics);
  if (snapshot.last_step.step() > 0) AddLastStep(snapshot, metrics);
}

void AddWorkerMetrics(const RunSnapshot& snapshot, MetricSet& metrics) {
  metrics.Add("penstock_worker_running", {snapshot.worker}, double(snapshot.running));
}

}  // namespace penstock
