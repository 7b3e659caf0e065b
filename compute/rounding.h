// Stochastic rounding to bfloat16: up or down with the probability that makes the mean exact.
//
// A float keeps 16 bits more than a bfloat16. A uniform number of 16 bits is added to them and they are cut
// off, so that a value a share p of the way to the next bfloat16 becomes that one with probability p.
//
// The uniform numbers are Philox's (base/random.h), named by the job's seed, the parameter, the weight
// version and the element: the same on every back-end, for every partition, and after a restart. Elements
// are numbered in groups of 64: element 16 w + l of group g takes word w of the counter
// (16 g + l, low half of the parameter, high half, version).
//
// Plain values, so that kernels compiled for any device or instruction set can include them.
#pragma once

#include <cstdint>

namespace penstock {

struct StochasticRounding {
  uint64_t key = 0;        // from the job's seed (KeyOfRounding)
  uint64_t parameter = 0;  // from its name (ParameterSlice::identity)
  uint32_t version = 0;    // of the weights
};

constexpr uint64_t KeyOfRounding(uint64_t seed) {
  return seed ^ 0x726f756e64696e67;  // sets it apart from all other random numbers of the seed
}

// In a namespace without a name, because one file is compiled for several instruction sets and the linker
// must not mix what came of it.
namespace {

// The bits of a float, and 32 uniform ones, to those of a bfloat16. `Word` is uint32_t or a vector of them.
// Not for NaN.
template <typename Word>
#ifdef __CUDACC__
__host__ __device__
#endif
    inline Word
    StochasticBf16(Word bits, Word random) {
  return (bits + (random & 0xFFFFu)) >> 16;
}

}  // namespace
}  // namespace penstock
