#include "data/record_index.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/sha256.h"
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

absl::StatusOr<SequenceType> SequenceOf(const std::string& name, const Json& json) {
  const Json& dtype = Member(json, "dtype");
  SequenceType sequence = {.name = name};
  if (dtype.is_string()) sequence.dtype = dtype.get<std::string>();
  if (SafetensorsElementBytes(sequence.dtype) > 0) return sequence;
  return BadIndex(
      absl::StrCat("sequences.", name, ".dtype"),
      absl::StrCat("is ", dtype.dump(), "; expected a type of safetensors such as I32"));
}

// A file of the directory itself: names that lead elsewhere are refused.
bool IsPlainName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.size() <= 255 &&
         name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
}

// The file and its digest, of a shard or of another file.
absl::StatusOr<ListedFile> FileOf(const Json& json, const std::string& key) {
  ListedFile listed;
  const Json& file = Member(json, "file");
  if (file.is_string()) listed.file = file.get<std::string>();
  if (!IsPlainName(listed.file)) {
    return BadIndex(key + ".file", absl::StrCat("is ", file.dump(),
                                                "; expected the name of a file in this directory"));
  }
  const Json& sha256 = Member(json, "sha256");
  if (sha256.is_string()) listed.sha256 = sha256.get<std::string>();
  if (!IsSha256Hex(listed.sha256)) {
    return BadIndex(key + ".sha256",
                    "expected the file's SHA-256 as 64 digits of 0-9 and a-f; sha256sum prints it");
  }
  return listed;
}

absl::StatusOr<RecordShard> ShardOf(const Json& json, const std::string& key) {
  if (!json.is_object()) {
    return BadIndex(key, "expected {\"file\": ..., \"records\": ..., \"sha256\": ...}");
  }
  PENSTOCK_ASSIGN_OR_RETURN(ListedFile listed, FileOf(json, key));
  RecordShard shard = {.file = std::move(listed.file), .sha256 = std::move(listed.sha256)};
  PENSTOCK_ASSIGN_OR_RETURN(shard.records,
                            NumberOf(Member(json, "records"), key + ".records", kRecordsMax));
  return shard;
}

// `json` is an object that is not too large, or absent.
absl::Status CheckObject(const Json& json, absl::string_view key, absl::string_view example) {
  if (json.is_null()) return absl::OkStatus();
  if (json.is_object() && static_cast<int64_t>(json.size()) <= kRecordTensorsMax) {
    return absl::OkStatus();
  }
  return BadIndex(
      key, absl::StrCat("expected at most ", kRecordTensorsMax, " by name, such as ", example));
}

absl::Status ParseTypes(const Json& json, RecordIndex& index) {
  const Json& tensors = Member(json, "tensors");
  const Json& sequences = Member(json, "sequences");
  PENSTOCK_RETURN_IF_ERROR(
      CheckObject(tensors, "tensors", "{\"label\": {\"dtype\": \"I32\", \"shape\": []}}"));
  PENSTOCK_RETURN_IF_ERROR(
      CheckObject(sequences, "sequences", "{\"source\": {\"dtype\": \"I32\"}}"));
  if (tensors.empty() && sequences.empty()) {
    return BadIndex("tensors",
                    "expected at least one tensor or sequence by name, such as {\"label\": "
                    "{\"dtype\": \"I32\", \"shape\": []}}");
  }
  std::set<std::string> names;  // in a shard
  for (const auto& [name, tensor] : tensors.items()) {
    PENSTOCK_ASSIGN_OR_RETURN(index.tensors.emplace_back(), TensorOf(name, tensor));
    names.insert(name);
  }
  for (const auto& [name, sequence] : sequences.items()) {
    PENSTOCK_ASSIGN_OR_RETURN(index.sequences.emplace_back(), SequenceOf(name, sequence));
    if (!names.insert(name).second || !names.insert(OffsetsName(index.sequences.back())).second) {
      return BadIndex(
          absl::StrCat("sequences.", name),
          absl::StrCat("needs the names ", name, " and ", OffsetsName(index.sequences.back()),
                       ", of which another entry has one"));
    }
  }
  return absl::OkStatus();
}

absl::Status ParseListedFiles(const Json& json, std::set<std::string>& names, RecordIndex& index) {
  const Json& files = Member(json, "files");
  if (files.is_null()) return absl::OkStatus();
  if (!files.is_array() || static_cast<int64_t>(files.size()) > kRecordListedFilesMax) {
    return BadIndex("files", absl::StrCat("expected a list of at most ", kRecordListedFilesMax,
                                          " entries {\"file\": ..., \"sha256\": ...}"));
  }
  for (const Json& file : files) {
    const std::string key = absl::StrCat("files[", index.files.size(), "]");
    PENSTOCK_ASSIGN_OR_RETURN(index.files.emplace_back(), FileOf(file, key));
    if (!names.insert(index.files.back().file).second) {
      return BadIndex(key + ".file", absl::StrCat("names ", index.files.back().file, " twice"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

int64_t RecordIndex::records() const {
  int64_t records = 0;
  for (const RecordShard& shard : shards) records += shard.records;
  return records;
}

std::string OffsetsName(const SequenceType& sequence) {
  return absl::StrCat(sequence.name, ".offsets");
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
  RecordIndex index;
  PENSTOCK_RETURN_IF_ERROR(ParseTypes(json, index));
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
  PENSTOCK_RETURN_IF_ERROR(ParseListedFiles(json, files, index));
  return index;
}

std::string PrintRecordIndex(const RecordIndex& index) {
  nlohmann::ordered_json json = {{"format", kFormat}};
  for (const TensorType& tensor : index.tensors) {
    json["tensors"][tensor.name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}};
  }
  for (const SequenceType& sequence : index.sequences) {
    json["sequences"][sequence.name] = {{"dtype", sequence.dtype}};
  }
  json["shards"] = nlohmann::ordered_json::array();
  for (const RecordShard& shard : index.shards) {
    json["shards"].push_back(
        {{"file", shard.file}, {"records", shard.records}, {"sha256", shard.sha256}});
  }
  for (const ListedFile& file : index.files) {
    json["files"].push_back({{"file", file.file}, {"sha256", file.sha256}});
  }
  return json.dump(1) + "\n";
}

}  // namespace penstock
