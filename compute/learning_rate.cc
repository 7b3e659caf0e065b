#include "compute/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace penstock {

double LearningRate::At(int64_t samples) const {
  if (samples < warmup_samples) {
    return peak * static_cast<double>(samples) / static_cast<double>(warmup_samples);
  }
  if (decay == Decay::kStep) {
    const auto passed = std::count_if(milestone_samples.begin(), milestone_samples.end(),
                                      [samples](int64_t at) { return samples > at; });
    return peak * std::pow(factor, static_cast<double>(passed));
  }
  if (decay == Decay::kConstant || total_samples <= warmup_samples) {
    return peak;
  }
  const double progress = std::min(1.0, static_cast<double>(samples - warmup_samples) /
                                            static_cast<double>(total_samples - warmup_samples));
  const double remaining = decay == Decay::kLinear
                               ? 1.0 - progress
                               : 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  return peak * (final_fraction + (1.0 - final_fraction) * remaining);
}

}  // namespace penstock
