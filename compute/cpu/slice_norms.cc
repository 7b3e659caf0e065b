// Squared norms of slices.
#include <algorithm>

#include "base/check.h"
#include "compute/cpu/flat_blocks.h"
#include "compute/cpu/optimizers.h"

namespace penstock {
namespace {

class CpuSliceNorms : public SliceNorms {
 public:
  CpuSliceNorms(const CpuContext& context, absl::Span<const ParameterSlice> slices)
      : cpu_(context), slices_(slices.begin(), slices.end()) {}

  absl::Status Measure(const float* values, absl::Span<double> squared_norms) override {
    PENSTOCK_CHECK(squared_norms.size() == slices_.size());
    for (size_t s = 0; s < slices_.size(); ++s) {
      squared_norms[s] = SquaredNorm(values + slices_[s].offset, slices_[s].count);
    }
    return absl::OkStatus();
  }

 private:
  // Blocks one after the other, so that the sum does not depend on the number of threads.
  double SquaredNorm(const float* values, int64_t count) const {
    double sum = 0.0;
    for (int64_t first = 0; first < count; first += kFlatBlock) {
      sum += cpu_.kernels.squared_norm(std::min(kFlatBlock, count - first), values + first);
    }
    return sum;
  }

  const CpuContext& cpu_;
  const std::vector<ParameterSlice> slices_;
};

}  // namespace

std::unique_ptr<SliceNorms> MakeCpuSliceNorms(const CpuContext& context,
                                              absl::Span<const ParameterSlice> slices) {
  return std::make_unique<CpuSliceNorms>(context, slices);
}

}  // namespace penstock
