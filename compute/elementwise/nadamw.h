// Adam with Nesterov's look-ahead (Dozat, ICLR workshop 2016) and decoupled weight decay: what the
// asynchronous Nesterov pipeline steps with (Ajanthan et al., ICML 2025, arXiv 2505.01099). The look-ahead
// gives a gradient, which may be late, the weight 1 - mu beside a mean that is taken one update further:
//   mu_t = beta1 (1 - 0.96^(t momentum_decay) / 2),  P_t = mu_1 ... mu_t
//   m, v as AdamW
//   w = w (1 - rate weight_decay)
//       - rate (mu_(t+1) m / (1 - P_(t+1)) + (1 - mu_t) g / (1 - P_t)) / (sqrt(v / (1 - beta2^t)) + epsilon)
#pragma once

#include <cmath>
#include <cstdint>

#include "compute/elementwise/step.h"

namespace penstock {

struct NAdamWStep {
  static constexpr int kStates = 2;
  static constexpr bool kMayLackState = false;
  float beta1, beta2;
  float rest1, rest2;  // 1 - beta, rounded once
  float keep;          // 1 - rate * weight decay, of parameters that decay
  float
      mean_rate;  // of the mean gradient: the rate, its factor of the next update, bias correction
  float gradient_rate;  // of the gradient itself: the rate, its discount, bias correction
  float root_scale;     // 1 / sqrt(second bias correction)
  float epsilon;

  PENSTOCK_ELEMENTWISE void LeaveOutDecay() { keep = 1.0f; }

  template <typename Number>
  PENSTOCK_ELEMENTWISE Number Direction(Number g, Number m) const {
    return m * mean_rate + g * gradient_rate;
  }
  template <typename Math, typename Number>
  PENSTOCK_ELEMENTWISE Number Next(Number w, Number g, Number* state) const {
    return StepByMoments<Math>(*this, w, g, state);
  }
};

struct NAdamWConfig {
  double beta1 = 0.99;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;
  double momentum_decay = 0.004;

  using Step = NAdamWStep;
  static constexpr const char* kStates[] = {"exp_avg", "exp_avg_sq"};
  int states() const { return 2; }
  const char* kind() const { return "nadamw"; }
  double& main_momentum() { return beta1; }

  friend bool operator==(const NAdamWConfig& a, const NAdamWConfig& b) {
    return a.beta1 == b.beta1 && a.beta2 == b.beta2 && a.epsilon == b.epsilon &&
           a.weight_decay == b.weight_decay && a.momentum_decay == b.momentum_decay;
  }
};

// The product P_t of the coefficients, a function of the update's number alone. Asked for one update after the
// other, as a run does, each answer costs one multiplication.
class MomentumProduct {
 public:
  explicit MomentumProduct(const NAdamWConfig& config) : config_(config) {}

  // mu_t
  double Coefficient(int64_t update) const {
    const double exponent = static_cast<double>(update) * config_.momentum_decay;
    return config_.beta1 * (1.0 - 0.5 * std::pow(0.96, exponent));
  }
  // P_t
  double UpTo(int64_t update) {
    if (update < update_) {
      update_ = 0;
      product_ = 1.0;
    }
    while (update_ < update) {
      product_ *= Coefficient(++update_);
      if (product_ > kProductMin) continue;
      product_ = 0.0;
      update_ = update;
    }
    return product_;
  }

 private:
  // Beside 1 nothing this small shows, so from there on it is 0 and costs nothing.
  static constexpr double kProductMin = 1e-30;

  const NAdamWConfig config_;
  int64_t update_ = 0;
  double product_ = 1.0;
};

class NAdamWUpdates {
 public:
  explicit NAdamWUpdates(const NAdamWConfig& config) : config_(config), product_(config) {}
  NAdamWStep At(double learning_rate, int64_t update) {
    const double now = product_.UpTo(update);
    const double coefficient = product_.Coefficient(update);
    const double next_coefficient = product_.Coefficient(update + 1);
    const double second = 1.0 - std::pow(config_.beta2, static_cast<double>(update));
    return {static_cast<float>(config_.beta1),
            static_cast<float>(config_.beta2),
            static_cast<float>(1.0 - config_.beta1),
            static_cast<float>(1.0 - config_.beta2),
            static_cast<float>(1.0 - learning_rate * config_.weight_decay),
            static_cast<float>(learning_rate * next_coefficient / (1.0 - now * next_coefficient)),
            static_cast<float>(learning_rate * (1.0 - coefficient) / (1.0 - now)),
            static_cast<float>(1.0 / std::sqrt(second)),
            static_cast<float>(config_.epsilon)};
  }

 private:
  const NAdamWConfig config_;
  MomentumProduct product_;
};
inline NAdamWUpdates UpdatesOf(const NAdamWConfig& config) { return NAdamWUpdates(config); }

}  // namespace penstock
