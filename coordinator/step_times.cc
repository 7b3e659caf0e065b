#include "coordinator/step_times.h"

#include <algorithm>
#include <vector>

namespace penstock {

StepTimes::StepTimes(int64_t first_step, absl::Span<const int64_t> cuts, int64_t window,
                     Which which)
    : first_step_(first_step),
      cuts_(cuts.begin(), cuts.end()),
      window_(static_cast<size_t>(window)),
      which_(which) {}

bool StepTimes::OnStep(int64_t step, int64_t at_ns) {
  const bool follows = last_step_ == step - 1 && step - 1 > first_step_;
  const bool after_cut = std::binary_search(cuts_.begin(), cuts_.end(), step - 1);
  const bool counts = follows && after_cut == (which_ == Which::kAfterCuts) && at_ns > last_ns_;
  if (counts) {
    seconds_.push_back(static_cast<double>(at_ns - last_ns_) * 1e-9);
    if (seconds_.size() > window_) seconds_.pop_front();
  }
  last_step_ = step;
  last_ns_ = at_ns;
  return counts;
}

std::optional<double> StepTimes::MedianSeconds() const {
  if (seconds_.empty()) return std::nullopt;
  std::vector<double> sorted(seconds_.begin(), seconds_.end());
  const auto middle = sorted.begin() + static_cast<int64_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

}  // namespace penstock
