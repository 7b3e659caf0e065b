// NAdamW; see NAdamWConfig for the formula.
#include "compute/cpu/flat_blocks.h"
#include "compute/cpu/optimizers.h"

namespace penstock {
namespace {

class CpuNAdamW : public Optimizer {
 public:
  CpuNAdamW(const CpuContext& context, const NAdamWConfig& config,
            absl::Span<const ParameterSlice> slices)
      : cpu_(context), config_(config), product_(config), slices_(slices.begin(), slices.end()) {}

  absl::Span<const absl::string_view> state_names() const override { return StateNamesOf(config_); }

  absl::Status Step(const StepArguments& a) override {
    const NAdamWConstants decaying = ConstantsOf(config_, product_, a.learning_rate, a.update);
    NAdamWConstants other = decaying;
    other.keep = 1.0f;
    Bf16* const mirror = a.rounding_key ? nullptr : a.next_bf16;
    for (size_t s = 0; s < slices_.size(); ++s) {
      const ParameterSlice& slice = slices_[s];
      const NAdamWConstants& k = slice.decays ? decaying : other;
      ForFlat(cpu_, slice.count, [&](int64_t first, int64_t count) {
        const int64_t at = slice.offset + first;
        cpu_.kernels.nadamw(k, a.gradient_scales[s], count, a.weights + at, a.gradients + at,
                            a.state[0] + at, a.state[1] + at, a.next_weights + at,
                            mirror == nullptr ? nullptr : mirror + at);
      });
      RoundMirror(cpu_, a, slice);
    }
    return absl::OkStatus();
  }

 private:
  const CpuContext& cpu_;
  const NAdamWConfig config_;
  MomentumProduct product_;
  const std::vector<ParameterSlice> slices_;
};

}  // namespace

std::unique_ptr<Optimizer> MakeCpuNAdamW(const CpuContext& context, const NAdamWConfig& config,
                                         absl::Span<const ParameterSlice> slices) {
  return std::make_unique<CpuNAdamW>(context, config, slices);
}

}  // namespace penstock
