// PENSTOCK_ELEMENTWISE: marks a function of single elements that every back-end calls on its own kind of number, a float
// or a vector of them. C++17, for nvcc; nothing inline of the standard library, for the CPU's kernels, which are compiled
// once for each instruction set.
#pragma once

#ifdef __CUDACC__
#define PENSTOCK_ELEMENTWISE __device__ inline
#else
#define PENSTOCK_ELEMENTWISE inline __attribute__((always_inline))
#endif
