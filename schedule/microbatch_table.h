// MicrobatchTable: a small hash table from a microbatch to what is known about it.
//
// Open addressing with linear probing; erasing shifts later entries back, so there are no
// tombstones. Every operation takes constant time, and memory is allocated only when the table
// holds more entries than ever before. (absl::flat_hash_map rehashes now and then at equal size, at
// moments that differ from process to process; a steady state must not allocate.)
//
// Thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace penstock {

template <typename Value>
class MicrobatchTable {
 public:
  // The entry of `microbatch`, or null. Valid until the next Insert or Erase.
  Value* Find(int64_t microbatch) {
    Slot& slot = slots_[Place(microbatch)];
    return slot.microbatch == microbatch ? &slot.value : nullptr;
  }

  // The entry of `microbatch`, new if there was none. REQUIRES: microbatch >= 0.
  Value& Insert(int64_t microbatch) {
    size_t place = Place(microbatch);
    if (slots_[place].microbatch != microbatch) {
      if (2 * ++size_ > slots_.size()) {
        Grow();
        place = Place(microbatch);
      }
      slots_[place] = {microbatch, Value()};
    }
    return slots_[place].value;
  }

  // REQUIRES: the entry exists.
  void Erase(int64_t microbatch) {
    size_t hole = Place(microbatch);
    for (size_t next = After(hole); slots_[next].microbatch != kNone; next = After(next)) {
      // An entry may move into the hole unless that is in front of where its search starts.
      const size_t distance_from_home = (next - Home(slots_[next].microbatch)) & mask();
      if (distance_from_home >= ((next - hole) & mask())) {
        slots_[hole] = std::move(slots_[next]);
        hole = next;
      }
    }
    slots_[hole].microbatch = kNone;
    --size_;
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

  // Calls f(microbatch, value) for every entry, in no particular order.
  template <typename Function>
  void ForEach(Function f) const {
    for (const Slot& slot : slots_) {
      if (slot.microbatch != kNone) f(slot.microbatch, slot.value);
    }
  }

 private:
  static constexpr int64_t kNone = -1;
  static constexpr int kFirstBits = 4;
  static constexpr int kBlockBits = 3;
  static constexpr uint64_t kBlock = 1u << kBlockBits;

  struct Slot {
    int64_t microbatch = kNone;
    Value value;
  };

  size_t mask() const { return slots_.size() - 1; }
  size_t After(size_t place) const { return (place + 1) & mask(); }
  // Fibonacci hashing spreads blocks of consecutive microbatches evenly; those of a block, which are used soon
  // after each other, share cache lines. Of deep pipelines the tables are larger than the cache.
  size_t Home(int64_t microbatch) const {
    const uint64_t block = static_cast<uint64_t>(microbatch) / kBlock;
    const size_t home = (block * 0x9E3779B97F4A7C15u) >> (64 - bits_ + kBlockBits);
    return home * kBlock + static_cast<size_t>(microbatch) % kBlock;
  }
  // Where `microbatch` is, or the free slot where it would go.
  size_t Place(int64_t microbatch) const {
    size_t place = Home(microbatch);
    while (slots_[place].microbatch != microbatch && slots_[place].microbatch != kNone) {
      place = After(place);
    }
    return place;
  }
  void Grow() {
    std::vector<Slot> old(2 * slots_.size());
    old.swap(slots_);
    ++bits_;
    for (Slot& slot : old) {
      if (slot.microbatch != kNone) slots_[Place(slot.microbatch)] = std::move(slot);
    }
  }

  int bits_ = kFirstBits;
  std::vector<Slot> slots_ = std::vector<Slot>(size_t{1} << kFirstBits);
  size_t size_ = 0;
};

}  // namespace penstock
