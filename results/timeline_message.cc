#include "results/timeline_message.h"

#include "base/status.h"

namespace penstock {

absl::StatusOr<Timeline> TimelineOf(const v1::GetTimelineResponse& response) {
  Timeline timeline;
  timeline.workers = response.workers();
  for (const v1::TimelineSpan& span : response.spans()) {
    // The numbers of enums; CheckTimeline does the rest.
    const bool known = span.lane() >= 0 && span.lane() < kLanes && span.wait() >= 0 &&
                       span.wait() < kWaits && span.op() >= 0 && span.op() < kActionKinds;
    if (!known) {
      return absl::UnimplementedError(
          "the timeline holds a kind of span that this version does not know");
    }
    timeline.spans.push_back(
        {.worker = WorkerId(span.worker()),
         .lane = static_cast<Lane>(span.lane()),
         .wait = static_cast<Wait>(span.wait()),
         .action = {static_cast<ActionKind>(span.op()), span.index(), span.microbatch()},
         .start_ns = span.start_ns(),
         .end_ns = span.end_ns()});
  }
  PENSTOCK_RETURN_IF_ERROR(CheckTimeline(timeline));
  return timeline;
}

}  // namespace penstock
