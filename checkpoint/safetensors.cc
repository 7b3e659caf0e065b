#include "checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "checkpoint/limits.h"
#include "checkpoint/strict_json.h"
#include "nlohmann/json.hpp"

namespace penstock {
namespace {

using Json = nlohmann::json;

constexpr int64_t kLengthBytes = 8;
constexpr char kMetadataKey[] = "__metadata__";

absl::Status BadTensors(const std::string& message) { return absl::DataLossError(message); }

// 0 for a type that is not allowed.
int64_t ElementBytes(absl::string_view dtype) {
  if (dtype == "F64" || dtype == "I64" || dtype == "U64") return 8;
  if (dtype == "F32" || dtype == "I32" || dtype == "U32") return 4;
  if (dtype == "F16" || dtype == "BF16" || dtype == "I16" || dtype == "U16") return 2;
  if (dtype == "I8" || dtype == "U8" || dtype == "BOOL") return 1;
  return 0;
}

absl::Status CheckName(absl::string_view name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '/' || c == '-';
  };
  if (name.empty() || static_cast<int64_t>(name.size()) > kSafetensorsNameBytesMax ||
      !std::all_of(name.begin(), name.end(), allowed)) {
    return BadTensors(
        absl::StrCat("a tensor's name has ", name.size(), " bytes or other characters than ",
                     "letters, digits and ._/-; expected 1 to ", kSafetensorsNameBytesMax));
  }
  return absl::OkStatus();
}

// A number in [0, max], or an error that says whose it is.
absl::StatusOr<int64_t> ReadNumber(const Json& value, int64_t max, absl::string_view what) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > static_cast<uint64_t>(max)) {
    return BadTensors(
        absl::StrCat(what, " is ", value.dump(), ", expected a number from 0 to ", max));
  }
  return static_cast<int64_t>(value.get<uint64_t>());
}

absl::StatusOr<std::vector<int64_t>> ReadNumbers(const Json& tensor, const char* key, int64_t max) {
  const auto list = tensor.find(key);
  if (list == tensor.end() || !list->is_array() ||
      static_cast<int64_t>(list->size()) > kSafetensorsDimensionsMax) {
    return BadTensors(absl::StrCat(key, " is missing or not a list of at most ",
                                   kSafetensorsDimensionsMax, " numbers"));
  }
  std::vector<int64_t> numbers;
  for (const Json& element : *list) {
    PENSTOCK_ASSIGN_OR_RETURN(int64_t number, ReadNumber(element, max, key));
    numbers.push_back(number);
  }
  return numbers;
}

absl::StatusOr<int64_t> CheckedBytes(const std::vector<int64_t>& shape, int64_t element_bytes) {
  int64_t bytes = element_bytes;
  for (int64_t dimension : shape) {
    if (dimension == 0) return BadTensors("has no elements, which is not allowed");
    if (__builtin_mul_overflow(bytes, dimension, &bytes))
      return BadTensors("is too large to count");
  }
  return bytes;
}

absl::StatusOr<TensorView> ReadTensor(const std::string& name, const Json& json,
                                      absl::string_view data) {
  if (!json.is_object() || json.size() != 3) {
    return BadTensors("expected exactly the keys dtype, shape and data_offsets");
  }
  TensorView tensor;
  tensor.name = name;
  const auto dtype = json.find("dtype");
  if (dtype == json.end() || !dtype->is_string())
    return BadTensors("dtype is missing or not a string");
  tensor.dtype = dtype->get<std::string>();
  const int64_t element_bytes = ElementBytes(tensor.dtype);
  if (element_bytes == 0) return BadTensors("has an unknown dtype");
  PENSTOCK_ASSIGN_OR_RETURN(tensor.shape, ReadNumbers(json, "shape", kSafetensorsDimensionMax));
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<int64_t> offsets,
                            ReadNumbers(json, "data_offsets", static_cast<int64_t>(data.size())));
  if (offsets.size() != 2 || offsets[0] > offsets[1]) {
    return BadTensors("data_offsets are not a begin and an end");
  }
  PENSTOCK_ASSIGN_OR_RETURN(int64_t bytes, CheckedBytes(tensor.shape, element_bytes));
  if (offsets[1] - offsets[0] != bytes) {
    return BadTensors(
        absl::StrCat("has ", offsets[1] - offsets[0], " bytes, but its shape needs ", bytes));
  }
  tensor.bytes = data.substr(offsets[0], bytes);
  return tensor;
}

absl::StatusOr<SafetensorsMetadata> ReadMetadata(const Json& json) {
  if (!json.is_object()) return BadTensors("__metadata__ is not an object");
  SafetensorsMetadata metadata;
  int64_t bytes = 0;
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string())
      return BadTensors(absl::StrCat("__metadata__.", key, " is not a string"));
    metadata[key] = value.get<std::string>();
    bytes += static_cast<int64_t>(key.size() + metadata[key].size());
  }
  if (bytes > kSafetensorsMetadataBytesMax) {
    return BadTensors(absl::StrCat("__metadata__ has ", bytes, " bytes, more than ",
                                   kSafetensorsMetadataBytesMax));
  }
  return metadata;
}

