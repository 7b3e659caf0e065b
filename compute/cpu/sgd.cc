// Stochastic gradient descent with momentum; see SgdConfig for the formula.
#include "compute/cpu/flat_blocks.h"
#include "compute/cpu/optimizers.h"

namespace penstock {
namespace {

class CpuSgd : public Optimizer {
 public:
  CpuSgd(const CpuContext& context, const SgdConfig& config,
         absl::Span<const ParameterSlice> slices)
      : cpu_(context), config_(config), slices_(slices.begin(), slices.end()) {}

  absl::Span<const absl::string_view> state_names() const override { return StateNamesOf(config_); }

  absl::Status Step(const StepArguments& a) override {
    const SgdConstants decaying = ConstantsOf(config_, a.learning_rate);
    SgdConstants other = decaying;
    other.weight_decay = 0.0f;
    Bf16* const mirror = a.rounding_key ? nullptr : a.next_bf16;
    for (size_t s = 0; s < slices_.size(); ++s) {
      const ParameterSlice& slice = slices_[s];
      const SgdConstants& k = slice.decays ? decaying : other;
      ForFlat(cpu_, slice.count, [&](int64_t first, int64_t count) {
        const int64_t at = slice.offset + first;
        cpu_.kernels.sgd(k, a.gradient_scales[s], count, a.weights + at, a.gradients + at,
                         a.state.empty() ? nullptr : a.state[0] + at, a.next_weights + at,
                         mirror == nullptr ? nullptr : mirror + at);
      });
      RoundMirror(cpu_, a, slice);
    }
    return absl::OkStatus();
  }

 private:
  const CpuContext& cpu_;
  const SgdConfig config_;
  const std::vector<ParameterSlice> slices_;
};

}  // namespace

std::unique_ptr<Optimizer> MakeCpuSgd(const CpuContext& context, const SgdConfig& config,
                                      absl::Span<const ParameterSlice> slices) {
  return std::make_unique<CpuSgd>(context, config, slices);
}

}  // namespace penstock
