// The timeline that a job's steps were to have, beside the one they have: the job's plan, simulated with the times that
// it was planned by or, without such, with the medians of what was measured.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "penstock/v1/cluster.pb.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace penstock {

// Where the times of a simulation are from.
enum class TimesSource {
  kPlan,          // prediction.times of the job
  kMeasurements,  // the medians of the first half of the steps, or of all of fewer than four
};

// Both sides of the longest row of whole steps without a cut inside, on the measured clock: they begin at the same moment.
struct ComparedSteps {
  TimesSource source = TimesSource::kMeasurements;
  int64_t steps = 0;
  int64_t first_step = 0;  // steps before the first of them
  // The mean of these steps.
  double measured_step_s = 0.0;
  double predicted_step_s = 0.0;
  Timeline measured;   // clipped to these steps
  Timeline predicted;  // the same

  // Positive if the run is slower than predicted.
  double error() const { return measured_step_s / predicted_step_s - 1.0; }
};

// `measured`: of any length, cuts and validations included.
// Errors: FailedPrecondition if it is of another number of workers than the plan, has no whole step, or lacks what the medians need; if the order is a recorded one, of
// which nothing is predicted; those of Simulate.
absl::StatusOr<ComparedSteps> CompareWithPrediction(const v1::GetJobResponse& job,
                                                    const Timeline& measured);

// The schedule of one step of the job's plan, from microbatch 0 on; of an asynchronous method it is drained at its ends.
// Errors: those of TopologyOfPlan and BuildSchedule.
absl::StatusOr<Schedule> StepOfPlan(const v1::GetJobResponse& job);

// Who feeds whom in the job's plan. Errors: those of ResolveJob; FailedPrecondition if the plan is not there yet.
absl::StatusOr<Topology> TopologyOfPlan(const v1::GetJobResponse& job);

}  // namespace penstock
