#include "services/worker/timeline_message.h"

#include <gtest/gtest.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace penstock {
namespace {

Timeline Spans(int count) {
  Timeline timeline = {.workers = 2};
  for (int i = 0; i < count; ++i) {
    timeline.spans.push_back({.worker = WorkerId(1),
                              .lane = Lane::kWait,
                              .wait = Wait::kCredit,
                              .action = {ActionKind::kSendActivation, 3, i},
                              .start_ns = int64_t{1'000'000'000'000} + 10 * i,
                              .end_ns = int64_t{1'000'000'000'000} + 10 * i + 5});
  }
  return timeline;
}

TEST(TimelineMessage, Span_KeepsEveryField) {
  const v1::GetRunTimelineResponse message = ToMessage(Spans(3), 1 << 20);
  ASSERT_EQ(message.spans_size(), 3);
  const v1::TimelineSpan& span = message.spans(2);
  EXPECT_EQ(span.worker(), 1);
  EXPECT_EQ(span.lane(), v1::TIMELINE_LANE_WAIT);
  EXPECT_EQ(span.wait(), v1::WAIT_CAUSE_CREDIT);
  EXPECT_EQ(span.op(), v1::ACTION_KIND_SEND_F);
  EXPECT_EQ(span.index(), 3);
  EXPECT_EQ(span.microbatch(), 2);
  EXPECT_EQ(span.start_ns(), 1'000'000'000'020);
  EXPECT_EQ(span.end_ns(), 1'000'000'000'025);
}

TEST(TimelineMessage, EnumsOfMessages_AreThoseOfSchedules) {
  ASSERT_EQ(v1::TimelineLane_ARRAYSIZE, kLanes);
  for (int i = 0; i < kLanes; ++i) {
    EXPECT_EQ(v1::TimelineLane_Name(i),
              "TIMELINE_LANE_" + absl::AsciiStrToUpper(LaneName(static_cast<Lane>(i))));
  }
  ASSERT_EQ(v1::WaitCause_ARRAYSIZE, kWaits);
  for (int i = 0; i < kWaits; ++i) {
    EXPECT_EQ(v1::WaitCause_Name(i),
              "WAIT_CAUSE_" + absl::AsciiStrToUpper(WaitName(static_cast<Wait>(i))));
  }
  ASSERT_EQ(v1::ActionKind_ARRAYSIZE, kActionKinds);
  for (int i = 0; i < kActionKinds; ++i) {
    EXPECT_EQ(v1::ActionKind_Name(i),
              absl::StrCat("ACTION_KIND_", ActionName(static_cast<ActionKind>(i))));
  }
}

TEST(TimelineMessage, MoreThanFits_KeepsTheLatestWithinTheLimit) {
  Timeline timeline = Spans(10'000);
  std::swap(timeline.spans.front(), timeline.spans.back());  // their order does not count
  constexpr int64_t kLimit = 100'000;
  const v1::GetRunTimelineResponse message = ToMessage(timeline, kLimit);
  EXPECT_LE(message.ByteSizeLong(), size_t{kLimit});
  EXPECT_GT(message.ByteSizeLong(), size_t{kLimit} - 100);
  EXPECT_EQ(message.spans(message.spans_size() - 1).microbatch(), 9'999);
  EXPECT_EQ(message.spans(0).microbatch(), 10'000 - message.spans_size());
}

}  // namespace
}  // namespace penstock
