#include "job/check_fields.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "job/limits.h"
#include "job/suggest.h"

namespace penstock {
namespace {

absl::Status CheckRange(absl::string_view key, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) {
    return absl::OkStatus();
  }
  return InvalidKey(key, absl::StrCat("is ", value, value == 0 ? " or missing" : "",
                                      "; expected a whole number from ", min, " to ", max));
}

// min <= value < max, or value <= max with `max_included`.
struct RealRange {
  double min = 0.0;
  bool min_included = true;
  double max = std::numeric_limits<float>::max();  // kernels compute in single precision
  bool max_included = true;
};

absl::Status CheckReal(absl::string_view key, double value, const RealRange& range) {
  // What is above 0, but 0 in single precision, is not above it for a kernel.
  const bool above =
      range.min_included ? value >= range.min : static_cast<float>(value) > range.min;
  const bool below = range.max_included ? value <= range.max : value < range.max;
  if (above && below) {
    return absl::OkStatus();
  }
  std::string expected =
      absl::StrCat("a number ", range.min_included ? "of at least " : "above ", range.min);
  if (value > range.max || range.max < std::numeric_limits<float>::max()) {
    absl::StrAppend(&expected, range.max_included ? " and at most " : " and below ", range.max);
  }
  const bool missing = value == 0.0 && !above;
  return InvalidKey(
      key, absl::StrCat("is ", value, missing ? " or missing" : "", "; expected ", expected));
}

absl::Status CheckName(absl::string_view key, const std::string& value,
                       const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (value == name) {
      return absl::OkStatus();
    }
  }
  const std::string nearest = NearestName(value, names);
  return InvalidKey(key, absl::StrCat("is \"", value, "\"; expected ", absl::StrJoin(names, " or "),
                                      nearest.empty() ? "" : "; did you mean ", nearest,
                                      nearest.empty() ? "" : "?"));
}

