// BytePairs: a word in bytes to tokens, by merging pairs of neighbours, the pair that was learned first before all others, and of
// equal ones the leftmost. Sennrich, Haddow and Birch, ACL 2016, arXiv 1508.07909.
//
// Immutable after Make; a Scratch for each thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace penstock {

class BytePairs {
 public:
  struct Merge {
    int32_t left = 0;
    int32_t right = 0;
    int32_t merged = 0;
  };
  struct Scratch {
    struct Symbol {
      int32_t id = 0;
      int32_t previous = 0;
      int32_t next = 0;
    };
    struct Candidate {
      uint32_t rank = 0;
      int32_t at = 0;
      friend bool operator<(const Candidate& a,
                            const Candidate& b) {  // for a heap with the least on top
        return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
      }
    };
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
  };

  // `byte_ids`: the tokens of single bytes. `merges` in the order in which they were learned; of a pair that is there
  // twice the last counts.
  BytePairs(const std::array<int32_t, 256>& byte_ids, const std::vector<Merge>& merges);

  // Appends the ids of `word`. Time: n log n for a long word.
  void Encode(absl::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const;

 private:
  static constexpr size_t kShortWordMax = 32;  // bytes; shorter ones are searched from end to end
  static constexpr uint32_t kNoRank = UINT32_MAX;
  static constexpr uint64_t kNoPair = UINT64_MAX;
  struct Entry {
    uint64_t pair = kNoPair;
    uint32_t rank = kNoRank;
    int32_t merged = 0;
  };

  static uint64_t PairOf(int32_t left, int32_t right) {
    return static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
  }
  size_t Home(uint64_t pair) const { return (pair * 0x9E3779B97F4A7C15) >> shift_; }
  const Entry& Find(int32_t left, int32_t right) const {
    const uint64_t pair = PairOf(left, right);
    size_t at = Home(pair);
    while (entries_[at].pair != pair && entries_[at].pair != kNoPair) at = (at + 1) & mask_;
    return entries_[at];
  }
  void EncodeShort(absl::string_view word, std::vector<int32_t>& ids) const;
  void EncodeLong(absl::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const;

  const std::array<int32_t, 256> byte_ids_;
  std::vector<Entry> entries_;
  std::vector<Entry> byte_entries_;  // of pairs of bytes
  size_t mask_ = 0;
  int shift_ = 0;
};

}  // namespace penstock
