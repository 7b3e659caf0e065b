// AdamW; see AdamWConfig for the formula.
#include <array>
#include <cmath>

#include "compute/cpu/flat_blocks.h"
#include "compute/cpu/optimizers.h"

namespace penstock {
namespace {

constexpr std::array<absl::string_view, 2> kStateNames = {"exp_avg", "exp_avg_sq"};

class CpuAdamW : public Optimizer {
 public:
  CpuAdamW(const CpuContext& context, const AdamWConfig& config) : cpu_(context), config_(config) {}

  absl::Span<const absl::string_view> state_names() const override { return kStateNames; }

  void Step(const StepArguments& a, absl::Span<const ParameterSlice> slices) override {
    AdamWConstants k = Constants(a);
    for (const ParameterSlice& slice : slices) {
      k.keep =
          slice.decays ? static_cast<float>(1.0 - a.learning_rate * config_.weight_decay) : 1.0f;
      ForFlat(cpu_, slice.count, [&](int64_t first, int64_t count) {
        const int64_t at = slice.offset + first;
        cpu_.kernels.adamw(k, count, a.weights + at, a.gradients + at, a.state[0] + at,
                           a.state[1] + at, a.next_weights + at,
                           a.next_bf16 == nullptr ? nullptr : a.next_bf16 + at);
      });
    }
  }

 private:
  // Bias corrections in double: 1 - beta^t loses most of its digits in float when t is small.
  AdamWConstants Constants(const StepArguments& a) const {
    const auto t = static_cast<double>(a.update);
    AdamWConstants k;
    k.gradient_scale = a.gradient_scale;
    k.beta1 = static_cast<float>(config_.beta1);
    k.beta2 = static_cast<float>(config_.beta2);
    k.rest1 = static_cast<float>(1.0 - config_.beta1);
    k.rest2 = static_cast<float>(1.0 - config_.beta2);
    k.keep = 1.0f;
    k.rate = static_cast<float>(a.learning_rate / (1.0 - std::pow(config_.beta1, t)));
    k.root_scale = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(config_.beta2, t)));
    k.epsilon = static_cast<float>(config_.epsilon);
    return k;
  }

  const CpuContext& cpu_;
  const AdamWConfig config_;
};

}  // namespace

std::unique_ptr<Optimizer> MakeCpuAdamW(const CpuContext& context, const AdamWConfig& config) {
  return std::make_unique<CpuAdamW>(context, config);
}

}  // namespace penstock
