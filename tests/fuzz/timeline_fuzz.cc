// Timelines as workers report them: what is taken has spans that can be, so that no sum of their times overflows.
#include "penstock/v1/cluster.pb.h"
#include "results/timeline_message.h"
#include "tests/fuzz/fuzz_target.h"

PENSTOCK_FUZZ_TARGET(timeline) {
  using namespace penstock;
  v1::GetTimelineResponse response;
  if (!response.ParseFromArray(data, static_cast<int>(size))) return 0;
  const absl::StatusOr<Timeline> timeline = TimelineOf(response);
  if (!timeline.ok()) return 0;
  FuzzAccepted();
  PENSTOCK_CHECK(static_cast<int>(timeline->spans.size()) == response.spans_size());
  PENSTOCK_CHECK(timeline->start_ns() <= timeline->end_ns());
  int64_t busy_ns = 0;
  for (const Span& span : timeline->spans) {
    PENSTOCK_CHECK(span.worker.value >= 0 && span.worker.value < timeline->workers);
    PENSTOCK_CHECK(span.duration_ns() >= 0);
    PENSTOCK_CHECK(!__builtin_add_overflow(busy_ns, span.duration_ns(), &busy_ns));
  }
  return 0;
}
