// Curve: how far a run is from the optimum, over time.
//
// Plain values.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace penstock {

struct CurvePoint {
  int64_t tick = 0;     // ticks done
  int64_t updates = 0;  // block updates done
  double gap = 0.0;     // objective minus optimum; not finite once the run has diverged
};
using Curve = std::vector<CurvePoint>;  // by tick; begins with tick 0

// When a run looks at its objective, which costs more than an update does: at tick 0, at the budget,
// every `stride` ticks, and every `tail_stride` ticks in the last part, which decides the step size.
struct CurvePlan {
  int64_t ticks = 0;  // the budget; the run ends there
  int64_t stride = 1;
  int64_t tail_stride = 1;
  double tail_fraction = 0.2;

  int64_t tail_begin() const {
    return ticks - static_cast<int64_t>(std::ceil(tail_fraction * static_cast<double>(ticks)));
  }
  bool LooksAt(int64_t tick) const {
    return tick == 0 || tick == ticks || tick % (tick >= tail_begin() ? tail_stride : stride) == 0;
  }
};

// A run that has come so much further from the optimum than its start will not return; it is not followed
// any more, and its gaps from there on are infinite.
inline constexpr double kDivergedRatio = 1e6;

// Collects the points of a run.
class CurveRecorder {
 public:
  explicit CurveRecorder(const CurvePlan& plan) : plan_(plan) {}

  bool Wants(int64_t tick) const { return plan_.LooksAt(tick); }
  // Returns whether the run is to go on.
  bool Add(const CurvePoint& point) {
    curve_.push_back(point);
    return std::isfinite(point.gap) && point.gap <= kDivergedRatio * curve_.front().gap;
  }
  // The whole curve; where the run stopped early, the points to come are infinite.
  Curve Finish() {
    for (int64_t tick = curve_.back().tick + 1; tick <= plan_.ticks; ++tick) {
      if (!plan_.LooksAt(tick)) continue;
      curve_.push_back({tick, curve_.back().updates, std::numeric_limits<double>::infinity()});
    }
    return std::move(curve_);
  }

 private:
  const CurvePlan plan_;
  Curve curve_;
};

}  // namespace penstock
