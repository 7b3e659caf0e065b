#include "base/dtype.h"

namespace penstock {

int64_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBf16:
      return 2;
    case DType::kU8:
      return 1;
  }
  return 0;
}

const char* Name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kBf16:
      return "bf16";
    case DType::kI32:
      return "i32";
    case DType::kU8:
      return "u8";
  }
  return "unknown type";
}

std::optional<DType> DTypeNamed(absl::string_view name) {
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kI32, DType::kU8}) {
    if (name == Name(dtype)) return dtype;
  }
  return std::nullopt;
}

}  // namespace penstock
