// The makers of the CUDA back-end's kernels, one file for each op in ops/.
//
// `spec.bf16`: matrix products read bf16; otherwise everything is f32. Errors: those of MatrixProduct::Create,
// Unimplemented (no kernels for these sizes), ResourceExhausted (no scratch memory).
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "compute/cuda/context.h"
#include "compute/op_kernels.h"
#include "model/ops/list.h"

namespace penstock::cuda {

using MadeKernels = absl::StatusOr<std::unique_ptr<OpKernels>>;

#define PENSTOCK_DECLARE_CUDA_OP(Name) \
  MadeKernels Make##Name(CudaContext& context, const KernelSpec& spec);
PENSTOCK_OPS(PENSTOCK_DECLARE_CUDA_OP)
PENSTOCK_EVALUATION_OPS(PENSTOCK_DECLARE_CUDA_OP)
#undef PENSTOCK_DECLARE_CUDA_OP

}  // namespace penstock::cuda
