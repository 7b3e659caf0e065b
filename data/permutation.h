// Permutation: the numbers 0 to size - 1 in a random order, of which each can be asked for by itself.
//
// A Feistel network permutes the numbers of just enough bits; a number that it takes beyond `size` goes through it
// again, until it is back below (cycle walking), which takes less than two rounds on average. So nothing is stored and
// nothing is shuffled: a place costs the same at the beginning and at the end, and a run can begin anywhere.
//
// A value; thread-compatible.
#pragma once

#include <array>
#include <cstdint>

namespace penstock {

class Permutation {
 public:
  // Another `number` is another permutation of the same seed, independent of the first. REQUIRES: size > 0.
  Permutation(int64_t size, uint64_t seed, uint64_t number);

  // REQUIRES: 0 <= place < size.
  int64_t At(int64_t place) const;

 private:
  static constexpr int kRounds = 12;

  uint64_t size_;
  int low_bits_;  // of a number's two halves; the high one may have a bit less
  uint64_t low_mask_;
  uint64_t high_mask_;
  std::array<uint64_t, kRounds> keys_;
};

}  // namespace penstock
