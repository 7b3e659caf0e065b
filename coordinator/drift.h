// Drift: whether what a run measures has left what was predicted of it.
//
// A measure is off if it differs from the prediction by more than a part of it, up or down: a plan is as wrong about a
// step that takes half as about one that takes twice. A turn is reported once a whole window of steps lies behind the
// turn before, or behind the start, so that one slow step says nothing, and a measure that swings about the bound is
// reported once a window at most.
//
// A state machine without clock or I/O; thread-compatible.
#pragma once

#include <cstdint>

namespace penstock {

// Returns how far `measured` is from `predicted`, as a part of it: 1.1 is "+110 %". REQUIRES: predicted > 0.
double DriftOf(double predicted, double measured);

class Drift {
 public:
  enum class Turn : uint8_t {
    kNone,
    kLeaves,   // it was inside, and is off now
    kReturns,  // it was off, and is inside again
  };

  // REQUIRES: predicted > 0, bound > 0, window > 0.
  Drift(double predicted, double bound, int64_t window)
      : predicted_(predicted), bound_(bound), window_(window) {}

  // Takes one more step; `measured` is the median of the last `window`, or of as many as there are.
  Turn OnStep(double measured);

  bool off() const { return off_; }

 private:
  double predicted_;
  double bound_;
  int64_t window_;
  int64_t steps_ = 0;  // since the last turn
  bool off_ = false;
};

}  // namespace penstock
