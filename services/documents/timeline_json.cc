#include "services/documents/timeline_json.h"

#include <algorithm>
#include <string>
#include <vector>

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kNsPerUs = 1000;

Json SpanJson(const Span& span) {
  const bool waits = span.lane == Lane::kWait;
  return {span.worker.value,
          std::string(LaneName(span.lane)),
          std::string(ActionName(span.action.kind)),
          HasIndex(span.action.kind) ? Json(span.action.index) : Json(),
          HasMicrobatch(span.action.kind) ? Json(span.action.microbatch) : Json(),
          waits ? Json(std::string(WaitName(span.wait))) : Json(),
          span.start_ns / kNsPerUs,
          span.end_ns / kNsPerUs};
}

}  // namespace

Json TimelineJson(const Timeline& timeline, size_t spans_max) {
  std::vector<const Span*> spans;
  for (const Span& span : timeline.spans) {
    if (!RunsBeside(span.lane)) spans.push_back(&span);
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
