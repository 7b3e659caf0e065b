// The layers of the CPU back-end, one file each.
//
// `bf16`: matrix products with weights read bf16 (Precision::kBf16 on a machine that has such
// products). Errors: those of MatrixProduct::Create, and ResourceExhausted (no scratch memory).
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "compute/backend.h"
#include "compute/cpu/context.h"
#include "compute/layer.h"
#include "model/chain.h"

namespace penstock {

std::unique_ptr<Layer> MakeCpuEmbedding(CpuContext& context, const EmbeddingLayer& config,
                                        BatchShape shape);
absl::StatusOr<std::unique_ptr<Layer>> MakeCpuAttention(CpuContext& context,
                                                        const AttentionLayer& config,
                                                        BatchShape shape, bool bf16);
absl::StatusOr<std::unique_ptr<Layer>> MakeCpuMlp(CpuContext& context, const MlpLayer& config,
                                                  BatchShape shape, bool bf16);
absl::StatusOr<std::unique_ptr<Layer>> MakeCpuNorm(CpuContext& context, const NormLayer& config,
                                                   BatchShape shape);
absl::StatusOr<std::unique_ptr<Layer>> MakeCpuHead(CpuContext& context, const HeadLayer& config,
                                                   BatchShape shape, bool bf16);

}  // namespace penstock
