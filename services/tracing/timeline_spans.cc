#include "services/tracing/timeline_spans.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/effects.h"
#include "job/job_trace.h"
#include "schedule/message_flows.h"

namespace penstock {
namespace {

// Returns the number to add to the timeline's times.
int64_t UnixOffsetNs(const v1::GetJobResponse& job, const Timeline& timeline) {
  std::optional<int64_t> last_step_ns;
  for (const Span& span : timeline.spans) {
    if (span.lane == Lane::kCompute && span.action.kind == ActionKind::kUpdate) {
      last_step_ns = std::max(last_step_ns.value_or(span.end_ns), span.end_ns);
    }
  }
  return job.result().last_step_unix_ms() * kNsPerMs - last_step_ns.value_or(timeline.end_ns());
}

std::string NameOf(const Span& span) {
  if (span.lane == Lane::kWait) return absl::StrCat("wait for ", WaitName(span.wait));
  return ToString(span.action);
}

// Gives each span of a timeline its id.
class SpanIds {
 public:
  SpanIds(const TraceContext& trace, std::string job_id)
      : trace_(trace), job_id_(std::move(job_id)) {}
  SpanId Of(const Span& span) const {
    return JobSpanId(trace_.trace_id, job_id_,
                     absl::StrCat("timeline ", span.worker.value, " ", LaneName(span.lane), " ",
                                  WaitName(span.wait), " ", ToString(span.action)),
                     span.start_ns);
  }
  SpanId OfWorker(int32_t worker, int64_t start_ns) const {
    return JobSpanId(trace_.trace_id, job_id_, absl::StrCat("timeline ", worker), start_ns);
  }

 private:
  const TraceContext trace_;
  const std::string job_id_;
};

}  // namespace

std::vector<TraceSpan> TimelineSpans(const v1::GetJobResponse& job, const DrawnTimeline& drawn) {
  const Timeline& timeline = *drawn.timeline;
  const TraceContext trace = JobTraceOf(job);
  const std::string& job_id = job.summary().job_id();
  const SpanIds ids(trace, job_id);
  std::map<const Span*, const Span*> givers;  // by taker
  for (const MessageFlow& flow : MessageFlowsOf(timeline, drawn.topology)) {
    // Workers' clocks are set to each other within a round trip: what seems to be taken before it is made gets no link.
    if (flow.giver->end_ns <= flow.taker->start_ns) givers[flow.taker] = flow.giver;
  }
  const int64_t offset_ns = UnixOffsetNs(job, timeline);
  std::vector<std::string> names;
  names.reserve(timeline.workers);
  for (int32_t worker = 0; worker < timeline.workers; ++worker) {
    names.push_back(RowName(drawn, worker));
  }

  std::vector<TraceSpan> spans;
  spans.reserve(timeline.workers + timeline.spans.size());
  for (int32_t worker = 0; worker < timeline.workers; ++worker) {
    spans.push_back({.trace_id = trace.trace_id,
                     .id = ids.OfWorker(worker, timeline.start_ns()),
                     .parent = trace.span_id,
                     .name = absl::StrCat("timeline of ", names[worker]),
                     .start_unix_ns = timeline.start_ns() + offset_ns,
                     .end_unix_ns = timeline.end_ns() + offset_ns,
                     .attributes = {{"penstock.job", job_id}, {"penstock.worker", names[worker]}}});
  }
  for (const Span& span : timeline.spans) {
    TraceSpan made = {.trace_id = trace.trace_id,
                      .id = ids.Of(span),
                      .parent = spans[span.worker.value].id,
                      .name = NameOf(span),
                      .start_unix_ns = span.start_ns + offset_ns,
                      .end_unix_ns = span.end_ns + offset_ns,
                      .attributes = {{"penstock.worker", names[span.worker.value]},
                                     {"penstock.lane", std::string(LaneName(span.lane))},
                                     {"penstock.op", std::string(ActionName(span.action.kind))}}};
    if (IsOfGroup(span.action.kind)) {
      made.attributes.push_back({"penstock.group", int64_t{span.action.index}});
    } else if (HasIndex(span.action.kind)) {
      made.attributes.push_back({"penstock.stage", int64_t{span.action.index}});
    }
    if (HasMicrobatch(span.action.kind)) {
      made.attributes.push_back({"penstock.microbatch", int64_t{span.action.microbatch}});
    }
    if (const auto giver = givers.find(&span); giver != givers.end()) {
      made.links.push_back(ids.Of(*giver->second));
    }
    spans.push_back(std::move(made));
  }
  return spans;
}

}  // namespace penstock
