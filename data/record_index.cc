#include "data/record_index.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "checkpoint/limits.h"
#include "checkpoint/strict_json.h"
#include "nlohmann/json.hpp"

namespace penstock {
namespace {

using Json = nlohmann::json;

constexpr char kFormat[] = "penstock-records";

absl::Status BadIndex(absl::string_view key, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(key, ": ", what));
}

// The value of `key`, or null.
const Json& Member(const Json& object, const char* key) {
  static const Json kNull;
  const auto found = object.find(key);
  return found == object.end() ? kNull : *found;
}

absl::StatusOr<int64_t> NumberOf(const Json& value, const std::string& key, int64_t max) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() == 0 ||
      value.get<uint64_t>() > static_cast<uint64_t>(max)) {
    return BadIndex(key,
                    absl::StrCat("is ", value.dump(), "; expected a whole number from 1 to ", max));
  }
  return static_cast<int64_t>(value.get<uint64_t>());
}

absl::StatusOr<TensorType> TensorOf(const std::string& name, const Json& json) {
  const std::string key = absl::StrCat("tensors.", name);
  if (!json.is_object()) return BadIndex(key, "expected {\"dtype\": ..., \"shape\": [...]}");
  TensorType tensor = {.name = name};
  const Json& dtype = Member(json, "dtype");
  if (dtype.is_string()) tensor.dtype = dtype.get<std::string>();
  int64_t bytes = SafetensorsElementBytes(tensor.dtype);
  if (bytes == 0) {
    return BadIndex(key + ".dtype", absl::StrCat("is ", dtype.dump(),
                                                 "; expected a type of safetensors such as U8, "
                                                 "I32 or F32"));
  }
  const Json& shape = Member(json, "shape");
  if (!shape.is_array() || static_cast<int64_t>(shape.size()) >= kSafetensorsDimensionsMax) {
    return BadIndex(key + ".shape", absl::StrCat("expected a list of at most ",
                                                 kSafetensorsDimensionsMax - 1, " numbers"));
  }
  for (const Json& dimension : shape) {
    PENSTOCK_ASSIGN_OR_RETURN(const int64_t size,
                              NumberOf(dimension, key + ".shape", kRecordBytesMax));
    tensor.shape.push_back(size);
    if (__builtin_mul_overflow(bytes, size, &bytes) || bytes > kRecordBytesMax) {
      return BadIndex(key + ".shape",
                      absl::StrCat("makes a record of more than ", kRecordBytesMax, " bytes"));
    }
  }
  return tensor;
}

// A file of the directory itself: names that lead elsewhere are refused.
bool IsPlainName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.size() <= 255 &&
         name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
}

absl::StatusOr<RecordShard> ShardOf(const Json& json, const std::string& key) {
  if (!json.is_object()) {
    return BadIndex(key, "expected {\"file\": ..., \"records\": ..., \"sha256\": ...}");
  }
  RecordShard shard;
  const Json& file = Member(json, "file");
  if (file.is_string()) shard.file = file.get<std::string>();
  if (!IsPlainName(shard.file)) {
    return BadIndex(key + ".file", absl::StrCat("is ", file.dump(),
                                                "; expected the name of a file in this directory"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(shard.records,
                            NumberOf(Member(json, "records"), key + ".records", kRecordsMax));
  const Json& sha256 = Member(json, "sha256");
  if (sha256.is_string()) shard.sha256 = sha256.get<std::string>();
  const bool is_digest = shard.sha256.size() == 64 &&
                         std::all_of(shard.sha256.begin(), shard.sha256.end(), [](char c) {
                           return absl::ascii_isxdigit(c) && !absl::ascii_isupper(c);
                         });
  if (!is_digest) {
    return BadIndex(key + ".sha256",
                    "expected the file's SHA-256 as 64 digits of 0-9 and a-f; sha256sum prints it");
  }
  return shard;
}

}  // namespace

int64_t RecordIndex::records() const {
  int64_t records = 0;
  for (const RecordShard& shard : shards) records += shard.records;
  return records;
}

int64_t RecordBytes(const TensorType& tensor) {
  int64_t bytes = SafetensorsElementBytes(tensor.dtype);
  for (const int64_t size : tensor.shape) bytes *= size;
  return bytes;
}

absl::StatusOr<RecordIndex> ParseRecordIndex(absl::string_view text) {
  PENSTOCK_ASSIGN_OR_RETURN(const Json json,
                            ParseStrictJson(text, {.depth_max = 6, .values_max = 1 << 17}));
  if (!json.is_object() || Member(json, "format") != kFormat) {
    return BadIndex("format",
                    absl::StrCat("expected an object with \"format\": \"", kFormat, "\""));
  }
  const Json& tensors = Member(json, "tensors");
  if (!tensors.is_object() || tensors.empty() ||
      static_cast<int64_t>(tensors.size()) > kRecordTensorsMax) {
    return BadIndex("tensors", absl::StrCat("expected 1 to ", kRecordTensorsMax,
                                            " tensors by name, such as {\"label\": {\"dtype\": "
                                            "\"I32\", \"shape\": []}}"));
  }
  RecordIndex index;
  for (const auto& [name, tensor] : tensors.items()) {
    PENSTOCK_ASSIGN_OR_RETURN(index.tensors.emplace_back(), TensorOf(name, tensor));
  }
  const Json& shards = Member(json, "shards");
  if (!shards.is_array() || shards.empty() ||
      static_cast<int64_t>(shards.size()) > kRecordShardsMax) {
    return BadIndex("shards", absl::StrCat("expected a list of 1 to ", kRecordShardsMax,
                                           " shards; fewer and larger ones do as well"));
  }
  std::set<std::string> files;
  for (const Json& shard : shards) {
    const std::string key = absl::StrCat("shards[", index.shards.size(), "]");
    PENSTOCK_ASSIGN_OR_RETURN(index.shards.emplace_back(), ShardOf(shard, key));
    if (!files.insert(index.shards.back().file).second) {
      return BadIndex(key + ".file", absl::StrCat("names ", index.shards.back().file, " twice"));
    }
  }
  if (index.records() > kRecordsMax) {
    return BadIndex("shards", absl::StrCat("have more than ", kRecordsMax, " records"));
  }
  return index;
}

std::string PrintRecordIndex(const RecordIndex& index) {
  nlohmann::ordered_json json = {{"format", kFormat},
                                 {"tensors", nlohmann::ordered_json::object()},
                                 {"shards", nlohmann::ordered_json::array()}};
  for (const TensorType& tensor : index.tensors) {
    json["tensors"][tensor.name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}};
  }
  for (const RecordShard& shard : index.shards) {
    json["shards"].push_back(
        {{"file", shard.file}, {"records", shard.records}, {"sha256", shard.sha256}});
  }
  return json.dump(1) + "\n";
}

}  // namespace penstock
