// Manifests of checkpoints: what is read is written and read as the same, its numbers and names are within their limits,
// and the model in it is one that can be built again. The digest is put right, or a fuzzer would get no further.
#include <nlohmann/json.hpp>
#include <string>
#include <variant>

#include "base/sha256.h"
#include "checkpoint/limits.h"
#include "checkpoint/manifest.h"
#include "checkpoint/strict_json.h"
#include "job/model_graph.h"
#include "model/families/gpt.h"
#include "tests/fuzz/fuzz_target.h"

namespace penstock {
namespace {

void CheckManifest(absl::string_view text) {
  const absl::StatusOr<Manifest> manifest = ParseManifest(text);
  if (!manifest.ok()) return;
  FuzzAccepted();
  PENSTOCK_CHECK(manifest->step >= 0 && manifest->updates >= 0);
  PENSTOCK_CHECK(static_cast<int64_t>(manifest->files.size()) <= kManifestFilesMax);
  for (const CheckpointFile& file : manifest->files) {
    PENSTOCK_CHECK(file.name.find('/') == std::string::npos && file.layer >= 0);
    PENSTOCK_CHECK(file.size_bytes >= 0 && file.size_bytes <= kCheckpointFileBytesMax);
  }
  const absl::StatusOr<Manifest> again = ParseManifest(SerializeManifest(*manifest));
  PENSTOCK_CHECK(again.ok() && *again == *manifest);
  if (!manifest->model.has_value()) return;
  if (const auto* gpt = std::get_if<GptConfig>(&*manifest->model); gpt != nullptr) {
    const absl::StatusOr<ModelGraph> graph = BuildGpt(*gpt);
    PENSTOCK_CHECK(!graph.ok() || graph->size() == 2 * gpt->layers + 3);
  }
  if (const auto* graph = std::get_if<ModelGraph>(&*manifest->model); graph != nullptr) {
    PENSTOCK_CHECK(BuildGraph(ToProto(*graph)).ok());
  }
}

}  // namespace
}  // namespace penstock

PENSTOCK_FUZZ_TARGET(manifest) {
  using namespace penstock;
  const absl::string_view text = FuzzBytes(data, size).rest();
  CheckManifest(text);
  absl::StatusOr<nlohmann::json> json = ParseStrictJson(text, {.depth_max = 32});
  if (!json.ok() || !json->is_object()) return 0;
  json->erase("manifest_sha256");
  (*json)["manifest_sha256"] = Sha256Hex(absl::string_view(json->dump()));
  CheckManifest(json->dump());
  return 0;
}
