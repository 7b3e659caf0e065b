#include "studies/experiments/time_to_loss.h"

#include "base/check.h"

namespace penstock {

std::optional<double> TimeToLoss(absl::Span<const TimedLoss> curve, double loss) {
  for (size_t i = 0; i < curve.size(); ++i) {
    if (curve[i].loss > loss) continue;
    if (i == 0) return curve[i].time;
    const TimedLoss& before = curve[i - 1];
    const double part = (before.loss - loss) / (before.loss - curve[i].loss);
    return before.time + part * (curve[i].time - before.time);
  }
  return std::nullopt;
}

double LossAt(absl::Span<const TimedLoss> curve, double time) {
  PENSTOCK_CHECK(!curve.empty());
  for (size_t i = 0; i < curve.size(); ++i) {
    if (curve[i].time < time) continue;
    if (i == 0 || curve[i].time == time) return curve[i].loss;
    const TimedLoss& before = curve[i - 1];
    const double part = (time - before.time) / (curve[i].time - before.time);
    return before.loss + part * (curve[i].loss - before.loss);
  }
  return curve.back().loss;
}

TimedCurve MeanOf(absl::Span<const TimedCurve> curves) {
  PENSTOCK_CHECK(!curves.empty());
  TimedCurve mean = curves.front();
  for (size_t i = 0; i < mean.size(); ++i) {
    mean[i].loss = 0.0;
    for (const TimedCurve& curve : curves) mean[i].loss += curve[i].loss;
    mean[i].loss /= static_cast<double>(curves.size());
  }
  return mean;
}

}  // namespace penstock
