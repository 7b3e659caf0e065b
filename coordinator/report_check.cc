#include "coordinator/report_check.h"

#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "job/snapshot_rule.h"
#include "schedule/order_log.h"
#include "schedule/timeline.h"

namespace penstock {
namespace {

using Layers = google::protobuf::RepeatedPtrField<v1::LayerDigest>;

// A stage's report has some 3 KB: times by action and by cause, delays one by one up to 255, the edges it sends over.
constexpr int64_t kStageBytesMax = 16 << 10;
constexpr int64_t kEdgeBytesMax = 256;
// A layer's digest, and its files.
constexpr int64_t kLayerBytesMax = 2 << 10;
constexpr int64_t kFilesOfLayerMax = 4;
constexpr size_t kDigestBytesMax = 64;
// Of one step: a job's steps, of which there are at most 10^8, then add up within 64 bits.
constexpr int64_t kStepWorkMax = int64_t{1} << 36;
// Of a whole run: bytes, actions. Differences of two stay within 64 bits.
constexpr int64_t kRunCountMax = int64_t{1} << 60;

// `what`: "samples in a step".
absl::Status CheckNumber(absl::string_view what, int64_t number, int64_t max) {
  if (number >= 0 && number <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("reports ", number, " ", what, "; expected 0 to ", max));
}

absl::Status CheckStep(const v1::StepDone& done) {
  PENSTOCK_RETURN_IF_ERROR(CheckNumber("samples in a step", done.samples(), kStepWorkMax));
  PENSTOCK_RETURN_IF_ERROR(CheckNumber("tokens in a step", done.tokens(), kStepWorkMax));
  return CheckNumber("ns as the time of a step", done.monotonic_ns(), kTimelineNsMax);
}

absl::Status CheckNumbers(const v1::StageReport& stage) {
  PENSTOCK_RETURN_IF_ERROR(CheckNumber("bytes sent", stage.bytes_sent(), kRunCountMax));
  PENSTOCK_RETURN_IF_ERROR(
      CheckNumber("bytes sent for validations", stage.validation_bytes_sent(), kRunCountMax));
  PENSTOCK_RETURN_IF_ERROR(CheckNumber("bytes of memory", stage.peak_memory_bytes(), kRunCountMax));
  for (const v1::ActionTime& action : stage.actions()) {
    PENSTOCK_RETURN_IF_ERROR(CheckNumber("actions of a kind", action.count(), kRunCountMax));
  }
  return absl::OkStatus();
}

absl::Status CheckLayers(const Layers& layers, const TrainingAttempt& attempt) {
  const int64_t count = attempt.job.model.size();
  std::set<int32_t> reported;
  for (const v1::LayerDigest& layer : layers) {
    if (layer.layer() < 0 || layer.layer() >= count || !reported.insert(layer.layer()).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          "reports layer ", layer.layer(), "; the model has 0 to ", count - 1, ", each once"));
    }
    if (layer.sha256().size() > kDigestBytesMax) {
      return absl::InvalidArgumentError(absl::StrCat("reports a digest of ", layer.sha256().size(),
                                                     " bytes; expected ", kDigestBytesMax));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckCut(int64_t step, const TrainingAttempt& attempt) {
  const bool is_cut = std::binary_search(attempt.cuts.begin(), attempt.cuts.end(), step) ||
                      attempt.drain_step == step;
  return is_cut ? absl::OkStatus()
                : absl::InvalidArgumentError(absl::StrCat("reports a cut after step ", step,
                                                          ", where the run does not drain"));
}

// The order is of the range that ends with this cut.
absl::Status CheckOrder(const v1::CutReached& cut, const TrainingAttempt& attempt) {
  const auto next = std::lower_bound(attempt.cuts.begin(), attempt.cuts.end(), cut.step());
  const int64_t from = next == attempt.cuts.begin() ? attempt.start.step : *std::prev(next);
  const int64_t first = from * attempt.job.microbatches;
  if (attempt.job.order == Order::kRecorded && cut.order().first_microbatch() == first) {
    const int64_t microbatches = (cut.step() - from) * attempt.job.microbatches;
    PENSTOCK_RETURN_IF_ERROR(
        CheckNumber("microbatches in an order", cut.order().microbatches(), microbatches));
    // It may hold all stages, of which one worker has some.
    return CheckNumber("bytes of an order", static_cast<int64_t>(cut.order().blocks().size()),
                       OrderLog::BytesComplete(attempt.plan.stages_size(), microbatches));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "reports the order of microbatches from ", cut.order().first_microbatch(), " on; expected ",
      attempt.job.order == Order::kRecorded ? absl::StrCat(first, ", after the last cut")
                                            : "none, for the job records none"));
}

absl::Status CheckMetrics(const v1::ValidationDone& done) {
  const bool small =
      done.metrics_size() <= kMetricsMax &&
      std::all_of(done.metrics().begin(), done.metrics().end(), [](const v1::MetricValue& metric) {
        return metric.name().size() <= kMetricNameBytesMax;
      });
  return small ? absl::OkStatus()
               : absl::InvalidArgumentError(absl::StrCat(
                     "reports ", done.metrics_size(), " metrics; at most ", kMetricsMax,
                     " are taken, with names of ", kMetricNameBytesMax, " bytes"));
}

absl::Status CheckSaved(const v1::LayersSaved& saved, const TrainingAttempt& attempt) {
  PENSTOCK_RETURN_IF_ERROR(CheckLayers(saved.layers(), attempt));
  const int64_t files_max = kFilesOfLayerMax * attempt.job.model.size();
  if (saved.files_size() <= files_max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("reports ", saved.files_size(), " files of a checkpoint; at most ", files_max));
}

}  // namespace

absl::Status CheckStages(const StageReports& stages, const TrainingAttempt& attempt,
                         int32_t worker_index) {
  const int32_t planned = attempt.plan.stages_size();
  if (stages.size() > planned) {
    return absl::InvalidArgumentError(
        absl::StrCat("reports ", stages.size(), " stages; the run has ", planned));
  }
  const int64_t bytes_max = kStageBytesMax + kEdgeBytesMax * planned;
  std::set<int32_t> reported;
  for (const v1::StageReport& stage : stages) {
    const int32_t id = stage.stage();
    if (id < 0 || id >= planned || attempt.plan.stages(id).worker_index() != worker_index ||
        !reported.insert(id).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("reports stage ", id, "; expected its own stages, each once"));
    }
    if (const auto bytes = static_cast<int64_t>(stage.ByteSizeLong()); bytes > bytes_max) {
      return absl::InvalidArgumentError(
          absl::StrCat("reports ", bytes, " bytes of stage ", id, "; at most ", bytes_max));
    }
    PENSTOCK_RETURN_IF_ERROR(CheckNumbers(stage));
  }
  return absl::OkStatus();
}

