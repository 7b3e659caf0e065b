// Loops that one op alone needs, in the op's own file, compute/cpu/ops/<op>.simd.cc. What ops share is in kernels.h.
//
// Such a file is compiled once as an op, and once more for each instruction set, as the files of this folder are, with
// PENSTOCK_ISA defined. Like files for several targets in Highway it has three parts:
//
//     struct Loops {                          // for both: what the op asks of its loops
//       void (*forward)(int64_t count, const float* x, float* y);
//     };
//     PENSTOCK_DECLARE_LOOPS
//
//     #ifdef PENSTOCK_ISA                     // for each instruction set: the loops
//     #include "compute/cpu/kernels/simd.h"
//     namespace { void Forward(int64_t count, const float* x, float* y) { ... } }
//     const Loops PENSTOCK_ISA::kLoops = {.forward = Forward};
//
//     #else                                   // once: the op, which calls LoopsOf(context.kernels).forward
//     #include "compute/cpu/ops.h"
//     ...
//     #endif
//
// Above the #else nothing inline of the standard library is used; simd.h says why.
#pragma once

#include "compute/cpu/kernels/tables.h"

#define PENSTOCK_DECLARE_LOOPS_OF(isa) \
  namespace isa {                      \
  extern const Loops kLoops;           \
  }
#define PENSTOCK_RETURN_LOOPS_OF(isa) \
  if (&kernels == &::penstock::isa::kKernels) return isa::kLoops;

// To follow `struct Loops` in the op's namespace. LoopsOf: those of the instruction set that the kernels are of.
#define PENSTOCK_DECLARE_LOOPS                          \
  PENSTOCK_INSTRUCTION_SETS(PENSTOCK_DECLARE_LOOPS_OF)  \
  inline const Loops& LoopsOf(const Kernels& kernels) { \
    PENSTOCK_INSTRUCTION_SETS(PENSTOCK_RETURN_LOOPS_OF) \
    return baseline::kLoops;                            \
  }
