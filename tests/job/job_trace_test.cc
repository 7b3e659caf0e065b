#include "job/job_trace.h"

#include <gtest/gtest.h>

#include <set>

namespace penstock {
namespace {

constexpr char kParent[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

v1::GetJobResponse Job(const std::string& id, int64_t submitted_unix_ms) {
  v1::GetJobResponse job;
  job.mutable_summary()->set_job_id(id);
  job.mutable_summary()->set_submitted_unix_ms(submitted_unix_ms);
  return job;
}

// A coordinator of another build, restarted while the job runs, goes on with the same trace.
TEST(JobTrace, OfARecord_StaysTheSame) {
  const TraceContext trace = JobTraceOf(Job("small-1", 1'700'000'000'000));
  EXPECT_EQ(FormatTraceparent(trace), "00-44041781e4eafffe9e0a84a578f23d20-56d3035cc90e306a-01");
  EXPECT_EQ(ToHex(JobSpanId(trace.trace_id, "small-1", "steps", 17)), "d923b1fc5c880f37");
}

TEST(JobTrace, OtherJob_IsAnotherTrace) {
  const TraceContext trace = JobTraceOf(Job("small-1", 1'700'000'000'000));
  EXPECT_NE(JobTraceOf(Job("small-2", 1'700'000'000'000)).trace_id, trace.trace_id);
  EXPECT_NE(JobTraceOf(Job("small-1", 1'700'000'000'001)).trace_id, trace.trace_id)
      << "a coordinator that lost its records gives ids again";
}

TEST(JobTrace, OfASubmission_IsContinued) {
  v1::GetJobResponse job = Job("small-1", 1);
  job.set_traceparent(kParent);
  const TraceContext parent = *ParseTraceparent(kParent);
  const TraceContext trace = JobTraceOf(job);
  EXPECT_EQ(trace.trace_id, parent.trace_id);
  EXPECT_NE(trace.span_id, parent.span_id);
  EXPECT_FALSE(trace.sampled);
  job.mutable_summary()->set_job_id("small-2");
  EXPECT_NE(JobTraceOf(job).span_id, trace.span_id) << "two jobs in one trace";
}

TEST(JobTrace, SpanIds_AllDiffer) {
  std::set<SpanId> ids;
  int made = 0;
  for (const char* job : {"a", "b"}) {
    for (const char* what : {"job", "steps", "validation"}) {
      for (int64_t ordinal = 0; ordinal < 100; ++ordinal, ++made) {
        ids.insert(JobSpanId({1}, job, what, ordinal));
      }
    }
  }
  EXPECT_EQ(ids.size(), made);
}

}  // namespace
}  // namespace penstock