absl::Status CheckEventSize(const v1::RunEvent& event, int64_t layers) {
  // Stages are looked at one by one; an order, and times of layers, are as long as the job makes them.
  if (event.has_cut_reached() || event.has_layers_timed()) return absl::OkStatus();
  const auto bytes =
      static_cast<int64_t>(event.ByteSizeLong()) -
      (event.has_run_done() ? static_cast<int64_t>(event.run_done().ByteSizeLong()) : 0);
  const int64_t bytes_max = kEventBytesMax + kLayerBytesMax * layers;
  if (bytes <= bytes_max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("reports an event of ", bytes, " bytes; at most ", bytes_max));
}

absl::Status CheckTrainingEvent(const v1::RunEvent& event, const TrainingAttempt& attempt,
                                int32_t worker_index) {
  switch (event.kind_case()) {
    case v1::RunEvent::kStepDone:
      return CheckStep(event.step_done());
    case v1::RunEvent::kValidationDone:
      return CheckMetrics(event.validation_done());
    case v1::RunEvent::kCutReached: {
      const v1::CutReached& cut = event.cut_reached();
      PENSTOCK_RETURN_IF_ERROR(CheckCut(cut.step(), attempt));
      PENSTOCK_RETURN_IF_ERROR(CheckStages(cut.stages(), attempt, worker_index));
      return cut.has_order() ? CheckOrder(cut, attempt) : absl::OkStatus();
    }
    case v1::RunEvent::kLayersSaved:
      PENSTOCK_RETURN_IF_ERROR(CheckCut(event.layers_saved().step(), attempt));
      return CheckSaved(event.layers_saved(), attempt);
    case v1::RunEvent::kLayersKept: {
      const v1::LayersSaved& kept = event.layers_kept().layers();
      const bool is_start = kept.step() == attempt.start.step;
      if (!is_start && !SnapshotRuleOf(attempt.spec, attempt.job).IsMultiple(kept.step())) {
        PENSTOCK_RETURN_IF_ERROR(CheckCut(kept.step(), attempt));
      }
      return CheckSaved(kept, attempt);
    }
    case v1::RunEvent::kSaveFailed:
      return CheckCut(event.save_failed().step(), attempt);
    case v1::RunEvent::kRunDone:
      if (event.run_done().stopped_early()) {
        if (attempt.job.stop_after == 0) {
          return absl::InvalidArgumentError(
              "stopped early, in a job without validation.stop_after");
        }
        PENSTOCK_RETURN_IF_ERROR(CheckCut(event.run_done().step(), attempt));
      }
      PENSTOCK_RETURN_IF_ERROR(CheckStages(event.run_done().stages(), attempt, worker_index));
      return CheckLayers(event.run_done().layers(), attempt);
    default:
      return absl::OkStatus();
  }
}

}  // namespace penstock
