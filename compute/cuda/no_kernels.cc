// The makers of ops that have no CUDA kernels.
#include "absl/strings/str_cat.h"
#include "compute/cuda/ops.h"

namespace penstock::cuda {

#define PENSTOCK_NO_KERNELS(Name)                                                            \
  MadeKernels Make##Name(CudaContext&, const KernelSpec& spec) {                             \
    return absl::UnimplementedError(absl::StrCat("the CUDA back-end has no kernels for ",    \
                                                 spec.node.op->name, " (", spec.node.name,   \
                                                 "): train on CPUs, or leave this op out")); \
  }
PENSTOCK_OPS_WITHOUT_CUDA(PENSTOCK_NO_KERNELS)
#undef PENSTOCK_NO_KERNELS

}  // namespace penstock::cuda
