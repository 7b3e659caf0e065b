#include "compute/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace penstock {

namespace {

// Courses after the warm-up: each returns the part of the peak that the rate is.

double Steps(const LearningRate& rate, int64_t samples) {
  const auto passed = std::count_if(rate.milestone_samples.begin(), rate.milestone_samples.end(),
                                    [samples](int64_t at) { return samples > at; });
  return std::pow(rate.factor, static_cast<double>(passed));
}

double InverseSquareRoot(const LearningRate& rate, int64_t samples) {
  if (samples <= 0) return 1.0;
  return std::sqrt(static_cast<double>(rate.warmup_samples) / static_cast<double>(samples));
}

// How much of the way from `begin` to the end of the decay lies behind, from 0 to 1.
double Progress(const LearningRate& rate, int64_t begin, int64_t samples) {
  return std::clamp(
      static_cast<double>(samples - begin) / static_cast<double>(rate.total_samples - begin), 0.0,
      1.0);
}

// Goes down to the final fraction as `remaining` goes from 1 to 0.
double Falling(const LearningRate& rate, double remaining) {
  return rate.final_fraction + (1.0 - rate.final_fraction) * remaining;
}

double Linear(const LearningRate& rate, int64_t samples) {
  return Falling(rate, 1.0 - Progress(rate, rate.warmup_samples, samples));
}

double Cosine(const LearningRate& rate, int64_t samples) {
  const double progress = Progress(rate, rate.warmup_samples, samples);
  return Falling(rate, 0.5 * (1.0 + std::cos(std::numbers::pi * progress)));
}

double WarmUpStableDecay(const LearningRate& rate, int64_t samples) {
  const int64_t begin = std::max(rate.warmup_samples, rate.total_samples - rate.cooldown_samples);
  if (samples <= begin) return 1.0;
  return begin < rate.total_samples ? Falling(rate, 1.0 - Progress(rate, begin, samples)) : 1.0;
}

}  // namespace

double LearningRate::At(int64_t samples) const {
  if (samples < warmup_samples) {
    return peak * static_cast<double>(samples) / static_cast<double>(warmup_samples);
  }
  const bool has_time = total_samples > warmup_samples;
  switch (decay) {
    case Decay::kConstant:
      return peak;
    case Decay::kLinear:
      return has_time ? peak * Linear(*this, samples) : peak;
    case Decay::kCosine:
      return has_time ? peak * Cosine(*this, samples) : peak;
    case Decay::kStep:
      return peak * Steps(*this, samples);
    case Decay::kInverseSquareRoot:
      return peak * InverseSquareRoot(*this, samples);
    case Decay::kWsd:
      return peak * WarmUpStableDecay(*this, samples);
  }
  return peak;
}

}  // namespace penstock
