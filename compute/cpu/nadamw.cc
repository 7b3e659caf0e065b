// NAdamW; see NAdamWConfig for the formula.
#include "compute/cpu/optimizers.h"
#include "compute/cpu/slice_steps.h"

namespace penstock {
namespace {

class CpuNAdamW : public Optimizer {
 public:
  CpuNAdamW(const CpuContext& context, const NAdamWConfig& config,
            absl::Span<const ParameterSlice> slices)
      : cpu_(context), config_(config), product_(config), slices_(slices.begin(), slices.end()) {}

  absl::Span<const absl::string_view> state_names() const override { return StateNamesOf(config_); }

  absl::Status Step(const StepArguments& a) override {
    StepByMoments(cpu_, slices_, ConstantsOf(config_, product_, a.learning_rate, a.update),
                  cpu_.kernels.nadamw, a);
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
