#include "compute/buffer_pool.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"

namespace penstock {
namespace {

constexpr int64_t kGranularityBytes = 64;

}  // namespace

struct Buffer::Block {
  void* data = nullptr;
  int64_t size_bytes = 0;
  std::atomic<int64_t> references{0};
  std::atomic<bool> kept{false};             // never given back while the pool lives
  std::shared_ptr<BufferPool::State> owner;  // set while the block is out
};

struct BufferPool::State {
  struct Blocks {
    int64_t made = 0;
    std::vector<Buffer::Block*> idle;  // a heap, the lowest address at its front
  };
  static bool HasHigherAddress(const Buffer::Block* a, const Buffer::Block* b) {
    return std::greater<>()(a->data, b->data);
  }

  State(MemorySource& memory, std::shared_ptr<State> other)
      : source(memory), counted_in(std::move(other)) {}
  ~State() {
    for (const auto& [size_bytes, blocks] : blocks_of_size) {
      for (Buffer::Block* block : blocks.idle) {
        source.Free(block->data, size_bytes);
        delete block;
      }
    }
  }

  Buffer::Block* TakeIdle(int64_t size_bytes) {
    MutexLock lock(mutex);
    const auto blocks = blocks_of_size.find(size_bytes);
    if (blocks == blocks_of_size.end() || blocks->second.idle.empty()) {
      return nullptr;
    }
    std::vector<Buffer::Block*>& idle = blocks->second.idle;
    std::pop_heap(idle.begin(), idle.end(), HasHigherAddress);
    Buffer::Block* block = idle.back();
    idle.pop_back();
    CountOut(size_bytes);
    return block;
  }

  // Gives idle blocks back to the source until `more` bytes fit into what may be held, or there are no more.
  void MakeRoom(int64_t more) {
    std::vector<Buffer::Block*> released;
    {
      MutexLock lock(mutex);
      TakeLargest(held_max - more, released);
    }
    FreeAll(released);
  }

  Buffer::Block* MakeBlock(int64_t size_bytes) {
    MakeRoom(size_bytes);
    void* data = source.Allocate(size_bytes);
    if (data == nullptr) {
      return nullptr;
    }
    auto* block = new Buffer::Block;
    block->data = data;
    block->size_bytes = size_bytes;
    MutexLock lock(mutex);
    Blocks& blocks = blocks_of_size[size_bytes];
    if (static_cast<size_t>(++blocks.made) > blocks.idle.capacity()) {
      blocks.idle.reserve(2 * blocks.made);  // so that giving one back allocates nothing
    }
    ++stats.allocations;
    stats.bytes_held += size_bytes;
    stats.bytes_held_peak = std::max(stats.bytes_held_peak, stats.bytes_held);
    CountOut(size_bytes);
    return block;
  }

  // Gives idle blocks back to the source: the smallest that has `size_bytes`, else the largest ones until they have it
  // together. Returns false if there is none.
  bool Release(int64_t size_bytes) {
    std::vector<Buffer::Block*> released;
    {
      MutexLock lock(mutex);
      const int64_t held_max_after = stats.bytes_held - size_bytes;
      for (auto of_size = blocks_of_size.lower_bound(size_bytes);
           released.empty() && of_size != blocks_of_size.end(); ++of_size) {
        TakeOneUnkept(of_size->second, released);
      }
      TakeLargest(held_max_after, released);
    }
    FreeAll(released);
    return !released.empty();
  }

  // Moves idle blocks out, the largest first, until the pool holds no more than `held_bytes`, or there are no more.
  void TakeLargest(int64_t held_bytes, std::vector<Buffer::Block*>& to)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    for (auto of_size = blocks_of_size.rbegin(); of_size != blocks_of_size.rend(); ++of_size) {
      while (stats.bytes_held > held_bytes && TakeOneUnkept(of_size->second, to)) {
      }
    }
  }

