// Host memory for pools: the heap, with huge pages for large blocks where the system has them.
// Activations and weights are walked through in full, so fewer page-table entries show in the time.
#include <sys/mman.h>

#include <cstdlib>

#include "compute/buffer_pool.h"

namespace penstock {
namespace {

constexpr int64_t kAlignmentBytes = 64;
constexpr int64_t kHugePageBytes = int64_t{2} << 20;

class Heap : public MemorySource {
 public:
  void* Allocate(int64_t size_bytes) override {
    const int64_t alignment = size_bytes >= kHugePageBytes ? kHugePageBytes : kAlignmentBytes;
    void* data = nullptr;
    if (posix_memalign(&data, alignment, size_bytes) != 0) {
      return nullptr;
    }
    if (alignment == kHugePageBytes) {
      madvise(data, size_bytes, MADV_HUGEPAGE);  // advice: nothing is lost if it is refused
    }
    return data;
  }
  void Free(void* data, int64_t /*size_bytes*/) override { std::free(data); }
};

}  // namespace

MemorySource& HostMemory() {
  static Heap heap;
  return heap;
}

}  // namespace penstock
