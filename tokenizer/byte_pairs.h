// BytePairs: a word in bytes to tokens, by merging pairs of neighbours (PairMerges), the pair that was learned first before all
// others.
//
// Immutable once it is made; a Scratch for each thread.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "tokenizer/pair_merges.h"

namespace penstock {

class BytePairs {
 public:
  struct Merge {
    int32_t left = 0;
    int32_t right = 0;
    int32_t merged = 0;
  };
  struct Scratch {
    std::vector<int32_t> symbols;
    std::vector<PairMerges::Result> results;
    PairMerges::Scratch merges;
  };

  // `byte_ids`: the tokens of single bytes. `merges` in the order in which they were learned; of a pair that is there
  // twice the last counts.
  BytePairs(const std::array<int32_t, 256>& byte_ids, const std::vector<Merge>& merges);

  // Appends the ids of `word`. Time: n log n for a long word.
  void Encode(absl::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const;

 private:
  std::array<int32_t, 256> byte_ids_;
  PairMerges merges_;
  std::vector<PairMerges::Result> of_bytes_;  // of pairs of bytes
};

}  // namespace penstock
