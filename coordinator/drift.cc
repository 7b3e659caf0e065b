#include "coordinator/drift.h"

#include <cmath>

namespace penstock {

double DriftOf(double predicted, double measured) { return measured / predicted - 1.0; }

Drift::Turn Drift::OnStep(double measured) {
  if (++steps_ < window_) return Turn::kNone;
  const bool off = std::abs(DriftOf(predicted_, measured)) > bound_;
  if (off == off_) return Turn::kNone;
  off_ = off;
  steps_ = 0;
  return off ? Turn::kLeaves : Turn::kReturns;
}

}  // namespace penstock
