// The table of the instruction set this file is compiled for.
#include "compute/cpu/kernels/isa.h"

#define PENSTOCK_TEXT_INNER(name) #name
#define PENSTOCK_TEXT(name) PENSTOCK_TEXT_INNER(name)

namespace penstock::PENSTOCK_ISA {

#define PENSTOCK_KERNEL_ENTRY(Type, name) .name = Type,
const Kernels kKernels = {.instruction_set = PENSTOCK_TEXT(PENSTOCK_ISA),
                          .f32 = {PENSTOCK_NUMBER_KERNELS(PENSTOCK_KERNEL_ENTRY)},
                          .bf16 = {PENSTOCK_NUMBER_KERNELS(PENSTOCK_KERNEL_ENTRY)},
                          .elementwise = &kElementwise,
                          PENSTOCK_KERNELS(PENSTOCK_KERNEL_ENTRY)};
#undef PENSTOCK_KERNEL_ENTRY

}  // namespace penstock::PENSTOCK_ISA
