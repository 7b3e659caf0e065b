#include "services/tracing/timeline_spans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "job/job_trace.h"
#include "schedule/placements.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr int64_t kNsOfMs = 1'000'000;

Span Make(int32_t worker, Action action, int64_t start_ms, int64_t end_ms,
          Lane lane = Lane::kCompute, Wait wait = Wait::kNone) {
  return {WorkerId(worker), lane, wait, action, start_ms * kNsOfMs, end_ms * kNsOfMs};
}

// One microbatch through two workers, whose clock begins at 0, and whose last step was heard of at 5000 ms.
class TimelineSpansTest : public ::testing::Test {
 protected:
  TimelineSpansTest() {
    job_.mutable_summary()->set_job_id("small-1");
    job_.mutable_result()->set_last_step_unix_ms(5000);
    timeline_.workers = 2;
    timeline_.spans = {
        Make(0, {ActionKind::kForward, 0, 3}, 0, 10),
        Make(0, {ActionKind::kSendActivation, 0, 3}, 10, 11, Lane::kSend),
        Make(1, {ActionKind::kRecvActivation, 1, 3}, 0, 12, Lane::kWait, Wait::kInput),
        Make(1, {ActionKind::kForward, 1, 3}, 12, 20),
        Make(1, {ActionKind::kBackwardInput, 1, 3}, 20, 30),
        Make(0, {ActionKind::kBackwardInput, 0, 3}, 31, 40),
        Make(0, {ActionKind::kReduce, 7}, 40, 41, Lane::kCollective),
        Make(1, {ActionKind::kUpdate, 1}, 30, 33),
        Make(0, {ActionKind::kUpdate, 0}, 41, 45),
    };
    for (const TraceSpan& span : TimelineSpans(job_, drawn_)) spans_[span.name] = span;
  }

  v1::GetJobResponse job_;
  Timeline timeline_;
  const DrawnTimeline drawn_ = {.timeline = &timeline_, .workers = {"alpha", "beta"}};
  std::map<std::string, TraceSpan> spans_;
};

TEST_F(TimelineSpansTest, Actions_AreBelowTheirWorkerBelowTheJob) {
  const TraceContext trace = JobTraceOf(job_);
  const TraceSpan& alpha = spans_["timeline of alpha"];
  EXPECT_EQ(alpha.parent, trace.span_id);
  EXPECT_EQ(spans_["0F3"].parent, alpha.id);
  EXPECT_EQ(spans_["1F3"].parent, spans_["timeline of beta"].id);
  EXPECT_EQ(spans_.size(), timeline_.spans.size() + 2);
  std::set<SpanId> ids;
  for (const auto& [name, span] : spans_) {
    EXPECT_EQ(span.trace_id, trace.trace_id) << name;
    ids.insert(span.id);
  }
  EXPECT_EQ(ids.size(), spans_.size());
}

TEST_F(TimelineSpansTest, Times_AreSetByTheLastStep) {
  EXPECT_EQ(spans_["0UPDATE"].end_unix_ns, 5000 * kNsOfMs);
  EXPECT_EQ(spans_["0F3"].start_unix_ns, 4955 * kNsOfMs);
  EXPECT_EQ(spans_["0F3"].end_unix_ns, 4965 * kNsOfMs);
  EXPECT_EQ(spans_["timeline of beta"].start_unix_ns, 4955 * kNsOfMs);
  EXPECT_EQ(spans_["timeline of beta"].end_unix_ns, 5000 * kNsOfMs);
}

TEST_F(TimelineSpansTest, Passes_LinkToTheOnesWhoseMessageTheyTake) {
  EXPECT_THAT(spans_["0F3"].links, IsEmpty());
  EXPECT_THAT(spans_["1F3"].links, ElementsAre(spans_["0F3"].id));
  EXPECT_THAT(spans_["1I3"].links, IsEmpty());
  EXPECT_THAT(spans_["0I3"].links, ElementsAre(spans_["1I3"].id));
  EXPECT_THAT(spans_["0SEND_F3"].links, IsEmpty());
}

// Two replicas feed the stage with number 2: microbatch m goes through replica m mod 2.
TEST_F(TimelineSpansTest, Replicas_LinkToTheOneThatHadTheMicrobatch) {
  const Topology topology = ReplicatedStages({2, 1}, ReduceGroup::Operation::kSum);
  const Timeline timeline = {.workers = 3,
                             .spans = {Make(0, {ActionKind::kForward, 0, 0}, 0, 10),
                                       Make(1, {ActionKind::kForward, 1, 1}, 0, 10),
                                       Make(2, {ActionKind::kForward, 2, 0}, 11, 20),
                                       Make(2, {ActionKind::kForward, 2, 1}, 20, 30)}};
  std::map<std::string, TraceSpan> spans;
  for (const TraceSpan& span :
       TimelineSpans(job_, {.timeline = &timeline, .topology = &topology})) {
    spans[span.name] = span;
  }
  EXPECT_THAT(spans["2F0"].links, ElementsAre(spans["0F0"].id));
  EXPECT_THAT(spans["2F1"].links, ElementsAre(spans["1F1"].id));
}

TEST_F(TimelineSpansTest, Attributes_SayWhatItWas) {
  EXPECT_THAT(spans_["1F3"].attributes,
              UnorderedElementsAre(SpanAttribute{"penstock.worker", "beta"},
                                   SpanAttribute{"penstock.lane", "compute"},
                                   SpanAttribute{"penstock.op", "F"},
                                   SpanAttribute{"penstock.stage", int64_t{1}},
                                   SpanAttribute{"penstock.microbatch", int64_t{3}}));
  EXPECT_THAT(spans_["wait for input"].attributes,
              testing::Contains(SpanAttribute{"penstock.op", "RECV_F"}));
  EXPECT_THAT(spans_["7REDUCE"].attributes,
              testing::Contains(SpanAttribute{"penstock.group", int64_t{7}}));
}

TEST_F(TimelineSpansTest, SentAgain_AreTheSame) {
  const std::vector<TraceSpan> first = TimelineSpans(job_, drawn_);
  EXPECT_EQ(first, TimelineSpans(job_, drawn_));
}

TEST_F(TimelineSpansTest, NothingToShow_IsNothing) {
  const Timeline nothing;
  EXPECT_THAT(TimelineSpans(job_, {.timeline = &nothing}), IsEmpty());
}

}  // namespace
}  // namespace penstock
