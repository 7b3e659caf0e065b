// StepTimes: how long the last steps of a run took.
//
// It counts the steps between cuts, without the first of a run: a step that follows a cut holds the validation, the
// snapshot and the filling of the pipeline, which no predicted step has. Or it counts just those that follow a cut.
//
// A state machine without clock or I/O; thread-compatible.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "absl/types/span.h"

namespace penstock {

class StepTimes {
 public:
  enum class Which { kBetweenCuts, kAfterCuts };

  // Looks back on `window` steps. `first_step`: none before the one after it counts. `cuts`: steps after which the run
  // drains. REQUIRES: window > 0, and the cuts ascend.
  StepTimes(int64_t first_step, absl::Span<const int64_t> cuts, int64_t window,
            Which which = Which::kBetweenCuts);

  // `step` was done at `at_ns`, on one clock for all. Returns whether it counts.
  bool OnStep(int64_t step, int64_t at_ns);

  // Returns the median of the window; nothing before the first step that counts.
  std::optional<double> MedianSeconds() const;

 private:
  int64_t first_step_;
  std::vector<int64_t> cuts_;  // ascending
  size_t window_;
  Which which_;
  std::optional<int64_t> last_step_;
  int64_t last_ns_ = 0;
  std::deque<double> seconds_;  // the latest at the back
};

}  // namespace penstock
