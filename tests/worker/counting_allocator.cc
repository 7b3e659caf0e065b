#include "tests/worker/counting_allocator.h"

#include <link.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PENSTOCK_COUNTS_ALLOCATIONS 0
#else
#define PENSTOCK_COUNTS_ALLOCATIONS 1
#endif

namespace {

std::atomic<bool> counting = false;
std::atomic<int64_t> allocations = 0;

struct AddressRange {
  uintptr_t begin = 0;
  uintptr_t end = 0;
};
// Of the code of the libraries that are left out.
std::array<AddressRange, 4> left_out;
int left_out_count = 0;

int AddLeftOut(dl_phdr_info* library, size_t, void*) {
  const bool leave_out = std::strstr(library->dlpi_name, "libdnnl") != nullptr ||
                         std::strstr(library->dlpi_name, "libgomp") != nullptr;
  for (int i = 0; leave_out && i < library->dlpi_phnum; ++i) {
    const auto& segment = library->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0) continue;
    const uintptr_t begin = library->dlpi_addr + segment.p_vaddr;
    left_out[left_out_count++] = {begin, begin + segment.p_memsz};
  }
  return 0;
}

// Unused where a sanitizer owns the allocator.
[[maybe_unused]] void Count(void* caller) {
  if (!counting.load(std::memory_order_relaxed)) return;
  const auto address = reinterpret_cast<uintptr_t>(caller);
  for (int i = 0; i < left_out_count; ++i) {
    if (address >= left_out[i].begin && address < left_out[i].end) return;
  }
  allocations.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

#if PENSTOCK_COUNTS_ALLOCATIONS
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* old, size_t size);
void* __libc_memalign(size_t alignment, size_t size);

void* malloc(size_t size) {
  Count(__builtin_return_address(0));
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  Count(__builtin_return_address(0));
  return __libc_calloc(count, size);
}
void* realloc(void* old, size_t size) {
  Count(__builtin_return_address(0));
  return __libc_realloc(old, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  Count(__builtin_return_address(0));
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** result, size_t alignment, size_t size) {
  Count(__builtin_return_address(0));
  *result = __libc_memalign(alignment, size);
  return *result == nullptr ? ENOMEM : 0;
}
}

void* operator new(size_t size) {
  Count(__builtin_return_address(0));
  void* block = __libc_malloc(size);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}
void* operator new[](size_t size) {
  Count(__builtin_return_address(0));
  void* block = __libc_malloc(size);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}
void operator delete(void* block) noexcept { std::free(block); }
void operator delete[](void* block) noexcept { std::free(block); }
void operator delete(void* block, size_t) noexcept { std::free(block); }
void operator delete[](void* block, size_t) noexcept { std::free(block); }
#endif

namespace penstock {

bool CountsAllocations() { return PENSTOCK_COUNTS_ALLOCATIONS; }

void StartCountingAllocations() {
  if (left_out_count == 0) dl_iterate_phdr(AddLeftOut, nullptr);
  allocations = 0;
  counting = true;
}

void StopCountingAllocations() { counting = false; }

int64_t CountedAllocations() { return allocations; }

}  // namespace penstock
