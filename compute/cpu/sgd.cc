// Stochastic gradient descent with momentum; see SgdConfig for the formula.
#include "compute/cpu/optimizers.h"
#include "compute/cpu/slice_steps.h"

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
    StepSlices(cpu_, slices_, a, decaying, other,
               [&](const SgdConstants& k, float scale, int64_t at, int64_t count, Bf16* mirror) {
                 cpu_.kernels.sgd(k, scale, count, a.weights + at, a.gradients + at,
                                  a.state.empty() ? nullptr : a.state[0] + at, a.next_weights + at,
                                  mirror);
               });
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
