// A timeline's message as a value.
//
// A pure function.
#pragma once

#include "absl/status/statusor.h"
#include "penstock/v1/cluster.pb.h"
#include "schedule/timeline.h"

namespace penstock {

// Errors: Unimplemented if a span is of a kind that this version does not know; InvalidArgument if it
// cannot be (CheckTimeline).
absl::StatusOr<Timeline> TimelineOf(const v1::GetTimelineResponse& response);

}  // namespace penstock
