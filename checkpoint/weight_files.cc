#include "checkpoint/weight_files.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/layout.h"
#include "checkpoint/limits.h"
#include "checkpoint/strict_json.h"
#include "nlohmann/json.hpp"

namespace penstock {
namespace {

using Json = nlohmann::json;

constexpr int64_t kPieceValues = 1 << 20;  // that are converted at once

using WeightMap = std::map<std::string, std::string>;

// The file of each tensor. Errors: DataLoss.
absl::StatusOr<WeightMap> ParseIndex(absl::string_view text) {
  const absl::StatusOr<Json> json = ParseStrictJson(text, JsonLimits());
  if (!json.ok()) return absl::DataLossError(json.status().message());
  const auto map = json->is_object() ? json->find("weight_map") : json->end();
  if (map == json->end() || !map->is_object() || map->empty()) {
    return absl::DataLossError("has no weight_map with the file of each tensor");
  }
  WeightMap files;
  for (const auto& [tensor, file] : map->items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || name.front() == '.' || name.find('/') != std::string::npos) {
      return absl::DataLossError(
          absl::StrCat("weight_map has for a tensor ",
                       file.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 64),
                       "; expected the name of a file beside the index"));
    }
    files[tensor] = name;
  }
  return files;
}

absl::StatusOr<WeightMap> ReadIndex(FileReader& files, const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, files.Read(path, kSafetensorsHeaderBytesMax));
  absl::StatusOr<WeightMap> map = ParseIndex(text);
  if (!map.ok()) return Annotate(map.status(), path);
  return map;
}

std::set<std::string> ShardsOf(const WeightMap& map,
                               const std::optional<std::set<std::string>>& tensors) {
  std::set<std::string> shards;
  for (const auto& [tensor, file] : map) {
    if (!tensors.has_value() || tensors->count(tensor) > 0) shards.insert(file);
  }
  return shards;
}

void Widen(absl::Span<const uint16_t> bits, bool is_bf16, float* values) {
  for (size_t i = 0; i < bits.size(); ++i) {
    values[i] =
        is_bf16 ? std::bit_cast<float>(static_cast<uint32_t>(bits[i]) << 16) : FloatOfHalf(bits[i]);
  }
}

absl::Status ReadHalves(const RandomAccessFile& file, int64_t offset, bool is_bf16,
                        absl::Span<float> values) {
  std::vector<uint16_t> piece(std::min<size_t>(kPieceValues, values.size()));
  for (size_t done = 0; done < values.size(); done += piece.size()) {
    piece.resize(std::min(piece.size(), values.size() - done));
    PENSTOCK_RETURN_IF_ERROR(file.Read(offset + static_cast<int64_t>(done * sizeof(uint16_t)),
                                       absl::MakeSpan(reinterpret_cast<std::byte*>(piece.data()),
                                                      piece.size() * sizeof(uint16_t))));
    Widen(piece, is_bf16, values.data() + done);
  }
  return absl::OkStatus();
}

// `directory` has no weights itself.
absl::Status NoWeights(Files& files, const std::string& directory) {
  const std::vector<std::string> names = files.List(directory).value_or(std::vector<std::string>());
  std::string newest;
  for (const std::string& name : names) {
    if (ParseStepDirectoryName(name).has_value()) newest = std::max(newest, name);
  }
  if (!newest.empty()) {
    return absl::NotFoundError(
        absl::StrCat(directory, " is a directory of checkpoints; name one of them, such as ",
                     JoinPath(directory, newest)));
  }
  return absl::NotFoundError(absl::StrCat(
      directory, " has neither ", kWeightsName, " nor ", kWeightsIndexName, " nor ", kManifestName,
      "; expected weights as save_pretrained of transformers writes them (safe_serialization), or "
      "a checkpoint of Penstock"));
}

}  // namespace

