// DType: the types of elements that tensors have, on devices, in files and on the wire.
#pragma once

#include <cstdint>

namespace penstock {

enum class DType : uint8_t { kF32 = 1, kBf16 = 2, kI32 = 3, kU8 = 4 };
int64_t SizeOf(DType dtype);  // bytes of one element
const char* Name(DType dtype);

}  // namespace penstock
