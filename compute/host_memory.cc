// Host memory for pools: the heap, and for large blocks the system itself, with huge pages where it has them, to which they go
// back at once. Activations and weights are walked through in full, so fewer page-table entries show in the time.
#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>

#include "compute/buffer_pool.h"

namespace penstock {
namespace {

constexpr int64_t kAlignmentBytes = 64;
constexpr int64_t kHugePageBytes = int64_t{2} << 20;
constexpr int64_t kPageBytes = 4096;

class Heap : public MemorySource {
 public:
  void* Allocate(int64_t size_bytes) override {
    if (size_bytes >= kHugePageBytes) return Map(size_bytes);
    void* data = nullptr;
    return posix_memalign(&data, kAlignmentBytes, size_bytes) == 0 ? data : nullptr;
  }
  void Free(void* data, int64_t size_bytes) override {
    if (size_bytes >= kHugePageBytes) {
      munmap(data, size_bytes);
    } else {
      std::free(data);
    }
  }

 private:
  // Aligned to huge pages: what is mapped before and behind goes back.
  static void* Map(int64_t size_bytes) {
    const int64_t mapped_bytes = size_bytes + kHugePageBytes;
    void* const mapped = mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, /*offset=*/0);
    if (mapped == MAP_FAILED) return nullptr;
    auto* const first = static_cast<char*>(mapped);
    const auto before = static_cast<int64_t>(-reinterpret_cast<uintptr_t>(first) &
                                             static_cast<uintptr_t>(kHugePageBytes - 1));
    const int64_t end = before + (size_bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
    if (before > 0) munmap(first, before);
    if (end < mapped_bytes) munmap(first + end, mapped_bytes - end);
    madvise(first + before, size_bytes, MADV_HUGEPAGE);  // advice: nothing is lost if it is refused
    return first + before;
  }
};

}  // namespace

MemorySource& HostMemory() {
  static Heap heap;
  return heap;
}

}  // namespace penstock
