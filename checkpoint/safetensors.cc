#include "checkpoint/safetensors.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
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

// `what`: what the file says that it has and does not have. A download or a copy that was interrupted is the usual reason.
absl::Status CutShort(const std::string& what) {
  return BadTensors(absl::StrCat(what, "; the file is cut short, so fetch or copy it again"));
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

// `data`: where in the file tensors may be.
struct DataRange {
  int64_t offset = 0;
  int64_t size_bytes = 0;
  int64_t end() const { return offset + size_bytes; }
};

// A begin and an end in the data.
absl::StatusOr<std::vector<int64_t>> ReadOffsets(const Json& tensor, const DataRange& data) {
  PENSTOCK_ASSIGN_OR_RETURN(
      std::vector<int64_t> offsets,
      ReadNumbers(tensor, "data_offsets", std::numeric_limits<int64_t>::max()));
  for (const int64_t offset : offsets) {
    if (offset <= data.size_bytes) continue;
    return CutShort(absl::StrCat("data_offsets is ", offset, ", expected a number from 0 to ",
                                 data.size_bytes,
                                 ", as that is how many bytes the file has behind its header"));
  }
  if (offsets.size() != 2 || offsets[0] > offsets[1]) {
    return BadTensors("data_offsets are not a begin and an end");
  }
  return offsets;
}

absl::StatusOr<TensorPlace> ReadTensor(const std::string& name, const Json& json,
                                       const DataRange& data) {
  if (!json.is_object() || json.size() != 3) {
    return BadTensors("expected exactly the keys dtype, shape and data_offsets");
  }
  TensorPlace tensor = {.type = {.name = name}};
  const auto dtype = json.find("dtype");
  if (dtype == json.end() || !dtype->is_string())
    return BadTensors("dtype is missing or not a string");
  tensor.type.dtype = dtype->get<std::string>();
  const int64_t element_bytes = SafetensorsElementBytes(tensor.type.dtype);
  if (element_bytes == 0) return BadTensors("has an unknown dtype");
  PENSTOCK_ASSIGN_OR_RETURN(tensor.type.shape,
                            ReadNumbers(json, "shape", kSafetensorsDimensionMax));
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<int64_t> offsets, ReadOffsets(json, data));
  PENSTOCK_ASSIGN_OR_RETURN(int64_t bytes, CheckedBytes(tensor.type.shape, element_bytes));
  if (offsets[1] - offsets[0] != bytes) {
    return BadTensors(
        absl::StrCat("has ", offsets[1] - offsets[0], " bytes, but its shape needs ", bytes));
  }
  tensor.offset = data.offset + offsets[0];
  tensor.size_bytes = bytes;
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

// The bytes of the header's JSON, which the first eight bytes of the file say. `size_bytes`: of the file.
absl::StatusOr<int64_t> HeaderBytes(absl::string_view length, int64_t size_bytes) {
  if (size_bytes < kLengthBytes) {
    return CutShort(
        absl::StrCat("has ", size_bytes, " bytes, too few for the length of its header"));
  }
  uint64_t header_bytes = 0;
  for (int i = 0; i < kLengthBytes; ++i) {
    header_bytes |= uint64_t{static_cast<unsigned char>(length[i])} << (8 * i);
  }
  const int64_t rest_bytes = size_bytes - kLengthBytes;
  const std::string claim = absl::StrCat("its header claims ", header_bytes, " bytes");
  if (header_bytes > static_cast<uint64_t>(kSafetensorsHeaderBytesMax)) {
    return BadTensors(absl::StrCat(claim, ", but the limit is ", kSafetensorsHeaderBytesMax,
                                   "; expected a file in the format safetensors"));
  }
  if (header_bytes > static_cast<uint64_t>(rest_bytes)) {
    return CutShort(absl::StrCat(claim, ", but the file has ", rest_bytes));
  }
  return static_cast<int64_t>(header_bytes);
}

// The data must be exactly the tensors, one after the other.
absl::Status CheckContiguous(std::vector<TensorPlace>& tensors, const DataRange& data) {
  std::sort(tensors.begin(), tensors.end(),
            [](const TensorPlace& a, const TensorPlace& b) { return a.offset < b.offset; });
  int64_t next = data.offset;
  for (const TensorPlace& tensor : tensors) {
    if (tensor.offset != next) {
      return BadTensors(
          absl::StrCat("tensor ", tensor.type.name, " leaves a gap or overlaps another"));
    }
    next += tensor.size_bytes;
  }
  if (next != data.end()) {
    return BadTensors(absl::StrCat("has ", data.end() - next,
                                   " bytes after the last tensor (or lacks a tensor)"));
  }
  return absl::OkStatus();
}

// `header`: the JSON.
absl::StatusOr<SafetensorsLayout> ParseHeader(absl::string_view header, const DataRange& data) {
  const JsonLimits limits = {.depth_max = 3, .values_max = kSafetensorsTensorsMax * 16};
  const absl::StatusOr<Json> json = ParseStrictJson(header, limits);
  if (!json.ok()) return BadTensors(absl::StrCat("header: ", json.status().message()));
  if (!json->is_object()) return BadTensors("header: is not an object");
  if (static_cast<int64_t>(json->size()) > kSafetensorsTensorsMax) {
    return BadTensors(
        absl::StrCat("header: has ", json->size(), " tensors, more than ", kSafetensorsTensorsMax));
  }

  SafetensorsLayout layout;
  for (const auto& [name, value] : json->items()) {
    if (name == kMetadataKey) {
      PENSTOCK_ASSIGN_OR_RETURN(layout.metadata, ReadMetadata(value));
      continue;
    }
    PENSTOCK_RETURN_IF_ERROR(CheckName(name));
    absl::StatusOr<TensorPlace> tensor = ReadTensor(name, value, data);
    if (!tensor.ok()) return Annotate(tensor.status(), absl::StrCat("tensor ", name));
    layout.tensors.push_back(*std::move(tensor));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckContiguous(layout.tensors, data));
  return layout;
}

absl::Span<std::byte> BytesOf(std::string& text) {
  return {reinterpret_cast<std::byte*>(text.data()), text.size()};
}

}  // namespace

