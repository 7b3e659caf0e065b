#include "checkpoint/checkpoint.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/fault_points.h"
#include "base/sha256.h"
#include "base/status.h"
#include "checkpoint/layout.h"
#include "checkpoint/limits.h"
#include "checkpoint/safetensors.h"

namespace penstock {
namespace {

constexpr int32_t kKeepMin = 2;

absl::StatusOr<CheckpointFile> WriteArrays(FileWriter& files, const std::string& directory,
                                           const std::string& name, int32_t layer,
                                           const std::vector<NamedArray>& arrays) {
  const std::string header = SafetensorsHeader(arrays, {{"format", "pt"}});
  const std::vector<absl::string_view> pieces = SafetensorsPieces(header, arrays);
  PENSTOCK_RETURN_IF_ERROR(files.WriteDurably(JoinPath(directory, name), pieces));
  CheckpointFile file = {.name = name, .layer = layer};
  Sha256 digest;
  for (absl::string_view piece : pieces) {
    digest.Update(piece);
    file.size_bytes += static_cast<int64_t>(piece.size());
  }
  file.sha256 = digest.HexDigest();
  return file;
}

// The content of `file`, which is what its entry says.
absl::StatusOr<std::string> ReadVerified(FileReader& files, const std::string& directory,
                                         const CheckpointFile& file) {
  const std::string path = JoinPath(directory, file.name);
  absl::StatusOr<std::string> content = files.Read(path, file.size_bytes);
  if (absl::IsOutOfRange(content.status())) {
    return absl::DataLossError(
        absl::StrCat(path, ": is longer than the ", file.size_bytes, " bytes it was written with"));
  }
  if (!content.ok()) return content.status();
  if (static_cast<int64_t>(content->size()) != file.size_bytes) {
    return absl::DataLossError(absl::StrCat(path, ": is truncated: has ", content->size(),
                                            " bytes, expected ", file.size_bytes));
  }
  const std::string sha256 = Sha256Hex(absl::string_view(*content));
  if (sha256 != file.sha256) {
    return absl::DataLossError(
        absl::StrCat(path, ": was changed: its SHA-256 is ", sha256, ", expected ", file.sha256));
  }
  return content;
}

// Every layer has exactly its two files.
absl::Status CheckComplete(const std::vector<CheckpointFile>& files, int32_t layers) {
  std::map<std::pair<int32_t, bool>, int> count;
  for (const CheckpointFile& file : files) {
    ++count[{file.layer, absl::StartsWith(file.name, kWeightsPrefix)}];
  }
  for (int32_t layer = 0; layer < layers; ++layer) {
    for (const bool weights : {true, false}) {
      const int found = count[{layer, weights}];
      if (found == 1) continue;
      return absl::FailedPreconditionError(absl::StrCat("checkpoint: layer ", layer, " has ", found,
                                                        weights ? " weights" : " optimizer",
                                                        " files, expected 1"));
    }
  }
  if (static_cast<int64_t>(files.size()) != 2 * int64_t{layers}) {
    return absl::FailedPreconditionError(
        absl::StrCat("checkpoint: has ", files.size(), " files, expected ", 2 * int64_t{layers}));
  }
  return absl::OkStatus();
}

// Steps that have a directory under `root`, newest first.
absl::StatusOr<std::vector<int64_t>> StepsIn(Files& files, const std::string& root) {
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<std::string> names, files.List(root));
  std::vector<int64_t> steps;
  for (const std::string& name : names) {
    if (const auto step = ParseStepDirectoryName(absl::string_view(name))) steps.push_back(*step);
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

// Where a directory waits for its removal, out of the way. Swept like staging directories.
std::string GravePath(const std::string& root, int64_t step) {
  return StagingPath(root, step, "removed");
}

// Renames before removing, so that no half-removed directory has a checkpoint's name.
absl::Status RemoveCheckpoint(Files& files, const std::string& root, int64_t step) {
  const std::string grave = GravePath(root, step);
  PENSTOCK_RETURN_IF_ERROR(files.RemoveAll(grave));
  PENSTOCK_RETURN_IF_ERROR(files.RenameDurably(JoinPath(root, StepDirectoryName(step)), grave));
  PENSTOCK_FAULT_POINT_STATUS(kCheckpointInGrave);
  return files.RemoveAll(grave);
}

// The steps of the `count` checkpoints with the lowest validation losses, of equal ones the oldest.
std::set<int64_t> BestOf(Files& files, const std::string& root, const std::vector<int64_t>& steps,
                         int32_t count) {
  std::vector<std::pair<double, int64_t>> losses;
  for (size_t i = 0; count > 0 && i < steps.size(); ++i) {
    const absl::StatusOr<Manifest> manifest =
        ReadManifest(files, JoinPath(root, StepDirectoryName(steps[i])));
    if (!manifest.ok() || !manifest->validation_loss.has_value()) continue;
    losses.emplace_back(*manifest->validation_loss, steps[i]);
  }
  std::sort(losses.begin(), losses.end());
  std::set<int64_t> best;
  for (size_t i = 0; i < losses.size() && i < static_cast<size_t>(count); ++i) {
    best.insert(losses[i].second);
  }
  return best;
}

// Removes the checkpoints up to `step` that are neither among the newest `keep` nor among the best. Later ones come from
// another life of the job (it started again from an older checkpoint) and are its owner's to remove.
absl::Status Prune(Files& files, const std::string& root, int64_t step, int32_t keep,
                   int32_t keep_best) {
  PENSTOCK_FAULT_POINT_STATUS(kCheckpointBeforePrune);
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<int64_t> steps, StepsIn(files, root));
  steps.erase(std::remove_if(steps.begin(), steps.end(), [&](int64_t s) { return s > step; }),
              steps.end());
  const std::set<int64_t> best = BestOf(files, root, steps, keep_best);
  for (size_t i = std::max(keep, kKeepMin); i < steps.size(); ++i) {
    if (best.count(steps[i]) > 0) continue;
    PENSTOCK_RETURN_IF_ERROR(RemoveCheckpoint(files, root, steps[i]));
  }
  return absl::OkStatus();
}

bool IsCommitted(Files& files, const std::string& directory, const Manifest& manifest) {
  if (!files.Exists(directory)) return false;
  const absl::StatusOr<Manifest> there = VerifyCheckpoint(files, directory);
  return there.ok() && *there == manifest;
}

// Gives the staging directory the name `directory`, which another one has: damaged, or of an earlier
// life of the job. That one goes only when the new one is there, and comes back if it does not come.
absl::Status Replace(Files& files, const std::string& staging, const std::string& directory,
                     const std::string& grave) {
  PENSTOCK_RETURN_IF_ERROR(files.RemoveAll(grave));
  PENSTOCK_RETURN_IF_ERROR(files.RenameDurably(directory, grave));
  PENSTOCK_FAULT_POINT(kCheckpointBetweenNames);
  absl::Status renamed = files.RenameDurably(staging, directory);
  if (renamed.ok()) {
    files.RemoveAll(grave).IgnoreError();  // the next attempt's sweep removes what is left
  } else if (!files.Exists(directory)) {
    files.RenameDurably(grave, directory).IgnoreError();
  }
  return renamed;
}

// Tags are compared as they are in names.
bool IsOfAttempt(const StagingName& name, absl::string_view tag) {
  return StagingDirectoryName(name.step, name.tag) == StagingDirectoryName(name.step, tag);
}

// Removes the staging directories that are `dead`: as many as possible, though one may stay.
absl::Status RemoveStaging(Files& files, const std::string& root,
                           absl::FunctionRef<bool(const StagingName&)> dead) {
  const absl::StatusOr<std::vector<std::string>> names = files.List(root);
  if (absl::IsNotFound(names.status())) return absl::OkStatus();
  PENSTOCK_RETURN_IF_ERROR(names.status());
  absl::Status removed;
  for (const std::string& name : *names) {
    const std::optional<StagingName> staging = ParseStagingDirectoryName(name);
    if (staging.has_value() && dead(*staging))
      removed.Update(files.RemoveAll(JoinPath(root, name)));
  }
  return removed;
}

// Removes the parts of files. Files that the manifest names are whole, so what is left are parts that came late.
absl::Status RemoveParts(Files& files, const std::string& staging) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(staging));
  for (const std::string& name : names) {
    if (!absl::EndsWith(name, kStagedPartEnding)) continue;
    PENSTOCK_RETURN_IF_ERROR(files.RemoveAll(JoinPath(staging, name)));
  }
  return absl::OkStatus();
}

