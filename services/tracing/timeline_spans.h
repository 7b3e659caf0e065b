// TimelineSpans: the steps that a timeline holds, as spans of their job's trace.
//
//   job (its root, which is sent by the coordinator)
//     timeline of worker-0
//       0F3, 0SEND_F3, wait for input, ...    one for each span of the timeline
//
// A forward links to that of the stage before, whose activation it takes; a backward to the one whose gradient it takes.
//
// Pure functions.
#pragma once

#include <vector>

#include "penstock/v1/cluster.pb.h"
#include "schedule/drawn_timeline.h"
#include "services/tracing/span.h"

namespace penstock {

// A timeline's clock begins anywhere: it is set by the last step that the coordinator heard of, as `job` has it, and so
// right within the delay of a worker's report. Ids follow from what a span is and when it began on that clock.
// `drawn`: the timeline, with its workers' names and who feeds whom.
std::vector<TraceSpan> TimelineSpans(const v1::GetJobResponse& job, const DrawnTimeline& drawn);

}  // namespace penstock
