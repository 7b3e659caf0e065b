#include "studies/experiments/loss_curve.h"

#include <algorithm>
#include <limits>

namespace penstock {
namespace {

double RunningMean(absl::Span<const double> losses, int64_t microbatch, int64_t window) {
  if (microbatch >= static_cast<int64_t>(losses.size())) {
    return std::numeric_limits<double>::infinity();
  }
  const int64_t count = std::min(window, microbatch + 1);
  double sum = 0.0;
  for (int64_t m = microbatch + 1 - count; m <= microbatch; ++m) sum += losses[m];
  return sum / static_cast<double>(count);
}

}  // namespace

Curve LossOverTicks(absl::Span<const double> losses, const TickSequence& sequence, int64_t window) {
  Curve curve;
  int64_t updates = 0;
  for (const TickEvent& event : sequence.events) {
    if (event.is_backward) {
      ++updates;
    } else if (event.stage == sequence.stages - 1) {
      curve.push_back({event.tick + 1, updates, RunningMean(losses, event.microbatch, window)});
    }
  }
  return curve;
}

int64_t TailBegin(const Curve& curve) { return CurvePlan{.ticks = curve.back().tick}.tail_begin(); }

}  // namespace penstock