int64_t SafetensorsElementBytes(absl::string_view dtype) {
  if (dtype == "F64" || dtype == "I64" || dtype == "U64") return 8;
  if (dtype == "F32" || dtype == "I32" || dtype == "U32") return 4;
  if (dtype == "F16" || dtype == "BF16" || dtype == "I16" || dtype == "U16") return 2;
  if (dtype == "I8" || dtype == "U8" || dtype == "BOOL") return 1;
  return 0;
}

absl::StatusOr<SafetensorsLayout> ReadSafetensorsLayout(const RandomAccessFile& file) {
  std::string length(kLengthBytes, '\0');
  if (file.size_bytes() >= kLengthBytes) {
    PENSTOCK_RETURN_IF_ERROR(file.Read(0, BytesOf(length)));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t header_bytes, HeaderBytes(length, file.size_bytes()));
  std::string header(header_bytes, '\0');
  PENSTOCK_RETURN_IF_ERROR(file.Read(kLengthBytes, BytesOf(header)));
  const int64_t offset = kLengthBytes + header_bytes;
  return ParseHeader(header, {.offset = offset, .size_bytes = file.size_bytes() - offset});
}

absl::StatusOr<SafetensorsView> ParseSafetensors(absl::string_view file) {
  const auto size_bytes = static_cast<int64_t>(file.size());
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t header_bytes, HeaderBytes(file, size_bytes));
  const int64_t offset = kLengthBytes + header_bytes;
  PENSTOCK_ASSIGN_OR_RETURN(SafetensorsLayout layout,
                            ParseHeader(file.substr(kLengthBytes, header_bytes),
                                        {.offset = offset, .size_bytes = size_bytes - offset}));
  SafetensorsView view = {.metadata = std::move(layout.metadata)};
  for (TensorPlace& tensor : layout.tensors) {
    view.tensors.push_back({.name = std::move(tensor.type.name),
                            .dtype = std::move(tensor.type.dtype),
                            .shape = std::move(tensor.type.shape),
                            .bytes = file.substr(tensor.offset, tensor.size_bytes)});
  }
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

std::string SafetensorsHeaderFor(absl::Span<const TensorType> tensors,
                                 const SafetensorsMetadata& metadata) {
  // Ordered, so that names stand in the order of the data.
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[kMetadataKey] = metadata;
  int64_t offset = 0;
  for (const TensorType& tensor : tensors) {
    int64_t bytes = SafetensorsElementBytes(tensor.dtype);
    PENSTOCK_CHECK(bytes > 0 && !header.contains(tensor.name));
    for (const int64_t dimension : tensor.shape) bytes *= dimension;
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string length(kLengthBytes, '\0');
  for (int i = 0; i < kLengthBytes; ++i) length[i] = static_cast<char>(text.size() >> (8 * i));
  return length + text;
}

std::string SafetensorsHeader(absl::Span<const NamedArray> arrays,
                              const SafetensorsMetadata& metadata) {
  std::vector<TensorType> tensors;
  tensors.reserve(arrays.size());
  for (const NamedArray& array : arrays) tensors.push_back({array.name, "F32", array.shape});
  return SafetensorsHeaderFor(tensors, metadata);
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
