#include "coordinator/remaining_time.h"

#include <algorithm>

namespace penstock {

RemainingTime::RemainingTime(int64_t steps, absl::Span<const int64_t> cuts)
    : steps_(steps),
      cuts_(cuts.begin(), cuts.end()),
      between_cuts_(/*first_step=*/0, cuts, kWindow),
      after_cuts_(/*first_step=*/0, cuts, kWindow, StepTimes::Which::kAfterCuts) {}

void RemainingTime::OnStep(int64_t step, int64_t at_ns) {
  between_cuts_.OnStep(step, at_ns);
  after_cuts_.OnStep(step, at_ns);
  step_ = step;
}

std::optional<double> RemainingTime::StepSeconds() const {
  const std::optional<double> between_cuts = between_cuts_.MedianSeconds();
  return between_cuts.has_value() ? between_cuts : after_cuts_.MedianSeconds();
}

std::optional<double> RemainingTime::Seconds() const {
  const std::optional<double> after_cut = after_cuts_.MedianSeconds();
  const std::optional<double> step = StepSeconds();
  if (!step.has_value()) return std::nullopt;
  const double cut = std::max(0.0, after_cut.value_or(*step) - *step);
  const auto cuts_left = cuts_.end() - std::lower_bound(cuts_.begin(), cuts_.end(), step_);
  return static_cast<double>(std::max<int64_t>(0, steps_ - step_)) * *step +
         static_cast<double>(cuts_left) * cut;
}

}  // namespace penstock
