// WordCache: the ids of words that were seen before, and ScratchPool: what calls need while they run, one for each call.
//
// WordCache is thread-compatible. It never holds more than its arena and its slots: a word takes the place of another, and when
// the arena is full all go. Words that were chosen to collide make it slow for others, and no more: it looks at
// kWays slots at most.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/numeric/int128.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/mutex.h"

namespace penstock {

// All bits of the result depend on all bytes, as caches take the low ones.
inline uint64_t HashOfBytes(absl::string_view bytes) {
  constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15;
  uint64_t hash = bytes.size() * kMultiplier;
  const auto mix = [&](uint64_t part) {
    const absl::uint128 product = absl::uint128(hash ^ part) * kMultiplier;
    hash = absl::Uint128Low64(product) ^ absl::Uint128High64(product);
  };
  while (bytes.size() > 8) {
    uint64_t part;
    std::memcpy(&part, bytes.data(), 8);
    mix(part);
    bytes.remove_prefix(8);
  }
  uint64_t part = 0;
  std::memcpy(&part, bytes.data(), bytes.size());
  mix(part);
  return hash;
}

class WordCache {
 public:
  static constexpr size_t kWordBytesMax = 64;

  WordCache() : slots_(kSlots) { arena_.reserve(kArenaMax); }

  // Appends the ids of `word` to `ids`, or returns false. `hash` is HashOfBytes of it.
  bool Find(absl::string_view word, uint64_t hash, std::vector<int32_t>& ids) const {
    const size_t home = hash & (kSlots - kWays);
    for (size_t way = 0; way < kWays; ++way) {
      const Slot& slot = slots_[home + way];
      if (slot.hash != hash || slot.bytes != word.size()) continue;
      const int32_t* const entry = arena_.data() + slot.offset;
      if (std::memcmp(entry + slot.ids, word.data(), word.size()) != 0) continue;
      ids.insert(ids.end(), entry, entry + slot.ids);
      return true;
    }
    return false;
  }

  // REQUIRES: 1 <= word.size() <= kWordBytesMax, and at most one more id than bytes.
  void Put(absl::string_view word, uint64_t hash, absl::Span<const int32_t> ids) {
    const size_t word_values = (word.size() + 3) / 4;
    if (arena_.size() + ids.size() + word_values > kArenaMax) {
      arena_.clear();
      slots_.assign(kSlots, Slot{});
    }
    const size_t home = hash & (kSlots - kWays);
    size_t way = 0;
    while (way < kWays && slots_[home + way].bytes != 0) ++way;
    if (way == kWays) way = next_way_++ % kWays;
    slots_[home + way] = {hash, static_cast<uint32_t>(arena_.size()),
                          static_cast<uint16_t>(word.size()), static_cast<uint16_t>(ids.size())};
    arena_.insert(arena_.end(), ids.begin(), ids.end());
    arena_.resize(arena_.size() + word_values);
    std::memcpy(arena_.data() + arena_.size() - word_values, word.data(), word.size());
  }

 private:
  static constexpr size_t kSlots = 1 << 16;
  static constexpr size_t kWays = 4;
  static constexpr size_t kArenaMax = 1 << 19;  // 2 MiB of ids and words

  struct Slot {
    uint64_t hash = 0;
    uint32_t offset = 0;  // in the arena: the ids, then the word
    uint16_t bytes = 0;   // of the word; 0: the slot is empty
    uint16_t ids = 0;
  };
  std::vector<Slot> slots_;
  std::vector<int32_t> arena_;
  size_t next_way_ = 0;
};

// Hands out objects for the time of a call, and keeps them for the next. Thread safety: any thread.
template <typename Scratch>
class ScratchPool {
 public:
  ScratchPool() = default;
  ~ScratchPool() { delete last_.load(); }

  class Lease {
   public:
    explicit Lease(ScratchPool& pool) : pool_(pool), scratch_(pool.Take()) {}
    ~Lease() { pool_.Return(std::move(scratch_)); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    Scratch& operator*() const { return *scratch_; }

   private:
    ScratchPool& pool_;
    std::unique_ptr<Scratch> scratch_;
  };

 private:
  static constexpr size_t kKeptMax = 16;

  std::unique_ptr<Scratch> Take() {
    if (Scratch* const last = last_.exchange(nullptr, std::memory_order_acquire)) {
      return std::unique_ptr<Scratch>(last);
    }
    {
      MutexLock lock(mutex_);
      if (!idle_.empty()) {
        std::unique_ptr<Scratch> scratch = std::move(idle_.back());
        idle_.pop_back();
        return scratch;
      }
    }
    return std::make_unique<Scratch>();
  }
  void Return(std::unique_ptr<Scratch> scratch) {
    Scratch* none = nullptr;
    if (last_.compare_exchange_strong(none, scratch.get(), std::memory_order_release,
                                      std::memory_order_relaxed)) {
      static_cast<void>(scratch.release());  // last_ owns it
      return;
    }
    MutexLock lock(mutex_);
    if (idle_.size() < kKeptMax) idle_.push_back(std::move(scratch));
  }

  std::atomic<Scratch*> last_{nullptr};  // owned; the one that is taken without a lock
  Mutex mutex_;
  std::vector<std::unique_ptr<Scratch>> idle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace penstock
