// The optimizers of compute/elementwise/ on the CPU, slice by slice.
#include <type_traits>
#include <variant>

#include "compute/cpu/flat_blocks.h"
#include "compute/cpu/optimizers.h"

namespace penstock {
namespace {

template <typename Config>
class CpuElementwise : public Optimizer {
 public:
  CpuElementwise(const CpuContext& context, const Config& config,
                 absl::Span<const ParameterSlice> slices)
      : cpu_(context),
        config_(config),
        updates_(UpdatesOf(config)),
        slices_(slices.begin(), slices.end()) {}

  absl::Span<const absl::string_view> state_names() const override { return StateNamesOf(config_); }

  absl::Status Step(const StepArguments& a) override {
    using Step = typename Config::Step;
    const Step decaying = updates_.At(a.learning_rate, a.update);
    Step other = decaying;
    other.LeaveOutDecay();
    Bf16* const mirror = a.rounding_key ? nullptr : a.next_bf16;
    for (size_t s = 0; s < slices_.size(); ++s) {
      const ParameterSlice& slice = slices_[s];
      ForFlat(cpu_, slice.count, [&](int64_t first, int64_t count) {
        const int64_t at = slice.offset + first;
        float* state[Step::kStates] = {};
        for (size_t i = 0; i < a.state.size(); ++i) state[i] = a.state[i] + at;
        cpu_.kernels.Elementwise<Step>()(slice.decays ? decaying : other, a.gradient_scales[s],
                                         count, a.weights + at, a.gradients + at, state,
                                         a.next_weights + at,
                                         mirror == nullptr ? nullptr : mirror + at);
      });
      RoundMirror(cpu_, a, slice);
    }
    return absl::OkStatus();
  }

 private:
  const CpuContext& cpu_;
  const Config config_;
  decltype(UpdatesOf(Config())) updates_;
  const std::vector<ParameterSlice> slices_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> MakeCpuOptimizer(
    CpuContext& context, const OptimizerConfig& config, absl::Span<const ParameterSlice> slices) {
  return std::visit(
      [&](const auto& each) -> absl::StatusOr<std::unique_ptr<Optimizer>> {
        using Config = std::decay_t<decltype(each)>;
        if constexpr (std::is_same_v<Config, MuonConfig>) {
          return MakeCpuMuon(context, each, slices);
        } else {
          return std::make_unique<CpuElementwise<Config>>(context, each, slices);
        }
      },
      config);
}

}  // namespace penstock
