// Work over the slices of a flat array, one launch for all of them: optimizer steps and norms.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compute/cuda/context.h"
#include "compute/cuda/kernels/kernels.h"
#include "compute/optimizer.h"

namespace penstock::cuda {

// The slices on the device, and which part of which slice each block of a launch has.
class SliceTable {
 public:
  SliceTable() = default;
  // Errors: ResourceExhausted, Internal.
  static absl::StatusOr<SliceTable> Create(CudaContext& context,
                                           absl::Span<const ParameterSlice> slices);

  int64_t count() const { return count_; }
  int64_t blocks() const { return blocks_; }
  const Slice* slices() const { return static_cast<const Slice*>(slice_table_.data()); }
  const SliceBlock* block_table() const {
    return static_cast<const SliceBlock*>(block_table_.data());
  }

 private:
  int64_t count_ = 0;
  int64_t blocks_ = 0;
  Buffer slice_table_, block_table_;
};

// `scales`: of the gradients, on the device.
StepArrays StepArraysOf(const StepArguments& arguments, const float* scales);

absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(CudaContext& context,
                                                         const OptimizerConfig& config,
                                                         absl::Span<const ParameterSlice> slices);
// muon.cc. Errors: those of MatrixProduct, ResourceExhausted.
absl::StatusOr<std::unique_ptr<Optimizer>> MakeMuon(CudaContext& context, const MuonConfig& config,
                                                    absl::Span<const ParameterSlice> slices);
absl::StatusOr<std::unique_ptr<SliceNorms>> MakeSliceNorms(CudaContext& context,
                                                           absl::Span<const ParameterSlice> slices);

}  // namespace penstock::cuda
