#include "data/permutation.h"

#include <bit>

#include "base/check.h"
#include "base/random.h"

namespace penstock {
namespace {

// The stream of random numbers that keys come from ("order" in ASCII).
constexpr uint64_t kOrderPurpose = 0x6F72646572;

// The finalizer of MurmurHash3 as improved by D. Stafford (mix 13): every bit of the input changes half of the output.
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

uint64_t MaskOf(int bits) { return (uint64_t{1} << bits) - 1; }

}  // namespace

Permutation::Permutation(int64_t size, uint64_t seed, uint64_t number)
    : size_(static_cast<uint64_t>(size)) {
  PENSTOCK_CHECK(size > 0);
  const int bits = std::bit_width(size_ - 1);
  low_bits_ = (bits + 1) / 2;
  low_mask_ = MaskOf(low_bits_);
  high_mask_ = MaskOf(bits - low_bits_);
  const RandomStream stream(seed, kOrderPurpose);
  const uint64_t first = number * 2 * kRounds;
  for (uint64_t round = 0; round < kRounds; ++round) {
    const uint64_t high = stream.At(first + 2 * round);
    keys_[round] = high << 32 | stream.At(first + 2 * round + 1);
  }
}

int64_t Permutation::At(int64_t place) const {
  auto value = static_cast<uint64_t>(place);
  do {
    uint64_t low = value & low_mask_;
    uint64_t high = value >> low_bits_;
    for (int round = 0; round < kRounds; round += 2) {
      high ^= Mix(low ^ keys_[round]) & high_mask_;
      low ^= Mix(high ^ keys_[round + 1]) & low_mask_;
    }
    value = high << low_bits_ | low;
  } while (value >= size_);
  return static_cast<int64_t>(value);
}

}  // namespace penstock
