// AdamW; see AdamWConfig for the formula.
#include "compute/cpu/optimizers.h"
#include "compute/cpu/slice_steps.h"

namespace penstock {
namespace {

class CpuAdamW : public Optimizer {
 public:
  CpuAdamW(const CpuContext& context, const AdamWConfig& config,
           absl::Span<const ParameterSlice> slices)
      : cpu_(context), config_(config), slices_(slices.begin(), slices.end()) {}

  absl::Span<const absl::string_view> state_names() const override { return StateNamesOf(config_); }

  absl::Status Step(const StepArguments& a) override {
    StepByMoments(cpu_, slices_, ConstantsOf(config_, a.learning_rate, a.update),
                  cpu_.kernels.adamw, a);
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