// Turns the staging directory into `directory`.
absl::Status Publish(Files& files, const std::string& staging, const Manifest& manifest,
                     const std::string& root, const std::string& directory) {
  const std::string text = SerializeManifest(manifest);
  PENSTOCK_FAULT_POINT_STATUS(kCheckpointBeforeManifest);
  PENSTOCK_RETURN_IF_ERROR(
      files.WriteDurably(JoinPath(staging, kManifestName), {absl::string_view(text)}));
  PENSTOCK_FAULT_POINT(kCheckpointAfterManifest);
  PENSTOCK_RETURN_IF_ERROR(RemoveParts(files, staging));
  PENSTOCK_RETURN_IF_ERROR(files.SyncDirectory(staging));
  PENSTOCK_FAULT_POINT_STATUS(kCheckpointBeforeReadBack);
  PENSTOCK_RETURN_IF_ERROR(VerifyCheckpoint(files, staging).status());
  PENSTOCK_FAULT_POINT_STATUS(kCheckpointBeforePublish);
  if (!files.Exists(directory)) return files.RenameDurably(staging, directory);
  return Replace(files, staging, directory, GravePath(root, manifest.step));
}

}  // namespace

std::string StagingPath(const std::string& root, int64_t step, absl::string_view tag) {
  return JoinPath(root, StagingDirectoryName(step, tag));
}

