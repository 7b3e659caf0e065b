// BufferPool: gives out device memory by size and takes it back, so that the steady state of training
// allocates nothing.
//
// Blocks are kept by exact size, rounded up to 64 bytes. Training repeats the same few sizes, so after
// the first microbatches every request is served from what came back, the lowest address first: which
// blocks a pass gets then follows from which are in use and not from the order in which they came back, so
// that in a steady state the same few come together again and again (compute/pass_graphs.h). Where the source has no
// more memory, idle blocks of other sizes go back to it first.
//
// Thread safety: all methods, and the release of buffers, may be called from any thread.
#pragma once

#include <cstdint>
#include <memory>

#include "compute/tensor.h"

namespace penstock {

// Where a pool's memory comes from: the heap, a GPU, pinned host memory.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  // 64-byte aligned; null when there is no more.
  virtual void* Allocate(int64_t size_bytes) = 0;
  virtual void Free(void* data, int64_t size_bytes) = 0;
};
// The heap. Large blocks ask the system for huge pages.
MemorySource& HostMemory();

class BufferPool {
 public:
  // REQUIRES: `source` outlives the pool and its buffers. Buffers may outlive the pool: what it is made
  // of lives on until they are back.
  // `counted_in`: what is in use here counts as in use there, too, and for its peak.
  explicit BufferPool(MemorySource& source, BufferPool* counted_in = nullptr);
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // A block of at least `size_bytes`, uninitialised. Empty when the source has no more memory, and no idle block is left
  // that could make room.
  Buffer Acquire(int64_t size_bytes);
  Tensor AcquireTensor(DType dtype, const Shape& shape);

  // Now, and from now on where the pool would hold more than this with a new block, blocks that wait for reuse go back to the
  // source, the largest first. Without it none goes back before the pool ends.
  void HoldAtMost(int64_t bytes);

  // Returns the bytes that a block of this size takes from the pool.
  static int64_t BlockBytes(int64_t size_bytes);

  struct Stats {
    int64_t allocations = 0;  // blocks taken from the source so far
    int64_t bytes_in_use = 0;
    int64_t bytes_peak = 0;  // of bytes_in_use
    int64_t bytes_held = 0;  // in use or waiting for reuse
    int64_t releases = 0;    // idle blocks given back to the source so far
    int64_t bytes_held_peak = 0;
  };
  Stats stats() const;

 private:
  friend class Buffer;
  struct State;
  std::shared_ptr<State> state_;  // shared with the blocks that are out
};

}  // namespace penstock
