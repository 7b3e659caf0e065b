// CRC32C (Castagnoli), the checksum of every tensor chunk in flight; ISA-L's implementation.
#pragma once

#include <cstddef>
#include <cstdint>

namespace penstock {

// The CRC32C of `size_bytes` bytes, continuing from `crc` (the CRC of the bytes before; 0 at the
// start): Crc32c(b, n, Crc32c(a, m)) is the CRC of a followed by b.
uint32_t Crc32c(const void* data, size_t size_bytes, uint32_t crc = 0);

}  // namespace penstock
