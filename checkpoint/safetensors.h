// Safetensors: the file format of named tensors that every machine-learning tool reads.
//
//   8 bytes   length of the header, little endian
//   header    JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...,
//                    "__metadata__": {"key": "value"}}, padded with spaces
//   data      the tensors, one after the other
//
// The reader trusts nothing: every size is checked (checked multiplication, no gap, no overlap, no
// byte left over), keys are unique, names and counts are bounded (limits.h). It reads from memory, or in parts
// from an open file, but not from a mapped file, which another process could cut short under it.
//
// Plain functions; thread-compatible.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/files.h"
#include "compute/stage.h"

namespace penstock {

using SafetensorsMetadata = std::map<std::string, std::string>;

// What a header says of a tensor.
struct TensorType {
  std::string name;
  std::string dtype;  // "F32", ...
  std::vector<int64_t> shape;
};

// Where a tensor lies, counted from the beginning of the file.
struct TensorPlace {
  TensorType type;
  int64_t offset = 0;
  int64_t size_bytes = 0;
};

struct SafetensorsLayout {
  std::vector<TensorPlace> tensors;  // in the order of their data
  SafetensorsMetadata metadata;
};

// Reads the header of a file alone. Errors: DataLoss as ParseSafetensors, those of `file`.
absl::StatusOr<SafetensorsLayout> ReadSafetensorsLayout(const RandomAccessFile& file);

// A tensor in a file. `bytes` refers to the file's memory.
struct TensorView {
  std::string name;
  std::string dtype;  // "F32", ...
  std::vector<int64_t> shape;
  absl::string_view bytes;
};

struct SafetensorsView {
  std::vector<TensorView> tensors;  // in the order of their data
  SafetensorsMetadata metadata;
};

// REQUIRES: `file` outlives the view.
// Errors: DataLoss, saying what is wrong where (the caller adds the file's name).
absl::StatusOr<SafetensorsView> ParseSafetensors(absl::string_view file);

// The same, with the values copied out. Errors also: DataLoss if a tensor is not F32.
absl::StatusOr<std::vector<NamedArray>> ReadSafetensors(absl::string_view file);

// The bytes of an element of a type such as "F32"; 0 of a type that safetensors files do not have.
int64_t SafetensorsElementBytes(absl::string_view dtype);

// The length and header of a file that has the values of `tensors` behind it, one after the other. REQUIRES: names are
// unique, and types known.
std::string SafetensorsHeaderFor(absl::Span<const TensorType> tensors,
                                 const SafetensorsMetadata& metadata);

// The length and header for `arrays`; the file is this, then the values of each array in order.
// REQUIRES: names are unique, and values match shapes.
std::string SafetensorsHeader(absl::Span<const NamedArray> arrays,
                              const SafetensorsMetadata& metadata);

// The whole file as pieces that refer to `header` and `arrays`, for Files::WriteDurably.
std::vector<absl::string_view> SafetensorsPieces(absl::string_view header,
                                                 absl::Span<const NamedArray> arrays);

}  // namespace penstock
