#include "studies/experiments/kept_runs.h"

#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/message_differencer.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "base/status.h"

namespace penstock {
namespace {

constexpr int64_t kFileBytesMax = int64_t{64} << 20;

bool IsWhole(const v1::TrainedRun& run) {
  if (run.job().validation().every_steps() > 0) {
    const int64_t trained = run.validations().empty() ? 0 : run.validations().rbegin()->step();
    return run.diverged() || trained == run.job().training().steps();
  }
  const int64_t microbatches = run.job().training().steps() * run.job().training().microbatches();
  return run.diverged() ? run.losses_size() < microbatches : run.losses_size() == microbatches;
}

// The parameters that differ, "modified: job.training.seed: 1 -> 0"; empty if none does.
std::string Difference(v1::TrainedRun kept, v1::TrainedRun wanted) {
  for (v1::TrainedRun* run : {&kept, &wanted}) {
    run->clear_losses();
    run->clear_diverged();
    run->clear_validations();
  }
  std::string difference;
  google::protobuf::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&difference);
  return differencer.Compare(kept, wanted) ? "" : difference;
}

}  // namespace

std::string KeptRuns::PathOf(const std::string& name) const {
  return JoinPath(directory_, absl::StrCat(name, ".json"));
}

absl::StatusOr<std::optional<v1::TrainedRun>> KeptRuns::Find(const std::string& name,
                                                             const v1::TrainedRun& wanted) {
  const std::string path = PathOf(name);
  if (!files_.Exists(path)) return std::nullopt;
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, files_.Read(path, kFileBytesMax));
  v1::TrainedRun kept;
  // A file that does not parse was cut off: it is made again.
  if (!google::protobuf::util::JsonStringToMessage(text, &kept).ok()) return std::nullopt;
  const std::string difference = Difference(kept, wanted);
  if (!difference.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is a run with other parameters (kept -> wanted): ",
                     absl::StrReplaceAll(absl::StripSuffix(difference, "\n"), {{"\n", "; "}}),
                     "; remove the file, or give another folder with --output"));
  }
  if (!IsWhole(kept)) return std::nullopt;
  return kept;
}

absl::Status KeptRuns::Keep(const std::string& name, const v1::TrainedRun& run) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string text;
  const auto printed = google::protobuf::util::MessageToJsonString(run, &text, options);
  if (!printed.ok()) {
    return absl::InternalError(absl::StrCat("run ", name, ": ", printed.ToString()));
  }
  const std::string path = PathOf(name);
  const std::string unfinished = absl::StrCat(path, ".part");
  PENSTOCK_RETURN_IF_ERROR(files_.WriteDurably(unfinished, {text}));
  return files_.RenameDurably(unfinished, path);
}

}  // namespace penstock
