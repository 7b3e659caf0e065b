// The optimizers of the CPU back-end, one file each, and norms.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compute/cpu/context.h"
#include "compute/optimizer.h"

namespace penstock {

std::unique_ptr<Optimizer> MakeCpuSgd(const CpuContext& context, const SgdConfig& config,
                                      absl::Span<const ParameterSlice> slices);
std::unique_ptr<Optimizer> MakeCpuAdamW(const CpuContext& context, const AdamWConfig& config,
                                        absl::Span<const ParameterSlice> slices);
std::unique_ptr<Optimizer> MakeCpuNAdamW(const CpuContext& context, const NAdamWConfig& config,
                                         absl::Span<const ParameterSlice> slices);
// Errors: those of MatrixProduct; ResourceExhausted (no memory for its scratch).
absl::StatusOr<std::unique_ptr<Optimizer>> MakeCpuMuon(CpuContext& context,
                                                       const MuonConfig& config,
                                                       absl::Span<const ParameterSlice> slices);
std::unique_ptr<SliceNorms> MakeCpuSliceNorms(const CpuContext& context,
                                              absl::Span<const ParameterSlice> slices);

}  // namespace penstock
