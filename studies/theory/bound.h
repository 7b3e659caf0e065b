// Theorem 4.1 of arXiv 2606.03498: how small RPD makes the gradient, on average over its updates.
//
// For 0 < gamma <= 1/L, S blocks, delays of at most delta and block gradients of norm at most G:
//
//   1/K sum_{k<K} E||grad f(w_k)||^2  <=  2 S D0 / (gamma K)              start
//                                       + gamma S L G^2                   noise
//                                       + gamma^2 L^2 delta^2 G^2         stale
//
// with D0 = f(w_0) - min f. Only the stale term knows of delays.
//
// Pure functions.
#pragma once

#include <cstdint>

namespace penstock {

struct BoundInput {
  int32_t stages = 1;
  int64_t delta = 0;
  double learning_rate = 0.0;   // gamma
  double smoothness = 0.0;      // L
  double start_gap = 0.0;       // D0
  double block_gradient = 0.0;  // G
};

struct BoundTerms {
  double start = 0.0;
  double noise = 0.0;
  double stale = 0.0;
  double sum() const { return start + noise + stale; }
};

// After `updates` block updates. REQUIRES: updates > 0.
BoundTerms TheoremBound(const BoundInput& input, int64_t updates);

// The step size that the theorem is tuned with: min{1/L, sqrt(2 D0 / (L G^2 K))}.
double TheoremStep(const BoundInput& input, int64_t updates);

}  // namespace penstock