absl::Status CheckJobName(const std::string& name) {
  if (name.empty()) {
    return InvalidKey("name", "is missing");
  }
  bool good = name.size() <= kJobNameCharactersMax;
  for (const char c : name) {
    good = good && (absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-');
  }
  return good ? absl::OkStatus()
              : InvalidKey("name", absl::StrCat("is \"", name.substr(0, kJobNameCharactersMax),
                                                "\"; expected 1 to ", kJobNameCharactersMax,
                                                " characters of a-z, 0-9 and -"));
}

absl::Status CheckModel(const v1::ModelSpec& model) {
  if (!model.has_gpt()) {
    return InvalidKey("model", "is missing; expected model: {gpt: {layers: ..., width: ...}}");
  }
  return absl::OkStatus();  // BuildGpt knows the rest
}

absl::Status CheckData(const v1::DataSpec& data, const v1::GptSpec& gpt) {
  if (!data.has_text()) {
    return InvalidKey("data", "is missing; expected data: {text: {path: FILE}}");
  }
  const v1::TextSpec& text = data.text();
  if (text.path().empty()) {
    return InvalidKey("data.text.path", "is missing; expected the name of a text file");
  }
  PENSTOCK_RETURN_IF_ERROR(CheckName("data.text.tokenizer", text.tokenizer(), {"bytes"}));
  if (gpt.vocabulary() < kByteTokens) {
    return InvalidKey("model.gpt.vocabulary",
                      absl::StrCat("is ", gpt.vocabulary(), ", but the tokenizer \"bytes\" has ",
                                   kByteTokens, " tokens"));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckReal("data.text.validation_fraction", text.validation_fraction(),
                                     {.max = 1.0, .max_included = false}));
  bool hexadecimal = text.sha256().empty() || text.sha256().size() == 64;
  for (const char c : text.sha256()) {
    hexadecimal = hexadecimal && absl::ascii_isxdigit(c) && !absl::ascii_isupper(c);
  }
  return hexadecimal ? absl::OkStatus()
                     : InvalidKey("data.text.sha256", "expected 64 digits of 0-9 and a-f");
}

absl::Status CheckOptimizer(const v1::OptimizerSpec& optimizer) {
  constexpr RealRange kPositive{.min_included = false};
  constexpr RealRange kFraction{.max = 1.0, .max_included = false};
  if (optimizer.has_sgd()) {
    const v1::SgdSpec& sgd = optimizer.sgd();
    const std::string key = "training.optimizer.sgd.";
    PENSTOCK_RETURN_IF_ERROR(CheckReal(key + "learning_rate", sgd.learning_rate(), kPositive));
    PENSTOCK_RETURN_IF_ERROR(CheckReal(key + "momentum", sgd.momentum(), kFraction));
    return CheckReal(key + "weight_decay", sgd.weight_decay(), {});
  }
  if (optimizer.has_adamw()) {
    const v1::AdamWSpec& adamw = optimizer.adamw();
    const std::string key = "training.optimizer.adamw.";
    PENSTOCK_RETURN_IF_ERROR(CheckReal(key + "learning_rate", adamw.learning_rate(), kPositive));
    PENSTOCK_RETURN_IF_ERROR(CheckReal(key + "beta1", adamw.beta1(), kFraction));
    PENSTOCK_RETURN_IF_ERROR(CheckReal(key + "beta2", adamw.beta2(), kFraction));
    PENSTOCK_RETURN_IF_ERROR(CheckReal(key + "epsilon", adamw.epsilon(), kPositive));
    return CheckReal(key + "weight_decay", adamw.weight_decay(), {});
  }
  if (optimizer.has_nadamw()) {
    const v1::NAdamWSpec& nadamw = optimizer.nadamw();
    const std::string key = "training.optimizer.nadamw.";
    PENSTOCK_RETURN_IF_ERROR(CheckReal(key + "learning_rate", nadamw.learning_rate(), kPositive));
    PENSTOCK_RETURN_IF_ERROR(CheckReal(key + "beta1", nadamw.beta1(), kFraction));
    PENSTOCK_RETURN_IF_ERROR(CheckReal(key + "beta2", nadamw.beta2(), kFraction));
    PENSTOCK_RETURN_IF_ERROR(CheckReal(key + "epsilon", nadamw.epsilon(), kPositive));
    PENSTOCK_RETURN_IF_ERROR(CheckReal(key + "weight_decay", nadamw.weight_decay(), {}));
    return CheckReal(key + "momentum_decay", nadamw.momentum_decay(), {});
  }
  if (optimizer.has_muon()) {
    const v1::MuonSpec& muon = optimizer.muon();
    const std::string key = "training.optimizer.muon.";
    PENSTOCK_RETURN_IF_ERROR(CheckReal(key + "learning_rate", muon.learning_rate(), kPositive));
    PENSTOCK_RETURN_IF_ERROR(CheckReal(key + "momentum", muon.momentum(), kFraction));
    PENSTOCK_RETURN_IF_ERROR(CheckReal(key + "beta1", muon.beta1(), kFraction));
    PENSTOCK_RETURN_IF_ERROR(CheckReal(key + "beta2", muon.beta2(), kFraction));
    PENSTOCK_RETURN_IF_ERROR(CheckReal(key + "epsilon", muon.epsilon(), kPositive));
    return CheckReal(key + "weight_decay", muon.weight_decay(), {});
  }
  return InvalidKey("training.optimizer",
                    "is missing; expected {adamw: {learning_rate: 1.0e-3}}, "
                    "{nadamw: {learning_rate: 3.0e-4}}, {muon: {learning_rate: 1.0e-3}} or "
                    "{sgd: {learning_rate: 0.1}}");
}

absl::Status CheckStaleness(const v1::StalenessSpec& staleness) {
  const std::string key = "training.staleness.";
  PENSTOCK_RETURN_IF_ERROR(
      CheckRange(key + "rescheduled_steps", staleness.rescheduled_steps(), 0, kStepsMax));
  if (staleness.has_stage_momentum()) {
    PENSTOCK_RETURN_IF_ERROR(CheckReal(key + "stage_momentum", staleness.stage_momentum(),
                                       {.min_included = false, .max = 0.99}));
  }
  PENSTOCK_RETURN_IF_ERROR(
      CheckReal(key + "delay_compensation", staleness.delay_compensation(), {}));
  return CheckReal(key + "motion_decay", staleness.motion_decay(), {.max = kMotionDecayMax});
}

absl::Status CheckRateAndClip(const v1::TrainingSpec& training) {
  const v1::LearningRateSpec& rate = training.learning_rate();
  PENSTOCK_RETURN_IF_ERROR(CheckRange("training.learning_rate.warmup_steps", rate.warmup_steps(), 0,
                                      std::max(training.steps(), rate.decay_steps())));
  if (rate.has_decay_steps()) {
    PENSTOCK_RETURN_IF_ERROR(
        CheckRange("training.learning_rate.decay_steps", rate.decay_steps(), 1, kStepsMax));
  }
  PENSTOCK_RETURN_IF_ERROR(
      CheckName("training.learning_rate.decay", rate.decay(), {"constant", "linear", "cosine"}));
  PENSTOCK_RETURN_IF_ERROR(
      CheckReal("training.learning_rate.final_fraction", rate.final_fraction(), {.max = 1.0}));
  if (training.clip().has_global_norm()) {
    return CheckReal("training.clip.global_norm", training.clip().global_norm(),
                     {.min_included = false});
  }
  if (training.clip().has_layer_norm()) {
    return CheckReal("training.clip.layer_norm", training.clip().layer_norm(),
                     {.min_included = false});
  }
  return absl::OkStatus();
}

absl::Status CheckTraining(const v1::TrainingSpec& training) {
  PENSTOCK_RETURN_IF_ERROR(CheckRange("training.steps", training.steps(), 1, kStepsMax));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("training.batch", training.batch(), 1, kBatchMax));
  PENSTOCK_RETURN_IF_ERROR(
      CheckRange("training.microbatches", training.microbatches(), 1, training.batch()));
  if (training.batch() % training.microbatches() != 0) {
    return InvalidKey(
        "training.microbatches",
        absl::StrCat("is ", training.microbatches(), ", which does not divide training.batch (",
                     training.batch(), ")"));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckOptimizer(training.optimizer()));
  PENSTOCK_RETURN_IF_ERROR(CheckRateAndClip(training));
  PENSTOCK_RETURN_IF_ERROR(CheckStaleness(training.staleness()));
  PENSTOCK_RETURN_IF_ERROR(CheckName("training.precision", training.precision(), {"f32", "bf16"}));
  PENSTOCK_RETURN_IF_ERROR(
      CheckName("training.rounding", training.rounding(), {"nearest", "stochastic"}));
  if (training.rounding() == "stochastic" && training.precision() != "bf16") {
    return InvalidKey("training.rounding",
                      "is \"stochastic\", but training.precision \"f32\" rounds nothing; use bf16");
  }
  PENSTOCK_RETURN_IF_ERROR(CheckName("training.stash", training.stash(), {"device", "host"}));
  PENSTOCK_RETURN_IF_ERROR(
      CheckName("training.device_graphs", training.device_graphs(), {"off", "on"}));
  return CheckRange("training.threads", training.threads(), 1, kThreadsMax);
}

