// Stochastic gradient descent with momentum; see SgdConfig for the formula.
#include <array>

#include "compute/cpu/flat_blocks.h"
#include "compute/cpu/optimizers.h"

namespace penstock {
namespace {

constexpr std::array<absl::string_view, 1> kStateNames = {"momentum"};

class CpuSgd : public Optimizer {
 public:
  CpuSgd(const CpuContext& context, const SgdConfig& config) : cpu_(context), config_(config) {}

  absl::Span<const absl::string_view> state_names() const override {
    return absl::MakeConstSpan(kStateNames.data(), has_momentum() ? 1 : 0);
  }

  void Step(const StepArguments& a, absl::Span<const ParameterSlice> slices) override {
    for (const ParameterSlice& slice : slices) {
      SgdConstants k;
      k.gradient_scale = a.gradient_scale;
      k.momentum = static_cast<float>(config_.momentum);
      k.weight_decay = slice.decays ? static_cast<float>(config_.weight_decay) : 0.0f;
      k.rate = static_cast<float>(a.learning_rate);
      ForFlat(cpu_, slice.count, [&](int64_t first, int64_t count) {
        const int64_t at = slice.offset + first;
        cpu_.kernels.sgd(k, count, a.weights + at, a.gradients + at,
                         has_momentum() ? a.state[0] + at : nullptr, a.next_weights + at,
                         a.next_bf16 == nullptr ? nullptr : a.next_bf16 + at);
      });
    }
  }

 private:
  bool has_momentum() const { return config_.momentum != 0.0; }

  const CpuContext& cpu_;
  const SgdConfig config_;
};

}  // namespace

std::unique_ptr<Optimizer> MakeCpuSgd(const CpuContext& context, const SgdConfig& config) {
  return std::make_unique<CpuSgd>(context, config);
}

}  // namespace penstock
