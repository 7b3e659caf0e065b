// Philox4x32-10: randomness by counter instead of by state.
//
// Philox(key, counter) is a pure function, so a dropout mask or an initial weight is the same number
// wherever and in whatever order it is computed: it depends on the seed and on what it is for, never
// on the partition of the model. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11.
#pragma once

#include <array>
#include <cstdint>

namespace penstock {

// Four independent uniform 32-bit words for (key, counter).
std::array<uint32_t, 4> Philox(uint64_t key, std::array<uint32_t, 4> counter);

// A stream of random numbers named by (seed, purpose): two streams with different names are
// independent, and one name always gives the same stream. A value; copy it to fork it.
class RandomStream {
 public:
  RandomStream(uint64_t seed, uint64_t purpose) : seed_(seed), purpose_(purpose) {}

  // Returns the word at `index` of the stream, whatever was sampled before.
  uint32_t At(uint64_t index) const;

  uint32_t Next() { return At(next_++); }
  // Uniform in [0, bound); bias below 2^-32. REQUIRES: bound > 0.
  uint64_t Below(uint64_t bound);
  // Uniform in [0, 1).
  double Uniform();
  // Normally distributed, mean 0, deviation 1 (Box-Muller).
  double Normal();

 private:
  uint64_t seed_;
  uint64_t purpose_;
  uint64_t next_ = 0;
};

}  // namespace penstock
