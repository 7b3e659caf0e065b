#include "services/coordinator/pending_writes.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

SaveJob Save(const std::string& job_id, int64_t step, const std::string& key = "") {
  SaveJob save{.idempotency_key = key};
  save.record.mutable_summary()->set_job_id(job_id);
  save.record.mutable_summary()->set_step(step);
  return save;
}

PublishEvent Step(int64_t sequence) {
  PublishEvent event{.job_id = "a"};
  event.event.set_sequence(sequence);
  event.event.mutable_step_done()->set_step(sequence);
  return event;
}

TEST(PendingWrites, OneRecordAJob_TheLatestWithItsKey) {
  PendingWrites pending;
  pending.Add(Save("a", 1, "key"));
  pending.Add(Save("b", 1));
  for (int64_t step = 2; step <= 100; ++step) {
    pending.Add(Save("a", step));
    pending.AddTimeline("a", {});
  }
  const std::vector<StateStore::Change> changes = pending.Changes();
  ASSERT_EQ(changes.size(), 3u);
  EXPECT_EQ(changes[0].job->record.summary().step(), 100);
  EXPECT_EQ(changes[0].job->idempotency_key, "key");
  EXPECT_EQ(changes[1].job->record.summary().job_id(), "b");
  EXPECT_NE(changes[2].timeline, nullptr);
}

TEST(PendingWrites, ManyEvents_KeepTheLatestAndEveryChangeOfState) {
  PendingWrites pending;
  constexpr int64_t kSteps = 3 * PendingWrites::kEventsMax;
  for (int64_t i = 1; i <= kSteps; ++i) {
    pending.Add(Step(i));
    if (i == 10 || i == 15'000) {
      pending.Add(PublishEvent{.job_id = "a"});
      PublishEvent changed{.job_id = "a"};
      changed.event.mutable_state_changed()->set_step(i);
      pending.Add(std::move(changed));
    }
  }
  EXPECT_EQ(pending.Changes().size(), PendingWrites::kEventsMax);
  EXPECT_EQ(pending.size(), static_cast<int64_t>(PendingWrites::kEventsMax));
  EXPECT_EQ(pending.dropped_events(), kSteps + 4 - pending.size());
  const std::deque<PublishEvent> events = pending.Written();
  ASSERT_EQ(events.size(), PendingWrites::kEventsMax);
  EXPECT_EQ(events[0].event.state_changed().step(), 10);
  EXPECT_EQ(events[1].event.state_changed().step(), 15'000);
  EXPECT_EQ(events.back().event.sequence(), kSteps);
  EXPECT_EQ(events[2].event.sequence(), kSteps - static_cast<int64_t>(events.size()) + 3);
  EXPECT_TRUE(pending.empty());
}

}  // namespace
}  // namespace penstock
