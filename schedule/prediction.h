// Prediction: how well the simulator predicts a run that was measured.
//
// The first half of a measured timeline gives the costs (medians of the actions' own times, waiting
// left out, and an overhead per action), the simulator turns them into the time of a step, and the
// second half says what it was. The planner relies on this difference being small.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "schedule/catalog/catalog.h"
#include "schedule/simulate.h"
#include "schedule/timeline.h"

namespace penstock {

// The costs that a timeline shows in [start_ns, end_ns): by stage the median time of each kind of
// compute action. All other time that is not waiting is `overhead_s`, spread evenly over all actions:
// messages, collectives, the gaps between spans, and what actions took beyond their median (a core
// shared with other threads makes a tail that no median shows). A link's latency is the median over the
// messages that somebody waited for, of both directions together; what a message costs its workers is in
// the overhead.
//
// REQUIRES: actions > 0.
// Errors: FailedPrecondition if an action of a stage does not occur in the window.
absl::StatusOr<SimulationCosts> MeasureCosts(const Timeline& timeline, const Topology& topology,
                                             int64_t start_ns, int64_t end_ns, int64_t actions);

// Steps that follow each other and have all their backwards in the timeline, and when each ended: the end of the last
// backward of its microbatches, over all stages.
struct WholeSteps {
  int64_t first = 0;  // the number of steps before them
  std::vector<int64_t> ends_ns;

  int64_t count() const { return static_cast<int64_t>(ends_ns.size()); }
};
// The longest row of them without a cut inside, of equally long ones the last. `cuts`: the steps done at each.
WholeSteps WholeStepsOf(const Timeline& timeline, const ScheduleOptions& options,
                        absl::Span<const int64_t> cuts);

struct StepPrediction {
  int64_t steps_measured = 0;    // in the second half
  double measured_step_s = 0.0;  // its mean time of a step
  double predicted_step_s = 0.0;
  double overhead_s = 0.0;  // per action

  // Positive if the run was slower than predicted.
  double error() const { return measured_step_s / predicted_step_s - 1.0; }
};

// REQUIRES: `timeline` is of one range of `method` (no cut inside) and CheckTimeline accepts it.
// Errors: FailedPrecondition if it has fewer than four whole steps; those of Simulate.
absl::StatusOr<StepPrediction> PredictSteps(const Timeline& timeline, const Method& method,
                                            const ScheduleOptions& options);

}  // namespace penstock
