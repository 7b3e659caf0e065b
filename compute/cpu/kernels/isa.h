// The kernels of the instruction set this file is compiled for, in the namespace that the build names.
#pragma once

#include "compute/cpu/kernels/kernels.h"

namespace penstock::PENSTOCK_ISA {

#define PENSTOCK_DECLARE_KERNEL(Type, name) kernel::Type Type;
#define PENSTOCK_DECLARE_NUMBER_KERNELS(Type, name) \
  kernel::Type<float> Type;                         \
  kernel::Type<Bf16> Type;
PENSTOCK_KERNELS(PENSTOCK_DECLARE_KERNEL)
PENSTOCK_NUMBER_KERNELS(PENSTOCK_DECLARE_NUMBER_KERNELS)
#undef PENSTOCK_DECLARE_KERNEL
#undef PENSTOCK_DECLARE_NUMBER_KERNELS

extern const OfElementwise<ElementwiseKernels> kElementwise;
extern const Kernels kKernels;

}  // namespace penstock::PENSTOCK_ISA
