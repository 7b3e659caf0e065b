// Threads: runs a loop's independent iterations on a set number of OpenMP threads, the same runtime
// that oneDNN computes on, so that the two never ask for more threads than they share.
//
// OpenMP keeps its thread count per calling thread, and a thread that never set it gets one for each
// core. Nothing here relies on what a caller set before: each loop and each matrix product states its
// own count.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"

namespace penstock {

class Threads {
 public:
  // REQUIRES: count >= 1.
  explicit Threads(int count) : count_(count) {}
  int count() const { return count_; }

  // body(iteration, thread) for iterations 0 .. iterations, thread in 0 .. count. Iterations must not
  // depend on one another.
  void For(int64_t iterations, absl::FunctionRef<void(int64_t iteration, int thread)> body) const;

  // body(first, count, index) for consecutive blocks of `block` rows of `total`, the last maybe shorter.
  void ForBlocks(int64_t total, int64_t block,
                 absl::FunctionRef<void(int64_t first, int64_t count, int64_t index)> body) const;

 private:
  int count_;
};

// Sets how many threads the next oneDNN call of this thread may use.
void SetOneDnnThreads(int count);

}  // namespace penstock
