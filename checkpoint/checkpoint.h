// Checkpoints: writing the layers of a cut, committing them as one, finding and loading the best.
//
// Workers write the files of their layers into a staging directory and report them. When all have
// come, the coordinator commits: manifest last, then a rename. So at every instant a directory that is
// called step-... is complete, whatever crashes when, and the one before it is kept until the new one
// was read back.
//
// Files are per layer, not per stage: a checkpoint loads into any number of stages.
//
// Thread safety: the functions keep no state. One commit per root at a time.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/files.h"
#include "checkpoint/manifest.h"
#include "compute/stage.h"

namespace penstock {

// A checkpoint keeps this of one layer. Parameters that the last layer shares with the first are stored once,
// with the first.
struct LayerState {
  int32_t layer = 0;  // of the model
  std::string name;   // of the LayerSpec
  std::vector<NamedArray> weights;
  std::vector<NamedArray> optimizer_state;
};

// What belongs to a model beside its layers, and to each of its checkpoints: its tokenizer.
struct AttachedFile {
  std::string name;  // in the checkpoint's directory: "tokenizer.json"
  std::string content;
};

// Where the attempt `tag` stages the checkpoint of `step`; the same for all its workers.
std::string StagingPath(const std::string& root, int64_t step, absl::string_view tag);

// Writes a layer's two files into `staging` (created if need be), durably. Returns them.
// Errors: those of Files.
absl::StatusOr<std::vector<CheckpointFile>> WriteLayer(FileWriter& files,
                                                       const std::string& staging,
                                                       const LayerState& state);

// Writes such a file into `staging`, durably. Errors: those of Files.
absl::StatusOr<CheckpointFile> WriteAttached(FileWriter& files, const std::string& staging,
                                             const AttachedFile& attached);

struct CommitOptions {
  std::string root;
  std::string tag;        // of the attempt, as in StagingPath
  int32_t layers = 0;     // of the model: each must have its two files
  int32_t keep = 2;       // newest checkpoints that stay; fewer than 2 counts as 2
  int32_t keep_best = 0;  // those with the lowest validation losses, which stay, too
};
struct CommittedCheckpoint {
  std::string directory;
  std::string note;  // why older checkpoints could not be removed; empty if they were
};
// Makes a checkpoint of the staged files: writes the manifest, removes parts of files (layout.h), reads everything back,
// renames, and only then removes older checkpoints, and what the attempt staged for earlier steps. Doing it again after it
// succeeded changes nothing. REQUIRES: the attempt writes nothing of earlier steps any more.
//
// Errors: FailedPrecondition (files missing or reported twice), DataLoss (what was read back is not
// what was reported), those of Files. The checkpoints before stay as they were.
absl::StatusOr<CommittedCheckpoint> CommitCheckpoint(Files& files, const CommitOptions& options,
                                                     const Manifest& manifest);

// Returns the manifest of `directory`, which is checked; its files are not. For callers that load some layers only.
// Errors: NotFound, DataLoss, Unimplemented (a later format).
absl::StatusOr<Manifest> ReadManifest(FileReader& files, const std::string& directory);

// Does the same, and checks every file's size and SHA-256.
// Errors: NotFound (no such directory, or no manifest), DataLoss naming the bad file, Unimplemented (a
// later format), PermissionDenied.
absl::StatusOr<Manifest> VerifyCheckpoint(FileReader& files, const std::string& directory);

struct FoundCheckpoint {
  std::string directory;
  Manifest manifest;
  // Newer checkpoints that were passed over, each with the reason.
  std::vector<std::string> passed_over;
};
// The newest checkpoint under `root` that is whole. Passes over those that are damaged or lack a file,
// and no others: one that cannot be read now may be good, and going on from an older one would in the
// end remove it.
// Errors: NotFound (there is none at all), DataLoss (there are some, but every one is bad: says why),
// Unimplemented (one is of a later format), those of Files.
absl::StatusOr<FoundCheckpoint> FindLatestCheckpoint(Files& files, const std::string& root);

// What of a layer is loaded.
enum class LayerFiles : uint8_t { kBoth, kWeights, kOptimizerState };
// One layer of a verified checkpoint. The files are checked once more, before any value is used.
// Errors: DataLoss or NotFound naming the file.
absl::StatusOr<LayerState> LoadLayer(FileReader& files, const std::string& directory,
                                     const Manifest& manifest, int32_t layer,
                                     LayerFiles wanted = LayerFiles::kBoth);
// Together with the parameters, and the state for them, that it shares with a layer before it, with which they are kept.
absl::StatusOr<LayerState> LoadWholeLayer(FileReader& files, const std::string& directory,
                                          const Manifest& manifest, const ModelGraph& model,
                                          int32_t layer, LayerFiles wanted = LayerFiles::kBoth);
// Whether an array is one of the parameters, or of the optimizer's state for one: "wte.weight.<slot>"; if so, its entry.
const int* OwnerOf(const std::string& array, const std::map<std::string, int>& owners);

// Removes what the attempt `tag` staged under `root` for steps up to `step`, and nothing of another attempt. What cannot
// be removed does not keep the rest. REQUIRES: the attempt writes none of it any more.
// Errors: the first of those of Files.
absl::Status DiscardStaging(Files& files, const std::string& root, absl::string_view tag,
                            int64_t step = std::numeric_limits<int64_t>::max());

// Removes what dead attempts left under `root`, and nothing of the attempt `kept_tag`. REQUIRES: no other is writing there.
absl::Status SweepStaging(Files& files, const std::string& root, absl::string_view kept_tag = "");
// Removes what dead attempts at one job left, likewise. REQUIRES: no other attempt at this job is writing there; those at
// other jobs may.
absl::Status SweepStagingOf(Files& files, const std::string& root, absl::string_view job_id,
                            absl::string_view kept_tag = "");

}  // namespace penstock
