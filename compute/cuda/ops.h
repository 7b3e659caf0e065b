// The layers of the CUDA back-end, one file each.
//
// `bf16`: matrix products read bf16 (Precision::kBf16); otherwise everything is f32. Errors: those of
// MatrixProduct::Create, Unimplemented (heads too large), ResourceExhausted (no scratch memory).
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "compute/backend.h"
#include "compute/cuda/context.h"
#include "compute/op_kernels.h"
#include "model/chain.h"

namespace penstock::cuda {

absl::StatusOr<std::unique_ptr<OpKernels>> MakeEmbedding(CudaContext& context,
                                                     const EmbeddingLayer& config,
                                                     BatchShape shape);
absl::StatusOr<std::unique_ptr<OpKernels>> MakeAttention(CudaContext& context,
                                                     const AttentionLayer& config, BatchShape shape,
                                                     bool bf16);
absl::StatusOr<std::unique_ptr<OpKernels>> MakeMlp(CudaContext& context, const MlpLayer& config,
                                               BatchShape shape, bool bf16);
absl::StatusOr<std::unique_ptr<OpKernels>> MakeNorm(CudaContext& context, const NormLayer& config,
                                                BatchShape shape);
absl::StatusOr<std::unique_ptr<OpKernels>> MakeHead(CudaContext& context, const HeadLayer& config,
                                                BatchShape shape, bool bf16);

}  // namespace penstock::cuda
