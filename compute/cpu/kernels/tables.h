// The tables of kernels, one for each instruction set, in the namespaces that CMakeLists.txt names.
#pragma once

#include "compute/cpu/kernels/kernels.h"

// All of them, the fastest first.
#if defined(__x86_64__)
#define PENSTOCK_INSTRUCTION_SETS(ROW) ROW(avx512) ROW(avx2) ROW(baseline)
#else
#define PENSTOCK_INSTRUCTION_SETS(ROW) ROW(baseline)
#endif

namespace penstock {

#define PENSTOCK_DECLARE_TABLE(isa) \
  namespace isa {                   \
  extern const Kernels kKernels;    \
  }
PENSTOCK_INSTRUCTION_SETS(PENSTOCK_DECLARE_TABLE)
#undef PENSTOCK_DECLARE_TABLE

}  // namespace penstock
