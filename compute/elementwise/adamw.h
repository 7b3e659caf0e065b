// Adam with bias correction and decoupled weight decay: Loshchilov and Hutter, arXiv 1711.05101.
//   m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
//   w = w (1 - rate weight_decay) - rate m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon)
#pragma once

#include <cmath>
#include <cstdint>

#include "compute/elementwise/step.h"

namespace penstock {

struct AdamWStep {
  static constexpr int kStates = 2;
  static constexpr bool kMayLackState = false;
  float beta1, beta2;
  float rest1, rest2;  // 1 - beta, rounded once
  float keep;          // 1 - rate * weight decay, of parameters that decay
  float rate;          // of the update, first bias correction included
  float root_scale;    // 1 / sqrt(second bias correction)
  float epsilon;

  PENSTOCK_ELEMENTWISE void LeaveOutDecay() { keep = 1.0f; }

  template <typename Number>
  PENSTOCK_ELEMENTWISE Number Direction(Number /*g*/, Number m) const {
    return m * rate;
  }
  template <typename Math, typename Number>
  PENSTOCK_ELEMENTWISE Number Next(Number w, Number g, Number* state) const {
    return StepByMoments<Math>(*this, w, g, state);
  }
};

struct AdamWConfig {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;

  using Step = AdamWStep;
  static constexpr const char* kStates[] = {"exp_avg", "exp_avg_sq"};
  int states() const { return 2; }
  const char* kind() const { return "adamw"; }
  double& main_momentum() { return beta1; }

  friend bool operator==(const AdamWConfig& a, const AdamWConfig& b) {
    return a.beta1 == b.beta1 && a.beta2 == b.beta2 && a.epsilon == b.epsilon &&
           a.weight_decay == b.weight_decay;
  }
};

class AdamWUpdates {
 public:
  explicit AdamWUpdates(const AdamWConfig& config) : config_(config) {}
  // Bias corrections in double: 1 - beta^t loses most of its digits in float when t is small.
  AdamWStep At(double learning_rate, int64_t update) const {
    const auto t = static_cast<double>(update);
    return {static_cast<float>(config_.beta1),
            static_cast<float>(config_.beta2),
            static_cast<float>(1.0 - config_.beta1),
            static_cast<float>(1.0 - config_.beta2),
            static_cast<float>(1.0 - learning_rate * config_.weight_decay),
            static_cast<float>(learning_rate / (1.0 - std::pow(config_.beta1, t))),
            static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(config_.beta2, t))),
            static_cast<float>(config_.epsilon)};
  }

 private:
  const AdamWConfig config_;
};
inline AdamWUpdates UpdatesOf(const AdamWConfig& config) { return AdamWUpdates(config); }

}  // namespace penstock
