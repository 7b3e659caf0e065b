// Philox4x32-10 (base/random.h), a vector of counters at a time.
#pragma once

#include "compute/cpu/kernels/simd.h"

namespace penstock {
namespace {

struct PhiloxWords {
  Words word[4];
};

// The low and high halves of multiplier * x.
PENSTOCK_INLINE void Multiply(uint32_t multiplier, Words x, Words& high, Words& low) {
  const LongWords product = __builtin_convertvector(x, LongWords) * uint64_t{multiplier};
  high = __builtin_convertvector(product >> 32, Words);
  low = __builtin_convertvector(product, Words);
}

PENSTOCK_INLINE PhiloxWords PhiloxLanes(uint64_t key, Words c0, Words c1, Words c2, Words c3) {
  auto key0 = static_cast<uint32_t>(key);
  auto key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    Words high0, low0, high1, low1;
    Multiply(0xD2511F53, c0, high0, low0);
    Multiply(0xCD9E8D57, c2, high1, low1);
    c0 = high1 ^ c1 ^ key0;
    c1 = low1;
    c2 = high0 ^ c3 ^ key1;
    c3 = low0;
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return {{c0, c1, c2, c3}};
}

}  // namespace
}  // namespace penstock
