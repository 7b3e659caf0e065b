// PairMerges: merges pairs of neighbours in a row of symbols, the pair with the least rank before all others, and of equal ones the
// leftmost. Sennrich, Haddow and Birch, ACL 2016, arXiv 1508.07909.
//
// Immutable once it is made; a Scratch for each thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock {

class PairMerges {
 public:
  static constexpr uint32_t kNoRank = UINT32_MAX;

  struct Merge {
    int32_t left = 0;
    int32_t right = 0;
    uint32_t rank = 0;
    int32_t merged = 0;
  };
  // What becomes of a pair. kNoRank: nothing.
  struct Result {
    uint32_t rank = kNoRank;
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
  // Of a pair that is there twice the last counts. REQUIRES: symbols are not negative, ranks are below kNoRank.
  explicit PairMerges(const std::vector<Merge>& merges);

  Result Find(int32_t left, int32_t right) const {
    const uint64_t pair = PairOf(left, right);
    const Entry* const entries = entries_.data();
    size_t at = Home(pair);
    while (entries[at].pair != pair && entries[at].pair != kNoPair) at = (at + 1) & mask_;
    return entries[at].result;
  }

  // Appends what a row of symbols becomes. `results`: what each and the next become, which it changes. Time: n log n for a
  // long row. REQUIRES: it is not empty.
  void Apply(std::vector<int32_t>& symbols, std::vector<Result>& results, Scratch& scratch,
             std::vector<int32_t>& ids) const;

 private:
  static constexpr size_t kShortMax = 32;  // symbols; shorter rows are searched from end to end
  static constexpr uint64_t kNoPair = UINT64_MAX;
  struct Entry {
    uint64_t pair = kNoPair;
    Result result;
  };

  static uint64_t PairOf(int32_t left, int32_t right) {
    return static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
  }
  size_t Home(uint64_t pair) const { return (pair * 0x9E3779B97F4A7C15) >> shift_; }
  // Returns how many symbols are left.
  size_t ApplyShort(size_t count, int32_t* symbols, Result* results) const;
  void ApplyLong(const std::vector<int32_t>& row, const std::vector<Result>& results,
                 Scratch& scratch, std::vector<int32_t>& ids) const;

  std::vector<Entry> entries_;
  size_t mask_ = 0;
  int shift_ = 0;
};

}  // namespace penstock
