// Computes what a run costs on the devices of a file (job/profile/device_times.h), for the simulator and for emulated
// workers, so that both count in the same times.
//
// Plain functions.
#pragma once

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "job/resolve.h"
#include "penstock/v1/device_times.pb.h"
#include "schedule/simulate.h"

namespace penstock {

// `topology` is that of ScheduleOptionsOf; `layers` is by stage of it.
// Errors: InvalidArgument: those of StageCostsOf; `speeds` without exactly one for each worker; a link of a worker that
// does not exist.
absl::StatusOr<SimulationCosts> RunCostsOf(const v1::DeviceTimes& times, const ResolvedJob& job,
                                           const Topology& topology,
                                           absl::Span<const LayerRange> layers);

// Returns by layer of a stage how much of the time of its W is over when W of that layer, and of those behind it, is.
// Errors: those of StageCostsOf.
absl::StatusOr<std::vector<double>> WeightPartsDone(const v1::DeviceTimes& times,
                                                    const ModelGraph& model, LayerRange layers);

// Adds what the cuts at both ends of a stage take of its passes: bundles that are copied together and taken apart.
void AddBundles(const v1::BundleTimes& times, const ResolvedJob& job, LayerRange layers,
                StageCosts& costs);

// Returns the bytes that a run sends between its workers. It does not count losses and other small numbers.
Traffic TrafficOf(const ResolvedJob& job, const Topology& topology,
                  absl::Span<const LayerRange> layers);

}  // namespace penstock