absl::StatusOr<std::vector<CheckpointFile>> WriteLayer(FileWriter& files,
                                                       const std::string& staging,
                                                       const LayerState& state) {
  PENSTOCK_RETURN_IF_ERROR(files.CreateDirectories(staging));
  PENSTOCK_ASSIGN_OR_RETURN(CheckpointFile weights,
                            WriteArrays(files, staging, WeightsFileName(state.layer, state.name),
                                        state.layer, state.weights));
  PENSTOCK_FAULT_POINT_STATUS(kSaveBetweenFiles);
  PENSTOCK_ASSIGN_OR_RETURN(CheckpointFile optimizer,
                            WriteArrays(files, staging, OptimizerFileName(state.layer, state.name),
                                        state.layer, state.optimizer_state));
  return std::vector<CheckpointFile>{std::move(weights), std::move(optimizer)};
}

absl::StatusOr<CheckpointFile> WriteAttached(FileWriter& files, const std::string& staging,
                                             const AttachedFile& attached) {
  PENSTOCK_RETURN_IF_ERROR(files.CreateDirectories(staging));
  PENSTOCK_RETURN_IF_ERROR(
      files.WriteDurably(JoinPath(staging, attached.name), {absl::string_view(attached.content)}));
  return CheckpointFile{.name = attached.name,
                        .size_bytes = static_cast<int64_t>(attached.content.size()),
                        .sha256 = Sha256Hex(absl::string_view(attached.content))};
}

absl::StatusOr<CommittedCheckpoint> CommitCheckpoint(Files& files, const CommitOptions& options,
                                                     const Manifest& manifest) {
  PENSTOCK_RETURN_IF_ERROR(CheckComplete(manifest.files, options.layers));
  CommittedCheckpoint committed = {.directory =
                                       JoinPath(options.root, StepDirectoryName(manifest.step))};
  if (!IsCommitted(files, committed.directory, manifest)) {
    const std::string staging = StagingPath(options.root, manifest.step, options.tag);
    PENSTOCK_RETURN_IF_ERROR(Publish(files, staging, manifest, options.root, committed.directory));
  }
  PENSTOCK_FAULT_POINT(kCheckpointAfterPublish);
  absl::Status cleared = DiscardStaging(files, options.root, options.tag, manifest.step);
  cleared.Update(Prune(files, options.root, manifest.step, options.keep, options.keep_best));
  PENSTOCK_FAULT_POINT(kCheckpointAfterPrune);
  if (!cleared.ok()) {
    committed.note = absl::StrCat(committed.directory,
                                  " is saved, but what is older stays: ", cleared.message());
  }
  return committed;
}

absl::StatusOr<Manifest> ReadManifest(FileReader& files, const std::string& directory) {
  const std::string path = JoinPath(directory, kManifestName);
  PENSTOCK_ASSIGN_OR_RETURN(std::string text, files.Read(path, kManifestBytesMax));
  absl::StatusOr<Manifest> manifest = ParseManifest(absl::string_view(text));
  if (!manifest.ok()) return Annotate(manifest.status(), absl::string_view(path));
  return manifest;
}

absl::StatusOr<Manifest> VerifyCheckpoint(FileReader& files, const std::string& directory) {
  PENSTOCK_ASSIGN_OR_RETURN(Manifest manifest, ReadManifest(files, directory));
  for (const std::vector<CheckpointFile>* list : {&manifest.files, &manifest.attached}) {
    for (const CheckpointFile& file : *list) {
      PENSTOCK_RETURN_IF_ERROR(ReadVerified(files, directory, file).status());
    }
  }
  return manifest;
}

absl::StatusOr<FoundCheckpoint> FindLatestCheckpoint(Files& files, const std::string& root) {
  const absl::StatusOr<std::vector<int64_t>> steps = StepsIn(files, root);
  if (!steps.ok() && !absl::IsNotFound(steps.status())) return steps.status();
  if (!steps.ok() || steps->empty()) {
    return absl::NotFoundError(absl::StrCat("there is no checkpoint in ", root));
  }
  FoundCheckpoint found;
  for (int64_t step : *steps) {
    found.directory = JoinPath(root, StepDirectoryName(step));
    absl::StatusOr<Manifest> manifest = VerifyCheckpoint(files, found.directory);
    if (manifest.ok()) {
      found.manifest = *std::move(manifest);
      return found;
    }
    if (!absl::IsDataLoss(manifest.status()) && !absl::IsNotFound(manifest.status())) {
      return manifest.status();
    }
    found.passed_over.push_back(std::string(manifest.status().message()));
  }
  return absl::DataLossError(absl::StrCat("every checkpoint in ", root,
                                          " is bad: ", absl::StrJoin(found.passed_over, "; ")));
}

