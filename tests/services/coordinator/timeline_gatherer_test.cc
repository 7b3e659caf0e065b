#include "services/coordinator/timeline_gatherer.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

WorkerTimeline Worker(int64_t offset_ns, const std::vector<std::pair<int64_t, int64_t>>& spans) {
  WorkerTimeline worker{.offset_ns = offset_ns};
  for (const auto& [start, end] : spans) {
    v1::TimelineSpan& span = *worker.response.add_spans();
    span.set_start_ns(start);
    span.set_end_ns(end);
  }
  return worker;
}

TEST(MergeTimelines, Clocks_AreBroughtTogether) {
  const v1::GetTimelineResponse merged =
      MergeTimelines({Worker(1000, {{0, 10}, {20, 30}}), Worker(-5, {{1010, 1020}})}, 100);
  EXPECT_EQ(merged.workers(), 2);
  ASSERT_EQ(merged.spans_size(), 3);
  EXPECT_EQ(merged.spans(0).start_ns(), 1000);
  EXPECT_EQ(merged.spans(0).worker(), 0);
  EXPECT_EQ(merged.spans(1).start_ns(), 1005);
  EXPECT_EQ(merged.spans(1).end_ns(), 1015);
  EXPECT_EQ(merged.spans(1).worker(), 1);
  EXPECT_EQ(merged.spans(2).start_ns(), 1020);
}

TEST(ClockOffsets, ShortestRoundTrip_CountsUntilClocksMayHaveDrifted) {
  ClockOffsets offsets;
  // Their clock is 1000 ahead: a slow question, a slow answer, and then a fast pair.
  EXPECT_EQ(offsets.Add("w0", 1, 0, 100, 1090), -1040);
  EXPECT_EQ(offsets.Add("w0", 1, 200, 204, 1202), -1000);
  EXPECT_EQ(offsets.Add("w0", 1, 300, 400, 1310), -1000);
  // An hour later a crystal may be a third of a second off.
  const int64_t later = 3'600'000'000'000;
  EXPECT_EQ(offsets.Add("w0", 1, later, later + 1000, later + 1700), -1200);
  // Another process may be on another machine.
  EXPECT_EQ(offsets.Add("w0", 2, later, later + 100'000, 0), later + 50'000);
  // On one's own machine.
  EXPECT_EQ(offsets.Add("w1", 1, 0, 100, 80), 0);
}

TEST(MergeTimelines, TooMany_LosesTheOldest) {
  const v1::GetTimelineResponse merged =
      MergeTimelines({Worker(0, {{0, 1}, {2, 3}, {4, 5}}), Worker(0, {{1, 2}, {5, 6}})}, 2);
  ASSERT_EQ(merged.spans_size(), 2);
  EXPECT_EQ(merged.spans(0).start_ns(), 4);
  EXPECT_EQ(merged.spans(1).start_ns(), 5);
}

TEST(MergeTimelines, WorkersThatDidNotAnswer_AreNamed) {
  const v1::GetTimelineResponse merged = MergeTimelines(
      {Worker(0, {{0, 1}}), {.worker = "w1", .answered = false}, {.worker = "w2"}}, 100);
  EXPECT_EQ(merged.workers(), 3);
  ASSERT_EQ(merged.missing_workers_size(), 1) << "one that has no spans has answered all the same";
  EXPECT_EQ(merged.missing_workers(0), "w1");
}

TEST(MergeTimelines, LongestAllowed_FitsIntoAMessage) {
  std::vector<std::pair<int64_t, int64_t>> spans;
  for (int64_t i = 0; i < 2 * TimelineGatherer::kSpansMax; ++i) {
    spans.emplace_back(i << 40, (i << 40) + 1);
  }
  v1::GetTimelineResponse merged = MergeTimelines({Worker(1, spans)}, TimelineGatherer::kSpansMax);
  for (v1::TimelineSpan& span : *merged.mutable_spans()) {
    span.set_microbatch(int64_t{1} << 40);
    span.set_op(v1::ACTION_KIND_SEND_B);
    span.set_index(100);
    span.set_lane(v1::TIMELINE_LANE_RECEIVE);
    span.set_wait(v1::WAIT_CAUSE_COLLECTIVE);
  }
  EXPECT_EQ(merged.spans_size(), TimelineGatherer::kSpansMax);
  EXPECT_LT(merged.ByteSizeLong(), 1u << 20);
}

}  // namespace
}  // namespace penstock
