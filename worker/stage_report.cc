#include "worker/stage_report.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"

namespace penstock {
namespace {

double Seconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

void AddCause(absl::string_view cause, int64_t ns, v1::StageReport& report) {
  v1::IdleCause& entry = *report.add_idle_causes();
  entry.set_cause(std::string(cause));
  entry.set_seconds(Seconds(ns));
}

void SetStatistic(const StalenessCount& count, v1::Statistic& statistic) {
  statistic.set_max(static_cast<double>(count.max));
  statistic.set_mean(count.mean());
}

void SetDelays(const DelayCounts& delays, const StalenessCount& count, v1::DelayCounts& message) {
  message.mutable_microbatches()->Assign(delays.microbatches.begin(), delays.microbatches.end());
  message.set_sum(count.sum);
}

void AddOverhead(const StageMeter& meter, v1::StageReport& report) {
  const auto add = [&report](const char* part, int64_t ns) {
    v1::OverheadPart& entry = *report.add_overhead();
    entry.set_part(part);
    entry.set_seconds(Seconds(ns));
  };
  add("send", meter.lane_ns(Lane::kSend));
  add("receive", meter.lane_ns(Lane::kReceive));
  add("collective", meter.lane_ns(Lane::kCollective));
  add("between", meter.between_ns());
}

void AddTimes(const LocalStage& local, const WorkerMeasures& worker, v1::StageReport& report) {
  const StageMeter& meter = *local.meter;
  const int64_t busy_ns = meter.lane_ns(Lane::kCompute);
  // The window was read earlier, and the executor goes on.
  const int64_t window_ns = std::max(worker.window_ns + worker.checkpoint_wait_ns, busy_ns);
  report.set_window_seconds(Seconds(window_ns));
  report.set_busy_seconds(Seconds(busy_ns));
  report.set_idle_seconds(Seconds(window_ns - busy_ns));
  if (window_ns > 0) {
    report.set_bubble_ratio(1.0 - static_cast<double>(busy_ns) / static_cast<double>(window_ns));
  }
  for (const Wait cause : {Wait::kInput, Wait::kCredit, Wait::kCollective, Wait::kData}) {
    AddCause(WaitName(cause), meter.waiting_ns(cause), report);
  }
  if (local.offloads || local.file_is_waited_for)
    AddCause(WaitName(Wait::kHost), meter.waiting_ns(Wait::kHost), report);
  AddCause("checkpoint", worker.checkpoint_wait_ns, report);
}

void AddActions(const StageMeter& meter, v1::StageReport& report) {
  for (int kind = 0; kind < kActionKinds; ++kind) {
    const DurationMeter& durations = meter.durations(static_cast<ActionKind>(kind));
    if (durations.count() == 0) continue;
    v1::ActionTime& time = *report.add_actions();
    time.set_action(std::string(ActionName(static_cast<ActionKind>(kind))));
    time.set_count(durations.count());
    time.set_seconds(Seconds(durations.total_ns()));
    time.set_median_seconds(Seconds(durations.MedianNs()));
  }
}

void AddTraffic(const LocalStage& local, const WorkerMeasures& worker, bool first_of_worker,
                v1::StageReport& report) {
  int64_t bytes = first_of_worker ? worker.collective_bytes_sent : 0;
  int64_t messages = first_of_worker ? worker.collective_messages_sent : 0;
  const auto add_path = [&report](const EdgeId& edge, const std::string& path) {
    v1::EdgePath& entry = *report.add_edges();
    entry.set_edge(edge.ToString());
    entry.set_path(path);
  };
  worker.edges.ForEachSender(worker.topology, local.id,
                             [&](const Edge& edge, const Sender& sender) {
                               bytes += sender.bytes_sent();
                               messages += sender.messages_sent();
                               add_path({edge.kind, edge.from.value, edge.to.value}, sender.path());
                             });
  if (first_of_worker) {
    for (const EdgePath& path : worker.collective_paths) add_path(path.edge, path.path);
  }
  report.set_bytes_sent(bytes);
  report.set_messages_sent(messages);
}

void AddMemory(const LocalStage& local, const WorkerMeasures& worker, v1::StageReport& report) {
  report.set_memory_bytes(worker.memory_bytes);
  report.set_peak_memory_bytes(worker.peak_memory_bytes);
  report.set_predicted_memory_bytes(worker.predicted_memory_bytes);
  v1::StageMemory& memory = *report.mutable_memory();
  memory.set_weights(local.memory.version_bytes + local.memory.frozen_bytes);
  memory.set_gradients(local.memory.gradient_bytes);
  memory.set_optimizer(local.memory.optimizer_bytes);
  memory.set_stashed_weights(local.meter->stash_bytes_peak());
  memory.set_host_stashed_weights(local.meter->host_stash_bytes_peak());
  memory.set_stashed_weights_now(local.meter->stash_bytes());
  memory.set_host_stashed_weights_now(local.meter->host_stash_bytes());
  memory.set_predicted_weights(local.memory.predicted_bytes);
  memory.set_scratch(worker.scratch_bytes);
  memory.set_activations(local.stage->activation_bytes().forward.left);
  memory.set_activations_now(local.meter->resident_live() * memory.activations());
}

// Adds the figures that the meter keeps by number of the field.
void AddFigures(const StageMeter& meter, v1::StageReport& report) {
  const google::protobuf::Descriptor& fields = *v1::StageReport::descriptor();
  for (int number = 0; number < StageMeter::kFiguresMax; ++number) {
    const int64_t figure = meter.figure(number).value();
    if (figure == 0) continue;
    const google::protobuf::FieldDescriptor* field = fields.FindFieldByNumber(number);
    PENSTOCK_CHECK(field != nullptr);
    report.GetReflection()->SetInt64(&report, field, figure);
  }
}

void AddCopies(const StageMeter& meter, v1::StageReport& report) {
  const auto fill = [](const CopyMeter& copies, v1::CopyTime& time) {
    time.set_count(copies.count.value());
    time.set_seconds(Seconds(copies.total_ns.value()));
  };
  fill(meter.copies(CopyDirection::kToDevice), *report.mutable_copies_to_device());
  fill(meter.copies(CopyDirection::kToHost), *report.mutable_copies_to_host());
}

void AddGraphs(const GraphMeter& meter, v1::StageReport& report) {
  v1::GraphCounts& graphs = *report.mutable_graphs();
  graphs.set_passes(meter.passes.value());
  graphs.set_replayed(meter.replayed.value());
  graphs.set_recorded(meter.recorded.value());
  graphs.set_kept(meter.kept.value());
}

}  // namespace

v1::StageReport MakeStageReport(const LocalStage& local, const WorkerMeasures& worker,
                                bool first_of_worker) {
  v1::StageReport report;
  report.set_stage(local.id.value);
  report.set_worker(worker.worker);
  report.set_first_layer(local.layers.first);
  report.set_layers(local.layers.count);
  AddTimes(local, worker, report);
  AddActions(*local.meter, report);
  AddTraffic(local, worker, first_of_worker, report);
  const StageCounts counts = local.meter->counts();
  SetStatistic(counts.staleness, *report.mutable_staleness());
  SetStatistic(counts.version_drift, *report.mutable_version_drift());
  const StageDelays delays = local.meter->delays();
  SetDelays(delays.staleness, counts.staleness, *report.mutable_staleness_counts());
  SetDelays(delays.version_drift, counts.version_drift, *report.mutable_version_drift_counts());
  if (worker.order == Order::kStatic) {
    report.set_staleness_bound(local.lateness.staleness);
    report.set_version_drift_bound(local.lateness.drift);
  }
  report.set_versions_live(local.meter->versions_live());
  report.set_activations_live(local.meter->activations_live());
  if (const std::optional<double> bubble = local.meter->RecentBubble()) {
    report.set_recent_bubble_ratio(*bubble);
  }
  AddOverhead(*local.meter, report);
  report.set_versions_peak(counts.versions_peak);
  report.set_predicted_weight_copies(counts.moved_copies);
  report.set_activations_peak(counts.activations_peak);
  AddFigures(*local.meter, report);
  AddMemory(local, worker, report);
  AddCopies(*local.meter, report);
  AddGraphs(local.meter->graphs(), report);
  report.set_allocations_steady(worker.allocations_steady);
  report.set_product_flops_per_second(worker.product_rate);
  return report;
}

}  // namespace penstock
