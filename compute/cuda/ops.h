// The makers of the CUDA back-end's kernels, one file for each op in ops/.
//
// `spec.bf16`: matrix products read bf16; otherwise everything is f32. Errors: those of MatrixProduct::Create,
// Unimplemented (no kernels for the op, or none for its sizes), ResourceExhausted (no scratch memory).
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
#undef PENSTOCK_DECLARE_CUDA_OP

// Ops without CUDA kernels: their makers (no_kernels.cc) say so.
#define PENSTOCK_OPS_WITHOUT_CUDA(ROW) \
  ROW(AdditiveAttention) ROW(Attention) ROW(ChannelsFirst) ROW(Lstm) ROW(Subsample)

}  // namespace penstock::cuda
