#include "worker/timeline_recorder.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace penstock {
namespace {

// Every field follows from the number, so that a mixture of two spans shows.
Span Numbered(int64_t n) {
  return {.worker = WorkerId(3),
          .lane = static_cast<Lane>(n % kLanes),
          .wait = static_cast<Wait>(n % kWaits),
          .action = {static_cast<ActionKind>(n % kActionKinds), static_cast<int32_t>(n % 7), 5 * n},
          .start_ns = 10 * n,
          .end_ns = 10 * n + 3};
}

TEST(TimelineRecorder, Recent_FewSpans_AreAllThereInOrder) {
  TimelineRecorder recorder(WorkerId(3), 8);
  EXPECT_TRUE(recorder.Recent().empty());
  for (int64_t n = 0; n < 5; ++n) recorder.Record(Numbered(n));
  const std::vector<Span> spans = recorder.Recent();
  ASSERT_EQ(spans.size(), 5u);
  for (int64_t n = 0; n < 5; ++n) EXPECT_EQ(spans[n], Numbered(n));
}

TEST(TimelineRecorder, Recent_MoreThanFit_AreTheNewest) {
  TimelineRecorder recorder(WorkerId(3), 8);
  for (int64_t n = 0; n < 100; ++n) recorder.Record(Numbered(n));
  const std::vector<Span> spans = recorder.Recent();
  ASSERT_EQ(spans.size(), 8u);
  for (int64_t i = 0; i < 8; ++i) EXPECT_EQ(spans[i], Numbered(92 + i));
}

TEST(TimelineRecorder, Recent_WhileWriting_ReturnsOnlyWholeConsecutiveSpans) {
  TimelineRecorder recorder(WorkerId(3), 64);
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    for (int64_t n = 0; !stop; ++n) recorder.Record(Numbered(n));
  });
  while (recorder.Recent().size() < 64) std::this_thread::yield();
  for (int round = 0; round < 50'000 && !HasFailure(); ++round) {
    const std::vector<Span> spans = recorder.Recent();
    for (size_t i = 0; i < spans.size(); ++i) {
      EXPECT_EQ(spans[i], Numbered(spans[i].start_ns / 10));
      EXPECT_EQ(spans[i].start_ns, spans[0].start_ns + 10 * static_cast<int64_t>(i));
    }
  }
  stop = true;
  writer.join();
}

}  // namespace
}  // namespace penstock