// The header's JSON, checked against the size of the file.
absl::StatusOr<absl::string_view> SplitHeader(absl::string_view file) {
  const auto size = static_cast<int64_t>(file.size());
  if (size < kLengthBytes) {
    return BadTensors(absl::StrCat("has ", size, " bytes, too few for the length of its header"));
  }
  uint64_t header_bytes = 0;
  for (int i = 0; i < kLengthBytes; ++i) {
    header_bytes |= uint64_t{static_cast<unsigned char>(file[i])} << (8 * i);
  }
  if (header_bytes > static_cast<uint64_t>(kSafetensorsHeaderBytesMax) ||
      header_bytes > static_cast<uint64_t>(size - kLengthBytes)) {
    return BadTensors(absl::StrCat("its header claims ", header_bytes, " bytes, but the file has ",
                                   size - kLengthBytes, " and the limit is ",
                                   kSafetensorsHeaderBytesMax));
  }
  return file.substr(kLengthBytes, header_bytes);
}

// The data must be exactly the tensors, one after the other.
absl::Status CheckContiguous(std::vector<TensorView>& tensors, absl::string_view data) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorView& a, const TensorView& b) {
    return a.bytes.data() < b.bytes.data();
  });
  const char* next = data.data();
  for (const TensorView& tensor : tensors) {
    if (tensor.bytes.data() != next) {
      return BadTensors(absl::StrCat("tensor ", tensor.name, " leaves a gap or overlaps another"));
    }
    next += tensor.bytes.size();
  }
  if (next != data.data() + data.size()) {
    return BadTensors(absl::StrCat("has ", data.data() + data.size() - next,
                                   " bytes after the last tensor (or lacks a tensor)"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SafetensorsView> ParseSafetensors(absl::string_view file) {
  PENSTOCK_ASSIGN_OR_RETURN(absl::string_view header, SplitHeader(file));
  const absl::string_view data = file.substr(kLengthBytes + header.size());
  const JsonLimits limits = {.depth_max = 3, .values_max = kSafetensorsTensorsMax * 16};
  const absl::StatusOr<Json> json = ParseStrictJson(header, limits);
  if (!json.ok()) return BadTensors(absl::StrCat("header: ", json.status().message()));
  if (!json->is_object()) return BadTensors("header: is not an object");
  if (static_cast<int64_t>(json->size()) > kSafetensorsTensorsMax) {
    return BadTensors(
        absl::StrCat("header: has ", json->size(), " tensors, more than ", kSafetensorsTensorsMax));
  }

  SafetensorsView view;
  for (const auto& [name, value] : json->items()) {
    if (name == kMetadataKey) {
      PENSTOCK_ASSIGN_OR_RETURN(view.metadata, ReadMetadata(value));
      continue;
    }
    PENSTOCK_RETURN_IF_ERROR(CheckName(name));
    absl::StatusOr<TensorView> tensor = ReadTensor(name, value, data);
    if (!tensor.ok()) return Annotate(tensor.status(), absl::StrCat("tensor ", name));
    view.tensors.push_back(*std::move(tensor));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckContiguous(view.tensors, data));
  return view;
}

absl::StatusOr<std::vector<NamedArray>> ReadSafetensors(absl::string_view file) {
  PENSTOCK_ASSIGN_OR_RETURN(SafetensorsView view, ParseSafetensors(file));
  std::vector<NamedArray> arrays;
  for (TensorView& tensor : view.tensors) {
    if (tensor.dtype != "F32") {
      return BadTensors(
          absl::StrCat("tensor ", tensor.name, " is ", tensor.dtype, ", expected F32"));
    }
    NamedArray array{std::move(tensor.name), std::move(tensor.shape), {}};
    array.values.resize(tensor.bytes.size() / sizeof(float));
    std::memcpy(array.values.data(), tensor.bytes.data(), tensor.bytes.size());
    arrays.push_back(std::move(array));
  }
  return arrays;
}

std::string SafetensorsHeader(absl::Span<const NamedArray> arrays,
                              const SafetensorsMetadata& metadata) {
  // Ordered, so that names stand in the order of the data.
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[kMetadataKey] = metadata;
  int64_t offset = 0;
  for (const NamedArray& array : arrays) {
    const auto bytes = static_cast<int64_t>(array.values.size() * sizeof(float));
    PENSTOCK_CHECK(!header.contains(array.name));
    header[array.name] = {
        {"dtype", "F32"}, {"shape", array.shape}, {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string length(kLengthBytes, '\0');
  for (int i = 0; i < kLengthBytes; ++i) length[i] = static_cast<char>(text.size() >> (8 * i));
  return length + text;
}

std::vector<absl::string_view> SafetensorsPieces(absl::string_view header,
                                                 absl::Span<const NamedArray> arrays) {
  std::vector<absl::string_view> pieces = {header};
  for (const NamedArray& array : arrays) {
    pieces.emplace_back(reinterpret_cast<const char*>(array.values.data()),
                        array.values.size() * sizeof(float));
  }
  return pieces;
}

}  // namespace penstock