absl::StatusOr<LayerState> LoadLayer(FileReader& files, const std::string& directory,
                                     const Manifest& manifest, int32_t layer, LayerFiles wanted) {
  PENSTOCK_FAULT_POINT_STATUS(kCheckpointBeforeLoad);
  LayerState state = {.layer = layer};
  bool has_weights = wanted == LayerFiles::kOptimizerState;
  bool has_optimizer = wanted == LayerFiles::kWeights;
  for (const CheckpointFile& file : manifest.files) {
    if (file.layer != layer) continue;
    const bool weights = absl::StartsWith(file.name, kWeightsPrefix);
    if (!weights && !absl::StartsWith(file.name, kOptimizerPrefix)) continue;
    if (wanted == (weights ? LayerFiles::kOptimizerState : LayerFiles::kWeights)) continue;
    PENSTOCK_ASSIGN_OR_RETURN(std::string content, ReadVerified(files, directory, file));
    absl::StatusOr<std::vector<NamedArray>> arrays = ReadSafetensors(absl::string_view(content));
    if (!arrays.ok()) {
      return Annotate(arrays.status(), absl::string_view(JoinPath(directory, file.name)));
    }
    (weights ? state.weights : state.optimizer_state) = *std::move(arrays);
    (weights ? has_weights : has_optimizer) = true;
  }
  if (!has_weights || !has_optimizer) {
    return absl::DataLossError(absl::StrCat(
        directory, ": has no ", has_weights ? "optimizer" : "weights", " file of layer ", layer));
  }
  return state;
}

const int* OwnerOf(const std::string& array, const std::map<std::string, int>& owners) {
  auto owner = owners.find(array);
  if (owner == owners.end()) owner = owners.find(array.substr(0, array.rfind('.')));
  return owner == owners.end() ? nullptr : &owner->second;
}

absl::StatusOr<LayerState> LoadWholeLayer(FileReader& files, const std::string& directory,
                                          const Manifest& manifest, const ModelGraph& model,
                                          int32_t layer, LayerFiles wanted) {
  PENSTOCK_ASSIGN_OR_RETURN(
      LayerState state, LoadLayer(files, directory, manifest, model.layers[layer].number, wanted));
  const std::map<std::string, int> elsewhere = model.OwnersElsewhere(layer);
  std::set<int> owners;
  for (const auto& [name, owner] : elsewhere) owners.insert(owner);
  for (const int owner : owners) {
    PENSTOCK_ASSIGN_OR_RETURN(const LayerState kept, LoadLayer(files, directory, manifest,
                                                               model.layers[owner].number, wanted));
    const auto add = [&](const std::vector<NamedArray>& from, std::vector<NamedArray>& to) {
      std::copy_if(from.begin(), from.end(), std::back_inserter(to), [&](const NamedArray& array) {
        const int* of_array = OwnerOf(array.name, elsewhere);
        return of_array != nullptr && *of_array == owner;
      });
    };
    add(kept.weights, state.weights);
    add(kept.optimizer_state, state.optimizer_state);
  }
  return state;
}

absl::Status DiscardStaging(Files& files, const std::string& root, absl::string_view tag,
                            int64_t step) {
  PENSTOCK_FAULT_POINT_STATUS(kCheckpointBeforeDiscard);
  return RemoveStaging(files, root, [&](const StagingName& name) {
    return name.step <= step && IsOfAttempt(name, tag);
  });
}

absl::Status SweepStaging(Files& files, const std::string& root, absl::string_view kept_tag) {
  PENSTOCK_FAULT_POINT_STATUS(kCheckpointBeforeSweep);
  PENSTOCK_RETURN_IF_ERROR(RemoveStaging(
      files, root, [&](const StagingName& name) { return !IsOfAttempt(name, kept_tag); }));
  PENSTOCK_FAULT_POINT(kCheckpointAfterSweep);
  return absl::OkStatus();
}

absl::Status SweepStagingOf(Files& files, const std::string& root, absl::string_view job_id,
                            absl::string_view kept_tag) {
  return RemoveStaging(files, root, [&](const StagingName& name) {
    return IsTagOfJob(name.tag, job_id) && !IsOfAttempt(name, kept_tag);
  });
}

}  // namespace penstock
