// Stochastic gradient descent, with momentum if it is not 0.
//   g = g + weight_decay * w;  v = momentum * v + g;  w -= rate * v,
// or with Nesterov's momentum w -= rate * (g + momentum * v), in the form of Sutskever et al., ICML 2013, that PyTorch has.
#pragma once

#include <cstdint>

#include "compute/elementwise/step.h"

namespace penstock {

struct SgdStep {
  static constexpr int kStates = 1;
  static constexpr bool kMayLackState = true;
  float momentum;
  float weight_decay;
  float rate;
  bool nesterov;

  PENSTOCK_ELEMENTWISE void LeaveOutDecay() { weight_decay = 0.0f; }

  // `velocity`: null without momentum.
  template <typename Math, typename Number>
  PENSTOCK_ELEMENTWISE Number Next(Number w, Number g, Number* velocity) const {
    g = g + w * weight_decay;
    if (velocity != nullptr) {
      const Number v = *velocity * momentum + g;
      *velocity = v;
      g = nesterov ? g + v * momentum : v;
    }
    return w - g * rate;
  }
};

struct SgdConfig {
  double momentum = 0.0;
  double weight_decay = 0.0;
  bool nesterov = false;

  using Step = SgdStep;
  static constexpr const char* kStates[] = {"momentum"};
  int states() const { return momentum != 0.0 ? 1 : 0; }
  const char* kind() const { return momentum != 0.0 ? "sgd with momentum" : "sgd"; }
  double& main_momentum() { return momentum; }

  friend bool operator==(const SgdConfig& a, const SgdConfig& b) {
    return a.momentum == b.momentum && a.weight_decay == b.weight_decay && a.nesterov == b.nesterov;
  }
};

class SgdUpdates {
 public:
  explicit SgdUpdates(const SgdConfig& config) : config_(config) {}
  SgdStep At(double learning_rate, int64_t /*update*/) const {
    return {static_cast<float>(config_.momentum), static_cast<float>(config_.weight_decay),
            static_cast<float>(learning_rate), config_.nesterov};
  }

 private:
  const SgdConfig config_;
};
inline SgdUpdates UpdatesOf(const SgdConfig& config) { return SgdUpdates(config); }

}  // namespace penstock
