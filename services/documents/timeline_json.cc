#include "services/documents/timeline_json.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/status.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kNsPerUs = 1000;

Json SpanJson(const Span& span) {
  const bool waits = span.lane == Lane::kWait;
  return {span.worker.value,
          std::string(LaneName(span.lane)),
          std::string(OpName(span.action.op)),
          HasIndex(span.action.op) ? Json(span.action.index) : Json(),
          HasMicrobatch(span.action.op) ? Json(span.action.microbatch) : Json(),
          waits ? Json(std::string(WaitName(span.wait))) : Json(),
          span.start_ns / kNsPerUs,
          span.end_ns / kNsPerUs};
}

}  // namespace

absl::StatusOr<Timeline> TimelineOf(const v1::GetTimelineResponse& response) {
  Timeline timeline;
  timeline.workers = response.workers();
  for (const v1::TimelineSpan& span : response.spans()) {
    // The numbers of enums; CheckTimeline does the rest.
    const bool known = span.lane() >= 0 && span.lane() < kLanes && span.wait() >= 0 &&
                       span.wait() < kWaits && span.op() >= 0 && span.op() < kOps;
    if (!known) {
      return absl::UnimplementedError(
          "the timeline holds a kind of span that this version does not know");
    }
    timeline.spans.push_back(
        {.worker = WorkerId(span.worker()),
         .lane = static_cast<Lane>(span.lane()),
         .wait = static_cast<Wait>(span.wait()),
         .action = {static_cast<Op>(span.op()), span.index(), span.microbatch()},
         .start_ns = span.start_ns(),
         .end_ns = span.end_ns()});
  }
  PENSTOCK_RETURN_IF_ERROR(CheckTimeline(timeline));
  return timeline;
}

Json TimelineJson(const Timeline& timeline, size_t spans_max) {
  std::vector<const Span*> spans;
  for (const Span& span : timeline.spans) {
    if (span.lane != Lane::kTransfer) spans.push_back(&span);
  }
  std::stable_sort(spans.begin(), spans.end(),
                   [](const Span* a, const Span* b) { return a->start_ns < b->start_ns; });
  const size_t first = spans.size() - std::min(spans.size(), spans_max);
  Json rows = Json::array();
  for (size_t i = first; i < spans.size(); ++i) rows.push_back(SpanJson(*spans[i]));
  return {{"workers", timeline.workers},
          {"columns",
           {"worker", "lane", "action", "stage", "microbatch", "wait", "start_us", "end_us"}},
          {"spans", rows}};
}

}  // namespace penstock
