// What a run costs on the devices of a file (job/profile/device_times.h), for the simulator and for emulated workers, which
// so count in the same times.
//
// Plain functions.
#pragma once

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "job/resolve.h"
#include "penstock/v1/device_times.pb.h"
#include "schedule/simulate.h"

namespace penstock {

// `topology`: that of ScheduleOptionsOf. `layers`: by stage of it.
// Errors: InvalidArgument: those of StageCostsOf; `speeds` that are not one for each worker, a link of a worker
// that there is not.
absl::StatusOr<SimulationCosts> RunCostsOf(const v1::DeviceTimes& times, const ResolvedJob& job,
                                           const Topology& topology,
                                           absl::Span<const LayerRange> layers);

// The bytes that a run sends between its workers. Of losses and other small numbers nothing is counted.
Traffic TrafficOf(const ResolvedJob& job, const Topology& topology,
                  absl::Span<const LayerRange> layers);

}  // namespace penstock