  // Moves an idle block out, the one with the highest address; false if there is none.
  bool TakeOneUnkept(Blocks& blocks, std::vector<Buffer::Block*>& to)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::vector<Buffer::Block*>& idle = blocks.idle;
    const auto taken = std::min_element(idle.begin(), idle.end(),
                                        [](const Buffer::Block* a, const Buffer::Block* b) {
                                          if (a->kept != b->kept) return !a->kept;
                                          return HasHigherAddress(a, b);
                                        });
    if (taken == idle.end() || (*taken)->kept) return false;
    to.push_back(*taken);
    stats.bytes_held -= (*taken)->size_bytes;
    ++stats.releases;
    idle.erase(taken);
    std::make_heap(idle.begin(), idle.end(), HasHigherAddress);
    --blocks.made;
    return true;
  }

  void FreeAll(const std::vector<Buffer::Block*>& released) {
    for (Buffer::Block* block : released) {
      source.Free(block->data, block->size_bytes);
      delete block;
    }
  }

  void GiveBack(Buffer::Block* block) {
    MutexLock lock(mutex);
    std::vector<Buffer::Block*>& idle = blocks_of_size[block->size_bytes].idle;
    idle.push_back(block);
    std::push_heap(idle.begin(), idle.end(), HasHigherAddress);
    CountOut(-block->size_bytes);
  }

  void CountOut(int64_t size_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    stats.bytes_in_use += size_bytes;
    stats.bytes_peak = std::max(stats.bytes_peak, stats.bytes_in_use);
    if (counted_in == nullptr) return;
    MutexLock lock(counted_in->mutex);
    counted_in->CountOut(size_bytes);
  }

  MemorySource& source;
  const std::shared_ptr<State> counted_in;
  mutable Mutex mutex;
  std::map<int64_t, Blocks> blocks_of_size ABSL_GUARDED_BY(mutex);
  Stats stats ABSL_GUARDED_BY(mutex);
  int64_t held_max ABSL_GUARDED_BY(mutex) = std::numeric_limits<int64_t>::max();
};

BufferPool::BufferPool(MemorySource& source, BufferPool* counted_in)
    : state_(
          std::make_shared<State>(source, counted_in == nullptr ? nullptr : counted_in->state_)) {}
BufferPool::~BufferPool() = default;

int64_t BufferPool::BlockBytes(int64_t size_bytes) {
  const int64_t at_least_one = std::max<int64_t>(size_bytes, 1);
  return (at_least_one + kGranularityBytes - 1) / kGranularityBytes * kGranularityBytes;
}

Buffer BufferPool::Acquire(int64_t size_bytes) {
  const int64_t rounded = BlockBytes(size_bytes);
  Buffer::Block* block = state_->TakeIdle(rounded);
  if (block == nullptr) {
    block = state_->MakeBlock(rounded);
  }
  while (block == nullptr && state_->Release(rounded)) {
    block = state_->MakeBlock(rounded);
  }
  if (block == nullptr) {
    return Buffer();
  }
  block->references.store(1, std::memory_order_relaxed);
  block->owner = state_;
  return Buffer(block);
}

Tensor BufferPool::AcquireTensor(DType dtype, const Shape& shape) {
  return {Acquire(shape.elements() * SizeOf(dtype)), dtype, shape};
}

void BufferPool::HoldAtMost(int64_t bytes) {
  {
    MutexLock lock(state_->mutex);
    state_->held_max = bytes;
  }
  state_->MakeRoom(0);
}

BufferPool::Stats BufferPool::stats() const {
  MutexLock lock(state_->mutex);
  return state_->stats;
}

Buffer::Buffer(const Buffer& other) : block_(other.block_) {
  if (block_ != nullptr) {
    block_->references.fetch_add(1, std::memory_order_relaxed);
  }
}

Buffer::~Buffer() {
  if (block_ == nullptr || block_->references.fetch_sub(1, std::memory_order_acq_rel) != 1) {
    return;
  }
  // Moved out first: the block may be the last that keeps the pool's state alive, and a block waiting
  // for reuse must not keep it alive.
  const std::shared_ptr<BufferPool::State> owner = std::move(block_->owner);
  owner->GiveBack(block_);
}

void* Buffer::data() const { return block_ == nullptr ? nullptr : block_->data; }
bool Buffer::shared() const { return block_ != nullptr && block_->references.load() > 1; }

void Buffer::KeepInPool() const {
  if (block_ != nullptr) block_->kept = true;
}

int64_t Buffer::size_bytes() const { return block_ == nullptr ? 0 : block_->size_bytes; }

}  // namespace penstock
