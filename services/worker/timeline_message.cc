#include "services/worker/timeline_message.h"

#include <algorithm>
#include <vector>

namespace penstock {
namespace {

v1::TimelineSpan ToMessage(const Span& span) {
  v1::TimelineSpan message;
  message.set_worker(span.worker.value);
  message.set_lane(static_cast<v1::TimelineLane>(span.lane));
  message.set_wait(static_cast<v1::WaitCause>(span.wait));
  message.set_op(static_cast<v1::ActionKind>(span.action.kind));
  message.set_index(span.action.index);
  message.set_microbatch(span.action.microbatch);
  message.set_start_ns(span.start_ns);
  message.set_end_ns(span.end_ns);
  return message;
}

}  // namespace

v1::GetRunTimelineResponse ToMessage(const Timeline& timeline, int64_t bytes_max) {
  std::vector<const Span*> spans;
  for (const Span& span : timeline.spans) spans.push_back(&span);
  std::stable_sort(spans.begin(), spans.end(),
                   [](const Span* a, const Span* b) { return a->start_ns < b->start_ns; });
  // Tag and length of an element take two bytes: a span has fewer than 128.
  constexpr int64_t kElementOverheadBytes = 2;
  std::vector<v1::TimelineSpan> latest;
  int64_t bytes = 0;
  for (auto span = spans.rbegin(); span != spans.rend(); ++span) {
    v1::TimelineSpan message = ToMessage(**span);
    bytes += static_cast<int64_t>(message.ByteSizeLong()) + kElementOverheadBytes;
    if (bytes > bytes_max) break;
    latest.push_back(std::move(message));
  }
  v1::GetRunTimelineResponse response;
  response.mutable_spans()->Reserve(static_cast<int>(latest.size()));
  for (auto span = latest.rbegin(); span != latest.rend(); ++span) {
    *response.add_spans() = std::move(*span);
  }
  return response;
}

}  // namespace penstock
