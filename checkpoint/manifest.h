// Manifest: what makes a directory of files a checkpoint.
//
// MANIFEST.json is written last and names every file with its size and SHA-256, so its content alone
// decides whether a checkpoint is complete: a copied or moved directory stays valid, and one without a
// valid manifest does not exist. It carries a digest of itself ("manifest_sha256": SHA-256 over its
// other keys as compact JSON in alphabetical order). Keys that a build does not know are ignored, so that an older build
// reads what a newer one wrote unless kCheckpointFormatVersion says otherwise.
//
// "model" has the form of the key `model` of a job file, with all defaults: {"gpt": {"layers": 2, ...}} or
// {"graph": {"ports": [...], "layers": [...]}}.
//
// Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "checkpoint/fingerprint.h"
#include "model/families/gpt.h"
#include "model/graph.h"

namespace penstock {

inline constexpr int64_t kCheckpointFormatVersion = 1;

// A GPT by its numbers, any other model as its graph.
using StoredModel = std::variant<GptConfig, ModelGraph>;

struct CheckpointFile {
  std::string name;  // in the checkpoint's directory
  int64_t size_bytes = 0;
  std::string sha256;
  int32_t layer = 0;
  friend bool operator==(const CheckpointFile&, const CheckpointFile&) = default;
};

struct Manifest {
  std::string job_id;
  std::string method;
  int64_t epoch = 0;  // attempt of the job that wrote it
  int64_t step = 0;   // steps done
  // The updates of every stage where all have made the same number; else those of the first layer.
  int64_t updates = 0;
  // The updates by layer, where stages have made different numbers because they had different numbers of replicas. Else
  // empty.
  std::vector<int64_t> layer_updates;
  std::vector<int64_t> extra_cuts;    // steps after which a drain added a cut, this one included
  std::vector<int32_t> stage_layers;  // of each stage of the model; empty: it is not known
  // The order in which the layers were trained (pipeline.layer_order); empty: that of the model. Files, updates and the
  // digest have the layers as the model has them, so that a checkpoint can be loaded in any order.
  std::vector<std::string> layer_order;
  // Absent where the version before wrote the manifest, or where a later one wrote a kind of model or an op that this
  // one does not know.
  std::optional<StoredModel> model;
  // The family that the job named and the weights that it started from, where Hugging Face's transformers has the model
  // (FamilyText, job/model_graph.h); else empty.
  std::string family;
  std::string schedule;  // of the method searched: its step (schedule/text.h); else empty
  Fingerprint fingerprint;
  // Each kind of device that took part since the attempt began, by what the bits of its results depend on
  // (Backend::arithmetic); empty: they are not known.
  std::vector<std::string> arithmetics;
  std::string weights_sha256;             // weights_digest.h
  std::optional<double> validation_loss;  // where the step was validated
  std::vector<CheckpointFile> files;
  std::vector<CheckpointFile>
      attached;  // beside the layers (AttachedFile); their `layer` says nothing
  int64_t UpdatesOf(int layer) const {
    return layer < static_cast<int>(layer_updates.size()) ? layer_updates[layer] : updates;
  }
  friend bool operator==(const Manifest&, const Manifest&) = default;
};

std::string SerializeManifest(const Manifest& manifest);

// Errors: DataLoss (not a manifest, or changed since it was written), Unimplemented (a later format,
// named).
absl::StatusOr<Manifest> ParseManifest(absl::string_view text);

}  // namespace penstock
