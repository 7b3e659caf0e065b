#include "base/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace penstock {

uint32_t Crc32c(const void* data, size_t size_bytes, uint32_t crc) {
  constexpr size_t kPieceBytesMax = size_t{1} << 30;  // ISA-L takes an int
  auto* bytes = static_cast<unsigned char*>(const_cast<void*>(data));
  uint32_t state = ~crc;
  while (size_bytes > 0) {
    const size_t piece = std::min(size_bytes, kPieceBytesMax);
    state = crc32_iscsi(bytes, static_cast<int>(piece), state);
    bytes += piece;
    size_bytes -= piece;
  }
  return ~state;
}

}  // namespace penstock
