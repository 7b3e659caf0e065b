#include "compute/cpu/threads.h"

#include <algorithm>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace penstock {

void Threads::For(int64_t iterations,
                  absl::FunctionRef<void(int64_t iteration, int thread)> body) const {
  if (count_ == 1 || iterations == 1) {
    for (int64_t i = 0; i < iterations; ++i) {
      body(i, 0);
    }
    return;
  }
#ifdef _OPENMP
#pragma omp parallel for num_threads(count_) schedule(static)
  for (int64_t i = 0; i < iterations; ++i) {
    body(i, omp_get_thread_num());
  }
#else
  for (int64_t i = 0; i < iterations; ++i) {
    body(i, 0);
  }
#endif
}

void Threads::ForBlocks(
    int64_t total, int64_t block,
    absl::FunctionRef<void(int64_t first, int64_t count, int64_t index)> body) const {
  For((total + block - 1) / block, [&](int64_t index, int /*thread*/) {
    const int64_t first = index * block;
    body(first, std::min(block, total - first), index);
  });
}

void SetOneDnnThreads([[maybe_unused]] int count) {
#ifdef _OPENMP
  omp_set_num_threads(count);
#endif
}

}  // namespace penstock