absl::Status CheckWorkerNames(const v1::PipelineSpec& pipeline) {
  constexpr absl::string_view kKey = "pipeline.worker_names";
  std::set<std::string> names;
  for (const std::string& name : pipeline.worker_names()) {
    if (name.empty()) return InvalidKey(kKey, "has an empty name");
    if (!names.insert(name).second) {
      return InvalidKey(kKey, absl::StrCat("names ", name,
                                           " twice; a worker has one place in the "
                                           "pipeline"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckCuts(const v1::JobSpec& spec) {
  const int64_t steps = spec.training().steps();
  const v1::ValidationSpec& validation = spec.validation();
  const v1::CheckpointSpec& checkpoint = spec.checkpoint();
  PENSTOCK_RETURN_IF_ERROR(
      CheckRange("validation.every_steps", validation.every_steps(), 0, kStepsMax));
  PENSTOCK_RETURN_IF_ERROR(
      CheckRange("validation.batches", validation.batches(), 1, kValidationBatchesMax));
  PENSTOCK_RETURN_IF_ERROR(
      CheckRange("checkpoint.every_steps", checkpoint.every_steps(), 0, kStepsMax));
  for (const auto& [key, every] : {std::pair("validation.every_steps", validation.every_steps()),
                                   std::pair("checkpoint.every_steps", checkpoint.every_steps())}) {
    if (every > 0 && steps / every > kCutsMax) {
      return InvalidKey(key, absl::StrCat("is ", every, ", which makes ", steps / every,
                                          " cuts; at most ", kCutsMax, " are allowed"));
    }
  }
  if (validation.every_steps() > 0 && spec.data().text().validation_fraction() == 0.0) {
    return InvalidKey("validation.every_steps",
                      "asks for validation, but data.text.validation_fraction is 0");
  }
  if (checkpoint.directory().empty() &&
      (checkpoint.every_steps() > 0 || checkpoint.resume() == "latest")) {
    return InvalidKey(
        "checkpoint.directory",
        absl::StrCat("is missing, but checkpoint.",
                     checkpoint.every_steps() > 0 ? "every_steps" : "resume", " needs it"));
  }
  return CheckRange("checkpoint.keep", checkpoint.keep(), 2, kCheckpointsKeptMax);
}

}  // namespace

absl::Status InvalidKey(absl::string_view key, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(key, ": ", what));
}

absl::Status CheckFields(const v1::JobSpec& spec) {
  PENSTOCK_RETURN_IF_ERROR(CheckJobName(spec.name()));
  PENSTOCK_RETURN_IF_ERROR(CheckModel(spec.model()));
  PENSTOCK_RETURN_IF_ERROR(CheckData(spec.data(), spec.model().gpt()));
  PENSTOCK_RETURN_IF_ERROR(CheckTraining(spec.training()));
  PENSTOCK_RETURN_IF_ERROR(CheckCuts(spec));
  const v1::PipelineSpec& pipeline = spec.pipeline();
  if (pipeline.schedule().size() > kScheduleBytesMax) {
    return InvalidKey("pipeline.schedule_file",
                      absl::StrCat("has ", pipeline.schedule().size(), " bytes; at most ",
                                   kScheduleBytesMax, " are possible"));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckRange("pipeline.synchronous_steps", pipeline.synchronous_steps(), 0,
                                      spec.training().steps()));
  PENSTOCK_RETURN_IF_ERROR(CheckName("pipeline.order", pipeline.order(), {"static", "recorded"}));
  if (pipeline.has_in_flight_factor()) {
    PENSTOCK_RETURN_IF_ERROR(CheckRange("pipeline.in_flight_factor", pipeline.in_flight_factor(), 1,
                                        kInFlightFactorMax));
    if (pipeline.order() != "recorded") {
      return InvalidKey(
          "pipeline.in_flight_factor",
          "is only for pipeline.order recorded; the static order says itself how many "
          "microbatches are in flight");
    }
  }
  if (pipeline.rpd().has_delta()) {
    PENSTOCK_RETURN_IF_ERROR(
        CheckRange("pipeline.rpd.delta", pipeline.rpd().delta(), 0, kDrawnDelayMax));
  }
  if (pipeline.has_stages()) {
    PENSTOCK_RETURN_IF_ERROR(CheckRange("pipeline.stages", pipeline.stages(), 1, kStagesMax));
  }
  if (pipeline.has_stages_per_worker()) {
    PENSTOCK_RETURN_IF_ERROR(
        CheckRange("pipeline.stages_per_worker", pipeline.stages_per_worker(), 1, kStagesMax));
  }
  if (pipeline.has_workers()) {
    PENSTOCK_RETURN_IF_ERROR(CheckRange("pipeline.workers", pipeline.workers(), 1, kStagesMax));
  }
  if (pipeline.replicas_size() > kStagesMax) {
    return InvalidKey("pipeline.replicas",
                      absl::StrCat("has ", pipeline.replicas_size(), " numbers; at most ",
                                   kStagesMax, ", one for each stage, are possible"));
  }
  for (const int32_t replicas : pipeline.replicas()) {
    PENSTOCK_RETURN_IF_ERROR(CheckRange("pipeline.replicas", replicas, 1, kReplicasMax));
  }
  if (pipeline.stage_layers_size() > kStagesMax) {
    return InvalidKey("pipeline.stage_layers",
                      absl::StrCat("has ", pipeline.stage_layers_size(), " numbers; at most ",
                                   kStagesMax, ", one for each stage, are possible"));
  }
  for (const int32_t layers : pipeline.stage_layers()) {
    PENSTOCK_RETURN_IF_ERROR(CheckRange("pipeline.stage_layers", layers, 1, kStageLayersMax));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckWorkerNames(pipeline));
  if (pipeline.has_local_steps()) {
    PENSTOCK_RETURN_IF_ERROR(
        CheckRange("pipeline.local_steps", pipeline.local_steps(), 1, kBatchMax));
  }
  return absl::OkStatus();
}

}  // namespace penstock
