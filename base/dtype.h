// DType: the types of elements that tensors have, on devices, in files and on the wire.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace penstock {

enum class DType : uint8_t { kF32 = 1, kBf16 = 2, kI32 = 3, kU8 = 4 };
int64_t SizeOf(DType dtype);    // bytes of one element
const char* Name(DType dtype);  // "f32"
// None if no type has the name.
std::optional<DType> DTypeNamed(absl::string_view name);

}  // namespace penstock
