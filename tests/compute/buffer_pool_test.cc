#include "compute/buffer_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <optional>
#include <thread>
#include <vector>

#include "compute/block_layout.h"

namespace penstock {
namespace {

// The heap, with a limit and a count.
class CountingMemory : public MemorySource {
 public:
  explicit CountingMemory(int64_t limit_bytes = int64_t{1} << 30) : limit_bytes_(limit_bytes) {}

  void* Allocate(int64_t size_bytes) override {
    if (bytes_ + size_bytes > limit_bytes_) {
      return nullptr;
    }
    bytes_ += size_bytes;
    return std::aligned_alloc(64, size_bytes);
  }
  void Free(void* data, int64_t size_bytes) override {
    bytes_ -= size_bytes;
    std::free(data);
  }
  int64_t bytes() const { return bytes_; }

 private:
  const int64_t limit_bytes_;
  std::atomic<int64_t> bytes_{0};
};

TEST(BlockLayout, Arrays_BeginAtWholeCacheLines) {
  BlockLayout layout;
  layout.Add<float>(0);
  EXPECT_EQ(layout.size_bytes(), 0);
  layout.Add<float>(17);
  EXPECT_EQ(layout.size_bytes(), 128);
  layout.Add<char>(64);
  EXPECT_EQ(layout.size_bytes(), 192);
}

// What kernels would write behind a block that is too small is memory of others.
TEST(BlockLayoutDeathTest, SizeBeyond64Bits_IsAMistakeOfOurs) {
  BlockLayout layout;
  EXPECT_DEATH(layout.Add<float>(int64_t{1} << 62), "check failed");
  EXPECT_DEATH(layout.Add<float>(-1), "check failed");
  layout.Add<float>(int64_t{1} << 60);
  EXPECT_DEATH(layout.Add<float>(int64_t{1} << 60), "check failed");
}

TEST(BufferPool, Acquire_IsAlignedAndLargeEnough) {
  BufferPool pool(HostMemory());
  for (const int64_t size : {1, 63, 64, 65, 4096, 3 << 20}) {
    const Buffer buffer = pool.Acquire(size);
    EXPECT_GE(buffer.size_bytes(), size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
    static_cast<char*>(buffer.data())[size - 1] = 1;
  }
}

// Blocks in use stay, whatever they come to; of those that wait the largest goes first.
TEST(BufferPool, HoldAtMost_GivesIdleBlocksBackToTheSource) {
  CountingMemory memory;
  BufferPool pool(memory);
  Buffer used = pool.Acquire(1000 * 64);
  { const Buffer blocks[] = {pool.Acquire(64), pool.Acquire(300 * 64), pool.Acquire(200 * 64)}; }
  EXPECT_EQ(memory.bytes(), 1501 * 64);
  pool.HoldAtMost(1300 * 64);
  EXPECT_EQ(memory.bytes(), 1201 * 64) << "without the block of 300";
  EXPECT_EQ(pool.stats().bytes_held, 1201 * 64);
  Buffer other = pool.Acquire(100 * 64);
  EXPECT_EQ(memory.bytes(), 1101 * 64) << "without that of 200, for a new one";
  pool.HoldAtMost(0);
  EXPECT_EQ(memory.bytes(), 1100 * 64);
  other = Buffer();
  EXPECT_EQ(memory.bytes(), 1100 * 64) << "until a new block is made";
  used = Buffer();
  const Buffer small = pool.Acquire(64);
  EXPECT_EQ(memory.bytes(), 64);
}

// In whatever order blocks came back, so that the same ones are given out for the same needs.
TEST(BufferPool, Acquire_AfterReleases_ReusesTheLowestAddress) {
  CountingMemory memory;
  BufferPool pool(memory);
  for (const std::vector<size_t>& order :
       {std::vector<size_t>{0, 1, 2, 3, 4}, {4, 3, 2, 1, 0}, {2, 0, 4, 1, 3}}) {
    std::vector<Buffer> blocks;
    std::vector<void*> addresses;
    for (size_t i = 0; i < order.size(); ++i) {
      blocks.push_back(pool.Acquire(1000));
      addresses.push_back(blocks.back().data());
    }
    std::sort(addresses.begin(), addresses.end());
    for (size_t i : order) blocks[i] = Buffer();
    for (size_t i = 0; i < order.size(); ++i) {
      blocks[i] = pool.Acquire(1000);
      EXPECT_EQ(blocks[i].data(), addresses[i]);
    }
  }
  EXPECT_EQ(pool.stats().allocations, 5);
}

TEST(BufferPool, Acquire_OtherSize_DoesNotReuse) {
  CountingMemory memory;
  BufferPool pool(memory);
  pool.Acquire(1000);
  pool.Acquire(2000);
  EXPECT_EQ(pool.stats().allocations, 2);
  pool.Acquire(1024);  // rounds to the same 1024 bytes as 1000
  EXPECT_EQ(pool.stats().allocations, 2);
}

TEST(BufferPool, Buffer_Copied_GoesBackWithTheLastHandle) {
  BufferPool pool(HostMemory());
  Buffer first = pool.Acquire(64);
  Buffer second = first;
  Buffer third = std::move(first);
  EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move): a moved-from buffer is empty
  second = Buffer();
  EXPECT_EQ(pool.stats().bytes_in_use, 64);
  Buffer& same = third;
  third = same;  // assigning a buffer to itself keeps it
  EXPECT_EQ(pool.stats().bytes_in_use, 64);
  third = Buffer();
  EXPECT_EQ(pool.stats().bytes_in_use, 0);
}

TEST(BufferPool, Buffer_OutlivesThePool) {
  CountingMemory memory;
  Buffer kept;
  {
    BufferPool pool(memory);
    kept = pool.Acquire(128);
    pool.Acquire(256);
  }
  static_cast<char*>(kept.data())[127] = 1;
  EXPECT_GT(memory.bytes(), 0);
  kept = Buffer();
  EXPECT_EQ(memory.bytes(), 0);
}

TEST(BufferPool, Acquire_SourceExhausted_IsEmptyAndThePoolGoesOn) {
  CountingMemory memory(1024);
  BufferPool pool(memory);
  Buffer all = pool.Acquire(1024);
  EXPECT_FALSE(pool.Acquire(64));
  all = Buffer();
  EXPECT_TRUE(pool.Acquire(1024));
}

TEST(BufferPool, Acquire_SourceExhausted_IdleBlocksOfOtherSizesMakeRoom) {
  CountingMemory memory(1024);
  BufferPool pool(memory);
  const Buffer used = pool.Acquire(128);
  pool.Acquire(512);
  pool.Acquire(256);
  EXPECT_EQ(memory.bytes(), 896);
  const Buffer large = pool.Acquire(896);
  EXPECT_TRUE(large);
  EXPECT_EQ(memory.bytes(), 1024);
  EXPECT_EQ(pool.stats().bytes_held, 1024);
  EXPECT_EQ(pool.stats().bytes_in_use, 1024);
  EXPECT_EQ(pool.stats().releases, 2);
  EXPECT_FALSE(pool.Acquire(64)) << "what is in use stays";
}

TEST(BufferPool, Acquire_SourceExhausted_OneBlockThatIsLargeEnoughMakesRoom) {
  CountingMemory memory(1024);
  BufferPool pool(memory);
  { const std::vector<Buffer> blocks = {pool.Acquire(64), pool.Acquire(576), pool.Acquire(320)}; }
  EXPECT_TRUE(pool.Acquire(256));  // the block of 320 goes
  EXPECT_EQ(pool.stats().releases, 1);
  const int64_t allocations = pool.stats().allocations;
  { const std::vector<Buffer> blocks = {pool.Acquire(64), pool.Acquire(576)}; }
  EXPECT_EQ(pool.stats().allocations, allocations);
}

// Other processes may have it open.
TEST(BufferPool, Acquire_SourceExhausted_KeptBlockStays) {
  CountingMemory memory(1024);
  BufferPool pool(memory);
  void* kept = nullptr;
  {
    const Buffer first = pool.Acquire(512);
    const Buffer second = pool.Acquire(512);
    second.KeepInPool();
    kept = second.data();
  }
  EXPECT_FALSE(pool.Acquire(1024));
  EXPECT_EQ(memory.bytes(), 512);
  EXPECT_EQ(pool.Acquire(512).data(), kept);
  EXPECT_TRUE(pool.Acquire(256)) << "of the memory that the other made room for";
}

TEST(BufferPool, HoldAtMost_KeptBlockStays) {
  CountingMemory memory;
  BufferPool pool(memory);
  {
    const Buffer first = pool.Acquire(512);
    const Buffer second = pool.Acquire(1024);
    second.KeepInPool();
  }
  pool.HoldAtMost(0);
  EXPECT_EQ(memory.bytes(), 1024);
  EXPECT_EQ(pool.stats().releases, 1);
}

TEST(BufferPool, ManyThreads_LittleMemory_LoseNothing) {
  CountingMemory memory(int64_t{8} << 10);
  {
    BufferPool pool(memory);
    std::vector<std::thread> threads;
    threads.reserve(4);
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&pool, t] {
        for (int i = 0; i < 2000; ++i) {
          const Buffer buffer = pool.Acquire(64 << ((i + t) % 6));
          if (buffer) *static_cast<int*>(buffer.data()) = t;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(pool.stats().bytes_in_use, 0);
    EXPECT_EQ(pool.stats().bytes_held, memory.bytes());
  }
  EXPECT_EQ(memory.bytes(), 0);
}

TEST(BufferPool, Stats_FollowUse) {
  CountingMemory memory;
  BufferPool pool(memory);
  Buffer a = pool.Acquire(128);
  Buffer b = pool.Acquire(64);
  a = Buffer();
  const BufferPool::Stats stats = pool.stats();
  EXPECT_EQ(stats.allocations, 2);
  EXPECT_EQ(stats.bytes_in_use, 64);
  EXPECT_EQ(stats.bytes_peak, 192);
  EXPECT_EQ(stats.bytes_held, 192);
}

TEST(BufferPool, AcquireTensor_HasItsShapeAndSize) {
  BufferPool pool(HostMemory());
  const Tensor tensor = pool.AcquireTensor(DType::kBf16, {3, 5});
  EXPECT_EQ(tensor.size_bytes(), 30);
  EXPECT_EQ(tensor.shape.ToString(), "[3, 5]");
  EXPECT_TRUE(tensor);
  EXPECT_FALSE(Tensor());
}

TEST(BufferPool, ManyThreads_AcquireAndDrop_LoseNothing) {
  CountingMemory memory;
  {
    BufferPool pool(memory);
    std::vector<std::thread> threads;
    threads.reserve(4);
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&pool, t] {
        std::vector<Buffer> held;
        for (int i = 0; i < 2000; ++i) {
          Buffer buffer = pool.Acquire(64 << (i % 3));
          *static_cast<int*>(buffer.data()) = t;
          held.push_back(buffer);
          EXPECT_EQ(*static_cast<int*>(held.front().data()), t);
          if (held.size() > 5) {
            held.erase(held.begin());
          }
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    EXPECT_EQ(pool.stats().bytes_in_use, 0);
  }
  EXPECT_EQ(memory.bytes(), 0);
}

TEST(Buffer, Detached_HoldsItsReferenceUntilItIsAttachedAgain) {
  BufferPool pool(HostMemory());
  Buffer buffer = pool.Acquire(100);
  Buffer copy = buffer;
  void* const detached = copy.Detach();
  EXPECT_FALSE(copy);
  buffer = Buffer();
  EXPECT_EQ(pool.stats().bytes_in_use, 128);
  EXPECT_EQ(Buffer::Attach(detached).size_bytes(), 128);
  EXPECT_EQ(pool.stats().bytes_in_use, 0);
}

}  // namespace
}  // namespace penstock