float FloatOfHalf(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = bits >> 10 & 0x1F;
  const uint32_t fraction = bits & 0x3FF;
  if (exponent == 0) {  // zero and subnormal numbers: units of 2^-24
    const float value = std::ldexp(static_cast<float>(fraction), -24);
    return sign == 0 ? value : -value;
  }
  const uint32_t wide = exponent == 0x1F ? 0xFF : exponent + (127 - 15);
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

absl::StatusOr<std::set<std::string>> ShardsWith(FileReader& files, const std::string& path,
                                                 const std::set<std::string>& tensors) {
  PENSTOCK_ASSIGN_OR_RETURN(const WeightMap map, ReadIndex(files, path));
  return ShardsOf(map, tensors);
}

absl::StatusOr<std::set<std::string>> ShardsOfIndex(absl::string_view index) {
  PENSTOCK_ASSIGN_OR_RETURN(const WeightMap map, ParseIndex(index));
  return ShardsOf(map, std::nullopt);
}

absl::StatusOr<WeightFiles> WeightFiles::Open(Files& files, const std::string& directory,
                                              const std::optional<std::set<std::string>>& tensors) {
  WeightFiles weights(directory);
  const auto has = [&](const char* name) { return files.Exists(JoinPath(directory, name)); };
  if (has(kManifestName)) {
    PENSTOCK_RETURN_IF_ERROR(weights.OpenCheckpoint(files));
  } else if (has(kWeightsIndexName)) {
    PENSTOCK_RETURN_IF_ERROR(weights.OpenIndexed(files, tensors));
  } else if (has(kWeightsName)) {
    PENSTOCK_RETURN_IF_ERROR(weights.OpenShard(files, kWeightsName, {}));
  } else {
    return NoWeights(files, directory);
  }
  return weights;
}

absl::Status WeightFiles::OpenCheckpoint(Files& files) {
  is_checkpoint_ = true;
  files_ = &files;
  PENSTOCK_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(files, directory_));
  for (const CheckpointFile& file : manifest.files) {
    if (!absl::StartsWith(file.name, kWeightsPrefix)) continue;
    PENSTOCK_RETURN_IF_ERROR(OpenShard(files, file.name, {}));
    shards_.back().file.reset();  // a process cannot hold a file open for each of a thousand layers
  }
  return absl::OkStatus();
}

absl::Status WeightFiles::OpenIndexed(Files& files,
                                      const std::optional<std::set<std::string>>& tensors) {
  PENSTOCK_ASSIGN_OR_RETURN(const WeightMap listed,
                            ReadIndex(files, JoinPath(directory_, kWeightsIndexName)));
  const std::set<std::string> shards = ShardsOf(listed, tensors);
  for (const std::string& shard : shards) {
    PENSTOCK_RETURN_IF_ERROR(OpenShard(files, shard, listed));
  }
  for (const auto& [tensor, file] : listed) {
    if (shards.count(file) == 0 || Find(tensor) != nullptr) continue;
    return absl::DataLossError(absl::StrCat(JoinPath(directory_, file), ": has no tensor ", tensor,
                                            ", which ", kWeightsIndexName,
                                            " says is there; fetch the directory again"));
  }
  return absl::OkStatus();
}

absl::Status WeightFiles::OpenShard(Files& files, const std::string& name,
                                    const std::map<std::string, std::string>& listed) {
  Shard shard = {.path = JoinPath(directory_, name)};
  PENSTOCK_ASSIGN_OR_RETURN(shard.file, files.OpenRandomAccess(shard.path));
  absl::StatusOr<SafetensorsLayout> layout = ReadSafetensorsLayout(*shard.file);
  if (!layout.ok()) return Annotate(layout.status(), shard.path);
  for (TensorPlace& tensor : layout->tensors) {
    const auto entry = listed.find(tensor.type.name);
    if (!listed.empty() && (entry == listed.end() || entry->second != name)) {
      return absl::DataLossError(absl::StrCat(shard.path, ": has the tensor ", tensor.type.name,
                                              ", which ", kWeightsIndexName,
                                              " does not say; fetch the directory again"));
    }
    std::string key = tensor.type.name;
    tensors_[std::move(key)] = {.shard = shards_.size(), .tensor = std::move(tensor)};
  }
  shards_.push_back(std::move(shard));
  return absl::OkStatus();
}

std::vector<std::string> WeightFiles::names() const {
  std::vector<std::string> names;
  for (const auto& [name, place] : tensors_) names.push_back(name);
  return names;
}

const TensorType* WeightFiles::Find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second.tensor.type;
}

std::string WeightFiles::Describe(const std::string& name) const {
  const Place& place = tensors_.at(name);
  return absl::StrCat(shards_[place.shard].path, ": tensor ", name, " ", place.tensor.type.dtype,
                      " [", absl::StrJoin(place.tensor.type.shape, ", "), "]");
}

absl::Status WeightFiles::Read(const std::string& name, absl::Span<float> values) const {
  const Place& place = tensors_.at(name);
  const std::string& dtype = place.tensor.type.dtype;
  const Shard& shard = shards_[place.shard];
  std::unique_ptr<RandomAccessFile> opened;
  if (shard.file == nullptr) {
    PENSTOCK_ASSIGN_OR_RETURN(opened, files_->OpenRandomAccess(shard.path));
  }
  const RandomAccessFile& file = opened == nullptr ? *shard.file : *opened;
  if (dtype == "F32") {
    return Annotate(
        file.Read(place.tensor.offset, absl::MakeSpan(reinterpret_cast<std::byte*>(values.data()),
                                                      values.size() * sizeof(float))),
        Describe(name));
  }
  if (dtype == "BF16" || dtype == "F16") {
    return Annotate(ReadHalves(file, place.tensor.offset, dtype == "BF16", values), Describe(name));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      Describe(name), ": expected F32, BF16 or F16; save the model in one of these types"));
}

}  // namespace penstock
