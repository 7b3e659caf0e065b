// DeviceTimes: how long a device that need not be there takes for each pass of a microbatch, how fast each worker's is,
// and what joins them.
//
// One file serves two ends: emulated workers wait these times instead of their own (worker/emulation.h,
// worker/emulated_links.h), and the simulator counts in them (planner/cost/run_costs.h, planner/cost/run_time.h). So an
// emulated run can be compared with its prediction.
//
// Plain functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "model/graph.h"
#include "penstock/v1/device_times.pb.h"
#include "schedule/simulate.h"

namespace penstock {

// No pass of a stage takes longer.
inline constexpr double kPassMsMax = 60'000.0;
// Errors: InvalidArgument naming the key: a time that is negative, not finite or above kPassMsMax.
absl::Status CheckPassMs(const std::string& key, double ms);

// Errors: InvalidArgument naming the key: neither `model` nor `layers`, or both; a layer named twice or not at all;
// a time (also of `bundles`) that is negative, not finite or above kPassMsMax; no time at all; a jitter below 0 or
// not below 1; a speed or bandwidth that is not positive or far from any; a link that is not of two workers, or of
// two that have one.
absl::Status CheckDeviceTimes(const v1::DeviceTimes& times);

// A worker is at most this many times faster than the device, or slower.
inline constexpr double kSpeedMax = 1000.0;

// `file_name` is for messages.
// Errors: InvalidArgument with file and key: what ReadYamlMessage and CheckDeviceTimes find.
absl::StatusOr<v1::DeviceTimes> ParseDeviceTimes(absl::string_view text,
                                                 const std::string& file_name);
// Errors also: NotFound, PermissionDenied.
absl::StatusOr<v1::DeviceTimes> ReadDeviceTimes(const std::string& path);

// "phantom, times 1a2b3c4d": with a digest that tells other times under the same name apart, so that profiles do
// not take one for the other.
std::string NameOfTimes(const v1::DeviceTimes& times);

// By stage, all workers of speed 1, without what its cuts take (planner/cost/run_costs.h). `layers`: of each stage,
// those of one replica of the model after the other.
// Errors: InvalidArgument naming a layer of the model that has no times, an entry that is of no
// layer, or a stage that takes longer than kPassMsMax.
absl::StatusOr<std::vector<StageCosts>> StageCostsOf(const v1::DeviceTimes& times,
                                                     const ModelGraph& model,
                                                     absl::Span<const LayerRange> layers);

}  // namespace penstock
