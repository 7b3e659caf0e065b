// RemainingTime: how long a run will still take, judged by the steps that it has made.
//
//   seconds = steps left * median of the last steps
//           + cuts left * (median of the last steps that followed a cut - median of the last steps)
//
// The step after a cut holds what the cut took: its validation, its snapshot and the filling of the pipeline. The cut
// after the last step counts like any other. While no cut has been paid for, cuts count nothing.
//
// A state machine without clock or I/O; thread-compatible.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "coordinator/step_times.h"

namespace penstock {

class RemainingTime {
 public:
  // How many of the last steps of each kind count.
  static constexpr int64_t kWindow = 50;

  // A run whose last step is number `steps`, and that drains after those in `cuts`, which ascend.
  RemainingTime(int64_t steps, absl::Span<const int64_t> cuts);

  // `step` was done at `at_ns`, on one clock for all.
  void OnStep(int64_t step, int64_t at_ns);

  // Returns the median of the last steps: of those between cuts, or where all follow a cut, of these.
  std::optional<double> StepSeconds() const;
  // Returns the remaining seconds as of the last step; nothing before the second.
  std::optional<double> Seconds() const;

 private:
  int64_t steps_;
  std::vector<int64_t> cuts_;  // ascending
  StepTimes between_cuts_;
  StepTimes after_cuts_;
  int64_t step_ = 0;
};

}  // namespace penstock
