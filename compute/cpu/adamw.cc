// AdamW; see AdamWConfig for the formula.
#include "compute/cpu/flat_blocks.h"
#include "compute/cpu/optimizers.h"

namespace penstock {
namespace {

class CpuAdamW : public Optimizer {
 public:
  CpuAdamW(const CpuContext& context, const AdamWConfig& config,
           absl::Span<const ParameterSlice> slices)
      : cpu_(context), config_(config), slices_(slices.begin(), slices.end()) {}

  absl::Span<const absl::string_view> state_names() const override { return StateNamesOf(config_); }

  absl::Status Step(const StepArguments& a) override {
    const AdamWConstants decaying = ConstantsOf(config_, a.learning_rate, a.update);
    AdamWConstants other = decaying;
    other.keep = 1.0f;
    Bf16* const mirror = a.rounding_key ? nullptr : a.next_bf16;
    for (size_t s = 0; s < slices_.size(); ++s) {
      const ParameterSlice& slice = slices_[s];
      const AdamWConstants& k = slice.decays ? decaying : other;
      ForFlat(cpu_, slice.count, [&](int64_t first, int64_t count) {
        const int64_t at = slice.offset + first;
        cpu_.kernels.adamw(k, a.gradient_scales[s], count, a.weights + at, a.gradients + at,
                           a.state[0] + at, a.state[1] + at, a.next_weights + at,
                           mirror == nullptr ? nullptr : mirror + at);
      });
      RoundMirror(cpu_, a, slice);
    }
    return absl::OkStatus();
  }

 private:
  const CpuContext& cpu_;
  const AdamWConfig config_;
  const std::vector<ParameterSlice> slices_;
};

}  // namespace

std::unique_ptr<Optimizer> MakeCpuAdamW(const CpuContext& context, const AdamWConfig& config,
                                        absl::Span<const ParameterSlice> slices) {
  return std::make_unique<CpuAdamW>(context, config, slices);
}

}  // namespace penstock
