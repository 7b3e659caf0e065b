// Requirements of pipeline.order "recorded" on a job and its plan (the order: schedule/ready_order.h).
//
// Plain functions.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "job/resolve.h"
#include "schedule/ready_order.h"

namespace penstock {

// All logs of a run together: they are part of its result, which travels in one control message.
inline constexpr int64_t kOrderBytesMax = 128 << 10;
// Bound on the messages in flight on an edge, and so on the microbatches in flight on a stage.
inline constexpr int64_t kRecordedCapacityMax = 256;

// Which methods may take what is ready: those whose order is a matter of speed alone, or of
// versions that can be counted from a log. OK for a job in static order.
// Errors: InvalidArgument with the reason.
absl::Status CheckRecordable(const ResolvedJob& job, const ScheduleOptions& options);

// Errors: InvalidArgument if the logs of a run over `cuts` on `topology` may be larger than kOrderBytesMax.
absl::Status CheckOrderSize(const ResolvedJob& job, const Topology& topology, int64_t first_step,
                            absl::Span<const Cut> cuts);

// The microbatches that a stage may have in flight, if it has `static_peak` in the static order.
int64_t InFlightMax(const ResolvedJob& job, int64_t static_peak);

// Returns the options of a worker's order over `range`. `in_flight_max`: by stage.
ReadyOrder::Options ReadyOrderOptionsOf(const ResolvedJob& job, const ScheduleOptions& options,
                                        MicrobatchRange range, std::vector<int64_t> in_flight_max);

}  // namespace penstock
