#include "job/keys/check_fields.h"

#include <set>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "job/data/data_kind.h"
#include "job/keys/check_keys.h"
#include "job/keys/limits.h"

namespace penstock {
namespace {

absl::Status CheckJobName(const std::string& name) {
  bool good = name.size() <= kJobNameCharactersMax;
  for (const char c : name) {
    good = good && (absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-');
  }
  return good ? absl::OkStatus()
              : InvalidKey("name", absl::StrCat("is \"", name.substr(0, kJobNameCharactersMax),
                                                "\"; expected 1 to ", kJobNameCharactersMax,
                                                " characters of a-z, 0-9 and -"));
}

absl::Status CheckMicrobatches(const v1::TrainingSpec& training) {
  if (training.batch() % training.microbatches() == 0) return absl::OkStatus();
  return InvalidKey(
      "training.microbatches",
      absl::StrCat("is ", training.microbatches(), ", which does not divide training.batch (",
                   training.batch(), ")"));
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

absl::Status CheckStepRecords(const v1::StepRecordsSpec& records) {
  std::set<std::string> formats;
  for (const std::string& format : records.formats()) {
    if (!formats.insert(format).second) {
      return InvalidKey("step_records.formats", absl::StrCat("has ", format, " twice"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckCuts(const v1::JobSpec& spec) {
  const int64_t steps = spec.training().steps();
  const v1::CheckpointSpec& checkpoint = spec.checkpoint();
  for (const auto& [key, every] :
       {std::pair("validation.every_steps", spec.validation().every_steps()),
        std::pair("checkpoint.every_steps", checkpoint.every_steps())}) {
    if (every > 0 && steps / every > kCutsMax) {
      return InvalidKey(key, absl::StrCat("is ", every, ", which makes ", steps / every,
                                          " cuts; at most ", kCutsMax, " are allowed, so set ",
                                          steps / (kCutsMax + 1) + 1, " or more"));
    }
  }
  if (spec.validation().stop_after() > 0 && spec.validation().every_steps() == 0) {
    return InvalidKey("validation.stop_after",
                      absl::StrCat("is ", spec.validation().stop_after(),
                                   ", but nothing is validated; set validation.every_steps"));
  }
  if (checkpoint.keep_best() > 0 && spec.validation().every_steps() == 0) {
    return InvalidKey("checkpoint.keep_best",
                      absl::StrCat("is ", checkpoint.keep_best(),
                                   ", but nothing is validated, so that no checkpoint is better "
                                   "than others; set validation.every_steps"));
  }
  if (checkpoint.directory().empty() &&
      (checkpoint.every_steps() > 0 || checkpoint.resume() == "latest")) {
    return InvalidKey(
        "checkpoint.directory",
        absl::StrCat("is missing, but checkpoint.",
                     checkpoint.every_steps() > 0 ? "every_steps" : "resume", " needs it"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status InvalidKey(absl::string_view key, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(key, ": ", what));
}

namespace {

absl::Status CheckMilestones(const v1::LearningRateSpec& rate) {
  constexpr absl::string_view kKey = "training.learning_rate.milestones";
  const bool wanted = rate.decay() == "step";
  if (wanted != !rate.milestones().empty()) {
    return InvalidKey(kKey, wanted
                                ? "has none; the decay step needs one or more, for example [60, 90]"
                                : absl::StrCat("is only for the decay step, but that is ",
                                               rate.decay(), "; leave this key out"));
  }
  for (int i = 1; i < rate.milestones_size(); ++i) {
    if (rate.milestones(i - 1) < rate.milestones(i)) continue;
    return InvalidKey(kKey, absl::StrCat("has ", rate.milestones(i), " after ",
                                         rate.milestones(i - 1), "; expected ascending steps"));
  }
  return absl::OkStatus();
}

absl::Status CheckInverseSquareRoot(const v1::LearningRateSpec& rate) {
  if (rate.decay() != "inverse_square_root" || rate.warmup_steps() > 0) return absl::OkStatus();
  return InvalidKey("training.learning_rate.warmup_steps",
                    "is 0, but the decay inverse_square_root falls from the end of the warm-up, "
                    "as sqrt(warmup_steps / steps); set it, for example to 100");
}

absl::Status CheckNesterov(const v1::OptimizerSpec& optimizer) {
  if (!optimizer.sgd().nesterov() || optimizer.sgd().momentum() > 0.0) return absl::OkStatus();
  return InvalidKey("training.optimizer.sgd.nesterov",
                    "looks ahead by the momentum, which is 0; set "
                    "training.optimizer.sgd.momentum, for example to 0.9");
}

}  // namespace

absl::Status CheckFields(const v1::JobSpec& spec) {
  PENSTOCK_RETURN_IF_ERROR(CheckKeys(spec));
  PENSTOCK_RETURN_IF_ERROR(CheckJobName(spec.name()));
  PENSTOCK_RETURN_IF_ERROR(CheckPutData(spec.data()));
  PENSTOCK_RETURN_IF_ERROR(DataKindOf(spec.data()).check(spec));
  PENSTOCK_RETURN_IF_ERROR(CheckMicrobatches(spec.training()));
  PENSTOCK_RETURN_IF_ERROR(CheckMilestones(spec.training().learning_rate()));
  PENSTOCK_RETURN_IF_ERROR(CheckInverseSquareRoot(spec.training().learning_rate()));
  PENSTOCK_RETURN_IF_ERROR(CheckNesterov(spec.training().optimizer()));
  PENSTOCK_RETURN_IF_ERROR(CheckCuts(spec));
  PENSTOCK_RETURN_IF_ERROR(CheckStepRecords(spec.step_records()));
  const v1::PipelineSpec& pipeline = spec.pipeline();
  if (pipeline.schedule().size() > kScheduleBytesMax) {
    return InvalidKey("pipeline.schedule_file",
                      absl::StrCat("has ", pipeline.schedule().size(), " bytes; at most ",
                                   kScheduleBytesMax, " are possible"));
  }
  return CheckWorkerNames(pipeline);
}

}  // namespace penstock
