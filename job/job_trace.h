// The trace that a job is: its id, and that of its root span. Every holder of the job's record derives the same
// ids, so nothing about it is agreed upon or kept.
//
// Pure functions.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "base/trace_context.h"
#include "penstock/v1/cluster.pb.h"

namespace penstock {

// The context below which the job's spans are: the trace of its submission, or else one that follows from the job's
// id and when it was submitted, and the job's root span. Sampled unless the submission was not.
TraceContext JobTraceOf(const v1::GetJobResponse& job);

// The span of the trace that is `what` of the job for the `ordinal`-th time. Another one for each combination.
SpanId JobSpanId(const TraceId& trace, absl::string_view job_id, absl::string_view what,
                 int64_t ordinal);

}  // namespace penstock
