// MethodComparison: which of several methods reaches a loss first, and what each costs.
//
// Every method trained the same job with the same seed and data. Its curve is stamped with the time that its
// schedule takes on devices of given times (planner/cost/run_time.h), so that the answer does not depend on how many cores this
// machine has; the time measured here stands beside it. A loss is known at validations alone, so a speed-up is told with
// the least and the most that it may be.
//
// Pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "penstock/v1/cluster.pb.h"
#include "penstock/v1/device_times.pb.h"
#include "studies/theory/study.h"

namespace penstock {

// The devices that a finished job shows: for each pass the sum over stages of its median time, as times of the
// whole model. Errors: FailedPrecondition if a pass was not measured.
absl::StatusOr<v1::DeviceTimes> MeasuredTimes(const v1::GetJobResponse& job);

// A row for each job, and charts of validation loss over simulated time and over tokens. `until`: the loss to
// reach; without it the lowest that all of them reached.
// REQUIRES: the jobs differ in their method alone, have validations, and at least one of each.
// Errors: InvalidArgument (`times` do not fit the model); those of SimulateRun.
absl::StatusOr<StudyResult> CompareMethods(absl::Span<const v1::GetJobResponse> jobs,
                                           const v1::DeviceTimes& times,
                                           std::optional<double> until);

// Its result for people, with units. REQUIRES: `result` is of CompareMethods.
std::string ComparisonText(const StudyResult& result);

}  // namespace penstock
