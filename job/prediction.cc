#include "job/prediction.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/sha256.h"
#include "base/status.h"
#include "job/keys/check_fields.h"
#include "job/profile/device_times.h"
#include "job/yaml/yaml_writer.h"

namespace penstock {
namespace {

// Bounds a prediction's times: a job's message is below 1 MiB, and its record has the result too.
constexpr size_t kTimesBytesMax = 128 << 10;

absl::Status CheckCount(const std::string& key, int count, int64_t workers) {
  if (count == 0 || count == workers) return absl::OkStatus();
  return InvalidKey(key, absl::StrCat("has ", count, " numbers, but the pipeline has ", workers,
                                      " workers; one for each, or none, would do"));
}

absl::Status CheckTimes(const v1::DeviceTimes& times, const ResolvedJob& job, int64_t workers) {
  const std::string key = "prediction.times";
  if (const absl::Status valid = CheckDeviceTimes(times); !valid.ok()) {
    const bool of_no_key = absl::StartsWith(valid.message(), "has ");
    return absl::InvalidArgumentError(absl::StrCat(key, of_no_key ? ": " : ".", valid.message()));
  }
  if (times.has_model()) {
    return InvalidKey(key + ".model", "says nothing about layers; expected `layers`");
  }
  PENSTOCK_RETURN_IF_ERROR(CheckCount(key + ".speeds", times.speeds_size(), workers));
  for (const v1::LinkTimes& link : times.links()) {
    for (const int32_t worker : link.workers()) {
      if (worker < workers) continue;
      return InvalidKey(key + ".links",
                        absl::StrCat("joins worker ", worker,
                                     ", but the pipeline has workers 0 to ", workers - 1));
    }
  }
  std::vector<LayerRange> single;
  single.reserve(job.model.size());
  for (int layer = 0; layer < job.model.size(); ++layer) single.push_back({layer, 1});
  const absl::Status of_model = StageCostsOf(times, job.model, single).status();
  if (of_model.ok()) return absl::OkStatus();
  absl::string_view message = of_model.message();
  absl::ConsumePrefix(&message, "device times: ");
  return InvalidKey(key + ".layers", message);
}

}  // namespace

std::string PredictedJobSha256(const v1::JobSpec& spec) {
  v1::JobSpec counts = spec;
  counts.clear_name();
  counts.mutable_model()->clear_pretrained();  // the digests of which may be entered later
  counts.clear_data();
  counts.clear_validation();
  counts.clear_checkpoint();
  counts.clear_step_records();
  counts.clear_prediction();
  counts.clear_feedback();
  counts.clear_recovery();
  v1::TrainingSpec& training = *counts.mutable_training();
  training.clear_steps();
  training.clear_seed();
  training.clear_learning_rate();
  training.mutable_staleness()->clear_rescheduled_steps();  // its default follows from these
  ClearPeakRate(*training.mutable_optimizer());
  return Sha256Hex(WriteYamlMessage(counts, ""));
}

bool DropOtherPrediction(v1::JobSpec& spec) {
  const std::string& of = spec.prediction().job_sha256();
  if (of.empty() || of == PredictedJobSha256(spec)) return false;
  spec.clear_prediction();
  return true;
}

void SetPredictedTimes(const v1::DeviceTimes& times, v1::PredictionSpec& prediction) {
  const auto kind_of = [](v1::LinkTimes link) {
    link.clear_workers();
    return link.SerializeAsString();
  };
  std::map<std::string, int> pairs;
  for (const v1::LinkTimes& link : times.links()) pairs[kind_of(link)] += !link.workers().empty();
  const bool has_others =
      std::any_of(times.links().begin(), times.links().end(),
                  [](const v1::LinkTimes& link) { return link.workers().empty(); });
  // Pairs without an entry have links without limits.
  int64_t workers = times.speeds_size();
  for (const v1::LinkTimes& link : times.links()) {
    for (const int32_t worker : link.workers()) workers = std::max<int64_t>(workers, worker + 1);
  }
  const bool lists_all = times.links_size() == workers * (workers - 1) / 2;
  v1::DeviceTimes& kept = *prediction.mutable_times();
  kept = times;
  if (!pairs.empty() && !has_others && lists_all) {
    const auto most =
        std::max_element(pairs.begin(), pairs.end(),
                         [](const auto& one, const auto& two) { return one.second < two.second; });
    kept.clear_links();
    kept.add_links()->ParseFromString(most->first);
    for (const v1::LinkTimes& link : times.links()) {
      if (kind_of(link) != most->first) *kept.add_links() = link;
    }
  }
  if (kept.ByteSizeLong() > kTimesBytesMax) prediction.clear_times();
}

absl::Status CheckPrediction(const v1::JobSpec& spec, const ResolvedJob& job) {
  if (!spec.has_prediction()) return absl::OkStatus();
  const v1::PredictionSpec& prediction = spec.prediction();
  if (!spec.pipeline().has_stages()) {
    return InvalidKey("prediction",
                      "needs pipeline.stages, the number of its workers; add it, or leave the "
                      "prediction out");
  }
  const int64_t workers = job.WorkersOf(spec.pipeline().stages());
  PENSTOCK_RETURN_IF_ERROR(
      CheckCount("prediction.memory_bytes", prediction.memory_bytes_size(), workers));
  PENSTOCK_RETURN_IF_ERROR(
      CheckCount("prediction.sent_bytes", prediction.sent_bytes_size(), workers));
  return prediction.has_times() ? CheckTimes(prediction.times(), job, workers) : absl::OkStatus();
}

absl::Status CheckFeedback(const v1::JobSpec& spec, const ResolvedJob& job) {
  constexpr absl::string_view kReplan = "feedback.replan";
  if (spec.feedback().replan() != "auto") return absl::OkStatus();
  if (!job.method->synchronous) {
    return InvalidKey(kReplan, absl::StrCat("is auto, but with ", job.method->name,
                                            ", whose gradients are late by stage, another split "
                                            "trains to other weights; use a method that drains at "
                                            "every step, such as 1f1b or zb-h1, or never"));
  }
  if (job.order == Order::kRecorded) {
    return InvalidKey(kReplan,
                      "is auto, but with pipeline.order recorded the notes of a run are of one "
                      "split; use the static order, or never");
  }
  if (!AreAlike(job.stage_replicas)) {
    return InvalidKey(
        kReplan,
        "is auto, but with stages of unlike pipeline.replicas a layer's gradients are "
        "added up in another order on another stage, so that another split rounds "
        "otherwise; use as many replicas of each stage, or never");
  }
  if (spec.checkpoint().every_steps() == 0) {
    return InvalidKey(kReplan,
                      "is auto, but there is no checkpoint to go on from with other layers; set "
                      "checkpoint.every_steps and checkpoint.directory, or never");
  }
  return absl::OkStatus();
}

}  // namespace penstock
