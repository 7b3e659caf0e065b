#include "services/metrics/stage_metrics.h"

#include "absl/strings/str_cat.h"
#include "services/metrics/metric_rows.h"

namespace penstock {
namespace {

using Stage = v1::StageReport;
using Memory = v1::StageMemory;
using Idle = v1::IdleCause;
using Overhead = v1::OverheadPart;
using Actions = v1::ActionTime;
using StageRows = std::vector<MetricRow<Stage>>;

using enum MetricKind;

// A value of each entry of a list, with its own label.
template <typename Entry, const google::protobuf::RepeatedPtrField<Entry>& (Stage::*List)() const,
          auto Label, auto Get>
void ValueOfEach(const Stage& stage, MetricSamples& samples) {
  for (const Entry& entry : (stage.*List)()) {
    samples.Add({std::invoke(Label, entry)}, std::invoke(Get, entry));
  }
}

template <auto Get>
void ByDirection(const Stage& stage, MetricSamples& samples) {
  samples.Add({"to_device"}, std::invoke(Get, stage.copies_to_device()));
  samples.Add({"to_host"}, std::invoke(Get, stage.copies_to_host()));
}

template <auto OnDevice, auto OnHost>
void ByPlace(const Stage& stage, MetricSamples& samples) {
  samples.Add({"device"}, std::invoke(OnDevice, stage.memory()));
  samples.Add({"host"}, std::invoke(OnHost, stage.memory()));
}

void AddGraphPasses(const Stage& stage, MetricSamples& samples) {
  samples.Add({"replayed"}, stage.graphs().replayed());
  samples.Add({"queued"}, stage.graphs().passes() - stage.graphs().replayed());
}

const StageRows& TimeRows() {
  static const auto& rows = *new StageRows{
      {kCounter, "penstock_stage_busy_seconds_total", "",
       "Time the stage's worker computed for it.", Value<&Stage::busy_seconds>},
      {kCounter, "penstock_stage_window_seconds_total", "",
       "Time of training; busy and idle time are shares of it.", Value<&Stage::window_seconds>},
      {kGauge, "penstock_stage_bubble_ratio", "",
       "1 - busy time / window, of the whole run: the share of time lost to waiting and overhead.",
       Value<&Stage::bubble_ratio>},
      {kGauge, "penstock_stage_recent_bubble_ratio", "",
       "The bubble of the last 16 steps, or of all if they are fewer.",
       ValueIf<&Stage::has_recent_bubble_ratio, &Stage::recent_bubble_ratio>},
      {kCounter, "penstock_stage_idle_seconds_total", "cause",
       "Time the stage's worker waited, by cause.",
       ValueOfEach<Idle, &Stage::idle_causes, &Idle::cause, &Idle::seconds>},
      {kCounter, "penstock_stage_overhead_seconds_total", "part",
       "Time of the worker's thread that is neither waiting nor work on an action of computing. "
       "Divided by penstock_stage_actions_total: the overhead of an action.",
       ValueOfEach<Overhead, &Stage::overhead, &Overhead::part, &Overhead::seconds>},
      {kCounter, "penstock_stage_actions_total", "action", "Actions of the stage, by kind.",
       ValueOfEach<Actions, &Stage::actions, &Actions::action, &Actions::count>},
      {kCounter, "penstock_stage_action_seconds_total", "action",
       "Time at work on the stage's actions, by kind: on a GPU the GPU's time of F, R, I, W and "
       "UPDATE.",
       ValueOfEach<Actions, &Stage::actions, &Actions::action, &Actions::seconds>},
      {kCounter, "penstock_stage_copies_total", "direction",
       "Copies of the stage's tensors between host and device that did not wait first.",
       ByDirection<&v1::CopyTime::count>},
      {kCounter, "penstock_stage_copy_seconds_total", "direction",
       "Time of these copies, which run beside the computation.",
       ByDirection<&v1::CopyTime::seconds>},
      {kCounter, "penstock_stage_graph_passes_total", "how",
       "Passes of the stage's layers where the device may capture them as CUDA graphs "
       "(training.cuda_graphs).",
       AddGraphPasses},
      {kGauge, "penstock_stage_attention_fallbacks", "",
       "Nodes of attention in bf16 that a GPU computes several times slower than cuDNN's "
       "attention, "
       "which has none for their shape.",
       Value<&Stage::attention_fallbacks>},
  };
  return rows;
}

const StageRows& StalenessRows() {
  static const auto& rows = *new StageRows{
      {kHistogram, "penstock_stage_staleness_updates", "",
       "Updates of the stage between the forward that read the weights and the update its gradient "
       "made.",
       Value<&Stage::staleness_counts>},
      {kGauge, "penstock_stage_staleness_max_updates", "", "The most of them so far.",
       Value<&Stage::staleness, &v1::Statistic::max>},
      {kGauge, "penstock_stage_staleness_bound_updates", "",
       "The most that the verified schedule of the method allows; none with `pipeline.order: "
       "recorded`.",
       ValueIf<&Stage::has_staleness_bound, &Stage::staleness_bound>},
      {kHistogram, "penstock_stage_version_drift_updates", "",
       "Updates of the stage between forward and backward of one microbatch.",
       Value<&Stage::version_drift_counts>},
      {kGauge, "penstock_stage_version_drift_max_updates", "", "The most of them so far.",
       Value<&Stage::version_drift, &v1::Statistic::max>},
      {kGauge, "penstock_stage_version_drift_bound_updates", "",
       "The most that the verified schedule of the method allows; none with `pipeline.order: "
       "recorded`.",
       ValueIf<&Stage::has_version_drift_bound, &Stage::version_drift_bound>},
      {kGauge, "penstock_stage_weight_versions", "", "Weight versions the stage keeps now.",
       Value<&Stage::versions_live>},
      {kGauge, "penstock_stage_peak_weight_versions", "",
       "Most weight versions the stage kept at one time.", Value<&Stage::versions_peak>},
      {kCounter, "penstock_stage_updates_total", "", "Updates of the stage's weights.",
       Value<&Stage::updates>},
  };
  return rows;
}

const StageRows& MemoryRows() {
  static const auto& rows = *new StageRows{
      {kGauge, "penstock_stage_activations", "",
       "Microbatches whose activations the stage keeps now.", Value<&Stage::activations_live>},
      {kGauge, "penstock_stage_peak_activations", "",
       "Most microbatches whose activations the stage kept at one time.",
       Value<&Stage::activations_peak>},
      {kGauge, "penstock_stage_activation_bytes", "",
       "Memory that these microbatches keep between their F and I, now.",
       Value<&Stage::memory, &Memory::activations_now>},
      {kCounter, "penstock_stage_offloaded_bytes_total", "",
       "Bytes of stashes that left the device for the host (`pipeline.offload`).",
       Value<&Stage::offloaded_bytes>},
      {kCounter, "penstock_stage_file_read_bytes_total", "",
       "Bytes of weights and optimizer's state that came from the worker's file "
       "(`pipeline.stream_weights: file`).",
       Value<&Stage::file_bytes_read>},
      {kCounter, "penstock_stage_file_written_bytes_total", "",
       "Bytes of weights and optimizer's state that went to the worker's file.",
       Value<&Stage::file_bytes_written>},
      {kGauge, "penstock_stage_weight_stash_bytes", "place",
       "Memory of weight versions beside the current one, as of the last update.",
       ByPlace<&Memory::stashed_weights_now, &Memory::host_stashed_weights_now>},
      {kGauge, "penstock_stage_weight_stash_peak_bytes", "place", "The most of it so far.",
       ByPlace<&Memory::stashed_weights, &Memory::host_stashed_weights>},
      {kGauge, "penstock_stage_memory_bytes", "",
       "Device memory that the stage's worker uses now, for all its stages.",
       Value<&Stage::memory_bytes>},
      {kGauge, "penstock_stage_memory_peak_bytes", "",
       "Most device memory that the stage's worker used at one time.",
       Value<&Stage::peak_memory_bytes>},
      {kGauge, "penstock_stage_memory_predicted_bytes", "",
       "The peak that the verified schedule predicts.", Value<&Stage::predicted_memory_bytes>},
  };
  return rows;
}

}  // namespace

std::vector<MetricGroup> StageMetricGroups() {
  const char* const labels = "job worker stage";
  return {{"Where the time of a stage goes",
           "Cuts and validation do not count. On a GPU busy time is the GPU's.",
           MetricProgram::kWorker, Describe(labels, TimeRows())},
          {"Staleness and weight versions of a stage",
           "Delays are counted in updates, exactly, for every microbatch whose update is done. "
           "Buckets are whole numbers up to 15.",
           MetricProgram::kWorker, Describe(labels, StalenessRows())},
          {"Memory of a stage", "", MetricProgram::kWorker, Describe(labels, MemoryRows())}};
}

void AddStageMetrics(const std::string& job_id, const std::string& worker, const Stage& stage,
                     MetricSet& metrics) {
  const std::vector<std::string> labels = {job_id, worker, absl::StrCat(stage.stage())};
  for (const StageRows* rows : {&TimeRows(), &StalenessRows(), &MemoryRows()}) {
    AddRows(*rows, stage, labels, metrics);
  }
}

}  // namespace penstock
