// The optimizers of compute/elementwise/ on the CPU, slice by slice.
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "compute/cpu/flat_blocks.h"
#include "compute/cpu/optimizers.h"

namespace penstock {
namespace {

template <typename Config>
class CpuElementwise : public Optimizer {
 public:
  CpuElementwise(const CpuContext& context, const Config& config,
                 absl::Span<const ParameterSlice> slices)
      : cpu_(context), config_(config), slices_(slices.begin(), slices.end()) {
    for (SliceGroup& group : GroupSlices(slices)) {
      Updates updates = UpdatesOf(group.Of(config));
      groups_.push_back({std::move(group), std::move(updates)});
    }
  }

  absl::Span<const absl::string_view> state_names() const override { return StateNamesOf(config_); }

  absl::Status Step(const StepArguments& a) override {
    for (auto& [group, updates] : groups_) {
      const ElementStep decaying = updates.At(a.learning_rate * group.rate_scale, a.update);
      ElementStep other = decaying;
      other.LeaveOutDecay();
      for (const size_t s : group.indices) {
        StepSlice(a, slices_[s], slices_[s].has_decay() ? decaying : other, a.gradient_scales[s]);
      }
    }
    return absl::OkStatus();
  }

 private:
  using ElementStep = typename Config::Step;
  using Updates = decltype(UpdatesOf(Config()));

  void StepSlice(const StepArguments& a, const ParameterSlice& slice, const ElementStep& step,
                 float scale) const {
    Bf16* const mirror = a.rounding_key ? nullptr : a.next_bf16;
    ForFlat(cpu_, slice.count, [&](int64_t first, int64_t count) {
      const int64_t at = slice.offset + first;
      float* state[ElementStep::kStates] = {};
      for (size_t i = 0; i < a.state.size(); ++i) state[i] = a.state[i] + at;
      cpu_.kernels.Elementwise<ElementStep>()(step, scale, count, a.weights + at, a.gradients + at,
                                              state, a.next_weights + at,
                                              mirror == nullptr ? nullptr : mirror + at);
    });
    RoundMirror(cpu_, a, slice);
  }

  const CpuContext& cpu_;
  const Config config_;
  const std::vector<ParameterSlice> slices_;
  std::vector<std::pair<SliceGroup, Updates>> groups_;
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
