#include "job/job_trace.h"

#include <algorithm>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/sha256.h"

namespace penstock {
namespace {

// The first bytes of the digest of `text`; never all zero, which is no id.
template <typename Id>
Id IdOf(absl::string_view text) {
  const std::string digest = absl::HexStringToBytes(Sha256Hex(text));
  Id id;
  std::copy_n(digest.begin(), id.size(), id.begin());
  if (id == Id()) id.back() = 1;
  return id;
}

}  // namespace

TraceContext JobTraceOf(const v1::GetJobResponse& job) {
  const v1::JobSummary& summary = job.summary();
  TraceContext trace;
  if (const absl::StatusOr<TraceContext> parent = ParseTraceparent(job.traceparent());
      parent.ok()) {
    trace = *parent;
  } else {
    trace.trace_id = IdOf<TraceId>(
        absl::StrCat("penstock trace\n", summary.job_id(), "\n", summary.submitted_unix_ms()));
  }
  trace.span_id = JobSpanId(trace.trace_id, summary.job_id(), "job", 0);
  return trace;
}

SpanId JobSpanId(const TraceId& trace, absl::string_view job_id, absl::string_view what,
                 int64_t ordinal) {
  return IdOf<SpanId>(
      absl::StrCat("penstock span\n", ToHex(trace), "\n", job_id, "\n", what, "\n", ordinal));
}

}  // namespace penstock
