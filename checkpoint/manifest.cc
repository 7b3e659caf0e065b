#include "checkpoint/manifest.h"

#include <algorithm>
#include <exception>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "base/status.h"
#include "checkpoint/limits.h"
#include "checkpoint/model_json.h"
#include "checkpoint/strict_json.h"
#include "nlohmann/json.hpp"

namespace penstock {
namespace {

using Json = nlohmann::json;

constexpr char kOwnDigest[] = "manifest_sha256";
constexpr char kFormatVersion[] = "format_version";

absl::Status BadManifest(const std::string& message) { return absl::DataLossError(message); }

// nlohmann::json keeps keys in alphabetical order, which makes this canonical.
std::string DigestOf(const Json& json_without_digest) {
  const std::string text = json_without_digest.dump();
  return Sha256Hex(absl::string_view(text));
}

Json FilesToJson(const std::vector<CheckpointFile>& files) {
  Json list = Json::array();
  for (const CheckpointFile& file : files) {
    list.push_back({{"name", file.name},
                    {"size_bytes", file.size_bytes},
                    {"sha256", file.sha256},
                    {"layer", file.layer}});
  }
  return list;
}

// A file's name must not lead out of the directory.
bool IsPlainName(const std::string& name) {
  return !name.empty() && name[0] != '.' && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

// `names`: of the files so far.
absl::StatusOr<std::vector<CheckpointFile>> FilesFromJson(const Json& list,
                                                          std::set<std::string>& names) {
  if (static_cast<int64_t>(list.size()) > kManifestFilesMax) {
    return BadManifest(
        absl::StrCat("lists ", list.size(), " files, more than ", kManifestFilesMax));
  }
  std::vector<CheckpointFile> files;
  for (const Json& entry : list) {
    CheckpointFile file = {.name = entry.at("name").get<std::string>(),
                           .size_bytes = WholeNumber(entry.at("size_bytes")),
                           .sha256 = entry.at("sha256").get<std::string>(),
                           .layer = SmallWholeNumber(entry.at("layer"))};
    if (!IsPlainName(file.name) || !names.insert(file.name).second) {
      return BadManifest(
          absl::StrCat("file name \"", file.name, "\" is not allowed or there twice"));
    }
    if (file.size_bytes < 0 || file.size_bytes > kCheckpointFileBytesMax || file.layer < 0) {
      return BadManifest(absl::StrCat("file ", file.name, " has size ", file.size_bytes,
                                      " and layer ", file.layer));
    }
    files.push_back(std::move(file));
  }
  return files;
}

Fingerprint FingerprintFromJson(const Json& list) {
  Fingerprint fingerprint;
  for (const Json& entry : list) {
    fingerprint.emplace_back(entry.at(0).get<std::string>(), entry.at(1).get<std::string>());
  }
  return fingerprint;
}

// One for each layer that has a file, none negative.
absl::Status CheckLayerUpdates(const Manifest& manifest) {
  int64_t layers = 0;
  for (const CheckpointFile& file : manifest.files) {
    layers = std::max(layers, int64_t{file.layer} + 1);
  }
  const std::vector<int64_t>& updates = manifest.layer_updates;
  const bool negative =
      std::any_of(updates.begin(), updates.end(), [](int64_t count) { return count < 0; });
  if (!negative && static_cast<int64_t>(updates.size()) >= layers) return absl::OkStatus();
  return BadManifest(absl::StrCat("has layer_updates of ", updates.size(), " layers",
                                  negative ? ", some negative" : "", ", and files of ", layers));
}

// Throws what the JSON library throws for a missing key or another type.
absl::StatusOr<Manifest> FromJson(const Json& json) {
  Manifest manifest = {.job_id = json.at("job_id").get<std::string>(),
                       .method = json.at("method").get<std::string>(),
                       .epoch = WholeNumber(json.at("epoch")),
                       .step = WholeNumber(json.at("step")),
                       .updates = WholeNumber(json.at("updates")),
                       .extra_cuts = WholeNumbers(json.at("extra_cuts")),
                       .fingerprint = FingerprintFromJson(json.at("fingerprint")),
                       .weights_sha256 = json.at("weights_sha256").get<std::string>()};
  std::set<std::string> names;
  PENSTOCK_ASSIGN_OR_RETURN(manifest.files, FilesFromJson(json.at("files"), names));
  if (json.contains("attached")) {
    PENSTOCK_ASSIGN_OR_RETURN(manifest.attached, FilesFromJson(json.at("attached"), names));
  }
  if (json.contains("layer_updates")) {
    manifest.layer_updates = WholeNumbers(json.at("layer_updates"));
    PENSTOCK_RETURN_IF_ERROR(CheckLayerUpdates(manifest));
  }
  if (json.contains("model")) manifest.model = ModelFromJson(json.at("model"));
  if (json.contains("family")) manifest.family = json.at("family").get<std::string>();
  if (json.contains("stage_layers")) {
    manifest.stage_layers = SmallWholeNumbers(json.at("stage_layers"));
  }
  if (json.contains("layer_order")) {
    manifest.layer_order = json.at("layer_order").get<std::vector<std::string>>();
  }
  if (json.contains("arithmetics")) {
    manifest.arithmetics = json.at("arithmetics").get<std::vector<std::string>>();
  }
  if (json.contains("validation_loss")) {
    manifest.validation_loss = json.at("validation_loss").get<double>();
  }
  if (json.contains("schedule")) manifest.schedule = json.at("schedule").get<std::string>();
  if (manifest.step < 0 || manifest.updates < 0) {
    return BadManifest(
        absl::StrCat("step ", manifest.step, " or updates ", manifest.updates, " is negative"));
  }
  return manifest;
}

// Before anything else is believed.
absl::Status CheckVersionAndDigest(Json& json) {
  if (!json.is_object()) return BadManifest("is not a JSON object");
  if (!json.contains(kFormatVersion) || !json[kFormatVersion].is_number_unsigned()) {
    return BadManifest("has no format_version");
  }
  if (json[kFormatVersion] != kCheckpointFormatVersion) {
    return absl::UnimplementedError(absl::StrCat("has format version ", json[kFormatVersion].dump(),
                                                 "; this build reads ", kCheckpointFormatVersion,
                                                 ": use a newer Penstock"));
  }
  if (!json.contains(kOwnDigest) || !json[kOwnDigest].is_string()) {
    return BadManifest("lacks its own digest");
  }
  const std::string expected = json[kOwnDigest].get<std::string>();
  json.erase(kOwnDigest);
  const std::string actual = DigestOf(json);
  if (expected != actual) {
    return BadManifest(
        absl::StrCat("was changed: its SHA-256 is ", actual, ", expected ", expected));
  }
  return absl::OkStatus();
}

}  // namespace

std::string SerializeManifest(const Manifest& manifest) {
  Json fingerprint = Json::array();
  for (const auto& [field, value] : manifest.fingerprint) {
    fingerprint.push_back(Json::array({field, value}));
  }
  Json json = {{kFormatVersion, kCheckpointFormatVersion},
               {"job_id", manifest.job_id},
               {"method", manifest.method},
               {"epoch", manifest.epoch},
               {"step", manifest.step},
               {"updates", manifest.updates},
               {"extra_cuts", manifest.extra_cuts},
               {"fingerprint", fingerprint},
               {"weights_sha256", manifest.weights_sha256},
               {"files", FilesToJson(manifest.files)}};
  if (!manifest.attached.empty()) json["attached"] = FilesToJson(manifest.attached);
  if (manifest.model.has_value()) json["model"] = ModelToJson(*manifest.model);
  if (!manifest.family.empty()) json["family"] = manifest.family;
  if (!manifest.layer_updates.empty()) json["layer_updates"] = manifest.layer_updates;
  if (!manifest.stage_layers.empty()) json["stage_layers"] = manifest.stage_layers;
  if (!manifest.layer_order.empty()) json["layer_order"] = manifest.layer_order;
  if (!manifest.arithmetics.empty()) json["arithmetics"] = manifest.arithmetics;
  if (!manifest.schedule.empty()) json["schedule"] = manifest.schedule;
  if (manifest.validation_loss.has_value()) json["validation_loss"] = *manifest.validation_loss;
  json[kOwnDigest] = DigestOf(json);
  return json.dump(2) + "\n";
}

absl::StatusOr<Manifest> ParseManifest(absl::string_view text) {
  const JsonLimits limits = {.depth_max = 12, .values_max = kManifestFilesMax * 8};
  absl::StatusOr<Json> json = ParseStrictJson(text, limits);
  if (!json.ok()) return BadManifest(std::string(json.status().message()));
  PENSTOCK_RETURN_IF_ERROR(CheckVersionAndDigest(*json));
  try {
    return FromJson(*json);
  } catch (const std::exception& error) {
    return BadManifest(absl::StrCat("is not a manifest: ", error.what()));
  }
}

}  // namespace penstock
