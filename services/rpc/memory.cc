#include "services/rpc/memory.h"

#include <malloc.h>

namespace penstock {
namespace {

// The largest the C library accepts; larger blocks are mapped, and unmapped, one by one.
constexpr int kMappedBlockBytesMin = 32 << 20;
// Given back beyond this, at the top of each heap.
constexpr int kFreeBytesKept = 256 << 20;

}  // namespace

void KeepFreedMemory() {
  mallopt(M_MMAP_THRESHOLD, kMappedBlockBytesMin);
  mallopt(M_TRIM_THRESHOLD, kFreeBytesKept);
}

void ReturnFreedMemory() { malloc_trim(/*pad=*/0); }

}  // namespace penstock
