// The optimizers of the CPU back-end, and norms.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compute/cpu/context.h"
#include "compute/optimizer.h"

namespace penstock {

// elementwise.cc, and muon.cc for Muon. Errors: those of MatrixProduct; ResourceExhausted (no memory for its
// scratch), of Muon alone.
absl::StatusOr<std::unique_ptr<Optimizer>> MakeCpuOptimizer(
    CpuContext& context, const OptimizerConfig& config, absl::Span<const ParameterSlice> slices);
absl::StatusOr<std::unique_ptr<Optimizer>> MakeCpuMuon(CpuContext& context,
                                                       const MuonConfig& config,
                                                       absl::Span<const ParameterSlice> slices);
std::unique_ptr<SliceNorms> MakeCpuSliceNorms(const CpuContext& context,
                                              absl::Span<const ParameterSlice> slices);

}  // namespace penstock
