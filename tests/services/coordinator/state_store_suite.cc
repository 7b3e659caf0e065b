#include "tests/services/coordinator/state_store_suite.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/status_matchers.h"

namespace penstock {

using ::testing::AllOf;
using ::testing::HasSubstr;

SaveJob StoredJobOf(const std::string& job_id, v1::JobState state, const std::string& key) {
  SaveJob job;
  job.record.mutable_summary()->set_job_id(job_id);
  job.record.mutable_summary()->set_state(state);
  job.idempotency_key = key;
  return job;
}

PublishEvent StoredEventOf(const std::string& job_id, int64_t sequence) {
  PublishEvent event{job_id, {}};
  event.event.set_sequence(sequence);
  event.event.set_log(absl::StrCat("event ", sequence));
  return event;
}

KeepLayerTimes StoredTimesOf(const std::string& key, const std::string& device) {
  KeepLayerTimes keep{.key = key};
  keep.times.set_device(device);
  return keep;
}

void StateStoreSuite::Reopen() {
  store_.reset();
  if (host_ == nullptr) host_ = GetParam()();
  ASSERT_NE(host_, nullptr);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(store_, host_->Open());
}

TEST_P(StateStoreSuite, NewState_IsEmptyAndCanBeWritten) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::vector<StoredJob> jobs, store_->Load());
  EXPECT_TRUE(jobs.empty());
  EXPECT_THAT(store_->Touch(), IsOk());
  EXPECT_THAT(store_->Write({}), IsOk());
  EXPECT_THAT(store_->ReadRecord("nope"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("nope")));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto events, store_->ReadEvents("nope", 0, 10));
  EXPECT_TRUE(events.empty());
}

TEST_P(StateStoreSuite, Records_SurviveReopeningInTheOrderOfSubmission) {
  const SaveJob z = StoredJobOf("z-1", v1::JOB_STATE_QUEUED, "key"),
                a = StoredJobOf("a-2", v1::JOB_STATE_QUEUED),
                later = StoredJobOf("z-1", v1::JOB_STATE_RUNNING);
  const PublishEvent one = StoredEventOf("z-1", 1), two = StoredEventOf("z-1", 2);
  ASSERT_THAT(store_->Write({{.job = &z}, {.job = &a}, {.event = &one}}), IsOk());
  ASSERT_THAT(store_->Write({{.event = &two}, {.job = &later}}), IsOk());
  for (int opening = 0; opening < 2; ++opening) {
    Reopen();
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::vector<StoredJob> jobs, store_->Load());
    ASSERT_EQ(jobs.size(), 2u);
    EXPECT_EQ(jobs[0].record.summary().job_id(), "z-1");
    EXPECT_EQ(jobs[0].record.summary().state(), v1::JOB_STATE_RUNNING);
    EXPECT_EQ(jobs[0].idempotency_key, "key") << "a later save without a key keeps it";
    EXPECT_EQ(jobs[0].last_sequence, 2);
    EXPECT_EQ(jobs[1].record.summary().job_id(), "a-2");
    EXPECT_EQ(jobs[1].last_sequence, 0);
  }
  // A job that comes later is behind those that were there when the state was opened.
  const SaveJob m = StoredJobOf("m-3", v1::JOB_STATE_QUEUED);
  ASSERT_THAT(store_->Write({{.job = &m}, {.job = &a}}), IsOk());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::vector<StoredJob> jobs, store_->Load());
  ASSERT_EQ(jobs.size(), 3u);
  EXPECT_EQ(jobs[1].record.summary().job_id(), "a-2");
  EXPECT_EQ(jobs[2].record.summary().job_id(), "m-3");
}

TEST_P(StateStoreSuite, Record_IsReadAsItWasWrittenLast) {
  const SaveJob queued = StoredJobOf("j", v1::JOB_STATE_QUEUED);
  SaveJob running = StoredJobOf("j", v1::JOB_STATE_RUNNING);
  running.record.set_epoch(7);
  ASSERT_THAT(store_->Write({{.job = &queued}}), IsOk());
  ASSERT_THAT(store_->Write({{.job = &running}}), IsOk());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::GetJobResponse record, store_->ReadRecord("j"));
  EXPECT_EQ(record.DebugString(), running.record.DebugString());
}

// What is written again, after an answer that was lost, changes nothing.
TEST_P(StateStoreSuite, SameChangesAgain_ChangeNothing) {
  const SaveJob job = StoredJobOf("j", v1::JOB_STATE_RUNNING, "key");
  const PublishEvent one = StoredEventOf("j", 1), two = StoredEventOf("j", 2);
  ASSERT_THAT(store_->Write({{.job = &job}, {.event = &one}}), IsOk());
  ASSERT_THAT(store_->Write({{.job = &job}, {.event = &one}, {.event = &two}}), IsOk());
  Reopen();
  ASSERT_THAT(store_->Write({{.job = &job}, {.event = &two}}), IsOk());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::vector<StoredJob> jobs, store_->Load());
  ASSERT_EQ(jobs.size(), 1u);
  EXPECT_EQ(jobs[0].last_sequence, 2);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto events, store_->ReadEvents("j", 0, 10));
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].log(), "event 2");
}

TEST_P(StateStoreSuite, Events_ComeInPagesAfterASequence) {
  for (int64_t i = 1; i <= 10; ++i) {
    const PublishEvent event = StoredEventOf("j", i), other = StoredEventOf("j-2", i);
    ASSERT_THAT(store_->Write({{.event = &event}, {.event = &other}}), IsOk());
    ASSERT_THAT(store_->Write({{.event = &event}}), IsOk()) << "again";
  }
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto page, store_->ReadEvents("j", 3, 4));
  ASSERT_EQ(page.size(), 4u);
  EXPECT_EQ(page.front().sequence(), 4);
  EXPECT_EQ(page.back().log(), "event 7");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto rest, store_->ReadEvents("j", 7, 100));
  EXPECT_EQ(rest.size(), 3u);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto none, store_->ReadEvents("j", 10, 4));
  EXPECT_TRUE(none.empty());
}

// Sequences may jump: of the events that wait while the store cannot be written, the oldest go.
TEST_P(StateStoreSuite, EventsThatWereNeverWritten_AreNoGap) {
  const PublishEvent one = StoredEventOf("j", 1), five = StoredEventOf("j", 5),
                     six = StoredEventOf("j", 6);
  ASSERT_THAT(store_->Write({{.event = &one}}), IsOk());
  ASSERT_THAT(store_->Write({{.event = &five}, {.event = &six}}), IsOk());
  Reopen();
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto events, store_->ReadEvents("j", 0, 10));
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[1].sequence(), 5);
}

// Who would go on without it would not know of its attempts.
TEST_P(StateStoreSuite, DamagedRecord_IsRefusedByItsJob) {
  const SaveJob good = StoredJobOf("good-1", v1::JOB_STATE_RUNNING),
                bad = StoredJobOf("bad-2", v1::JOB_STATE_RUNNING);
  ASSERT_THAT(store_->Write({{.job = &good}, {.job = &bad}}), IsOk());
  store_.reset();
  host_->DamageRecord("bad-2");
  EXPECT_THAT(host_->Open().status(), StatusIs(absl::StatusCode::kDataLoss,
                                               AllOf(HasSubstr("bad-2"), HasSubstr("damaged"))));
}

TEST_P(StateStoreSuite, MissingEvents_AreTold) {
  const PublishEvent one = StoredEventOf("j", 1), two = StoredEventOf("j", 2),
                     three = StoredEventOf("j", 3);
  ASSERT_THAT(store_->Write({{.event = &one}, {.event = &two}, {.event = &three}}), IsOk());
  for (const int64_t sequence : {3, 2}) {  // the last, and one in between
    store_.reset();
    host_->RemoveEvent("j", sequence);
    Reopen();
    EXPECT_THAT(store_->ReadEvents("j", 0, 10),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("missing")))
        << sequence;
  }
  EXPECT_EQ(store_->ReadEvents("j", 0, 1)->size(), 1u) << "what is before";
}

TEST_P(StateStoreSuite, ManyEventsAtOnce_AreAllThereAndInOrder) {
  constexpr int64_t kEvents = 1000;
  const SaveJob job = StoredJobOf("j", v1::JOB_STATE_RUNNING);
  std::vector<PublishEvent> events;
  for (int64_t i = 1; i <= kEvents; ++i) {
    events.push_back(StoredEventOf("j", i));
    events.back().event.set_log(std::string(2000, 'x'));
  }
  std::vector<StateStore::Change> changes = {{.job = &job}};
  for (const PublishEvent& event : events) changes.push_back({.event = &event});
  ASSERT_THAT(store_->Write(changes), IsOk());
  Reopen();
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::vector<StoredJob> jobs, store_->Load());
  ASSERT_EQ(jobs.size(), 1u);
  EXPECT_EQ(jobs[0].last_sequence, kEvents);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto read, store_->ReadEvents("j", 0, 10 * kEvents));
  ASSERT_EQ(static_cast<int64_t>(read.size()), kEvents);
  for (int64_t i = 0; i < kEvents; ++i) ASSERT_EQ(read[i].sequence(), i + 1);
}

// Larger than one request to any store may be.
TEST_P(StateStoreSuite, LargeRecordAndTimeline_AreReadAsTheyWereWritten) {
  SaveJob job = StoredJobOf("j", v1::JOB_STATE_RUNNING);
  StateStore::Change::Timeline timeline{.job_id = "j"};
  for (const size_t bytes : {size_t{5} << 20, size_t{3} << 20, size_t{10}}) {
    job.record.mutable_summary()->set_error(std::string(bytes, 'e'));
    timeline.timeline.add_missing_workers(std::string(bytes, 'm'));
    ASSERT_THAT(store_->Write({{.job = &job}, {.timeline = &timeline}}), IsOk()) << bytes;
    ASSERT_THAT(store_->Write({{.job = &job}, {.timeline = &timeline}}), IsOk()) << "again";
    Reopen();
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::GetJobResponse record, store_->ReadRecord("j"));
    EXPECT_EQ(record.summary().error().size(), bytes);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::GetTimelineResponse read, store_->ReadTimeline("j"));
    EXPECT_EQ(read.SerializeAsString(), timeline.timeline.SerializeAsString());
  }
}

TEST_P(StateStoreSuite, Timeline_IsKeptWithItsJob) {
  const SaveJob job = StoredJobOf("j", v1::JOB_STATE_RUNNING);
  StateStore::Change::Timeline timeline{.job_id = "j"};
  timeline.timeline.set_workers(3);
  ASSERT_THAT(store_->Write({{.timeline = &timeline}}), IsOk()) << "of no job";
  ASSERT_THAT(store_->Write({{.job = &job}}), IsOk());
  EXPECT_THAT(store_->ReadTimeline("j"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("job j")));
  ASSERT_THAT(store_->Write({{.timeline = &timeline}, {.job = &job}}), IsOk());
  EXPECT_EQ(store_->ReadTimeline("j")->workers(), 3);
  Reopen();
  EXPECT_EQ(store_->ReadTimeline("j")->workers(), 3);
}

TEST_P(StateStoreSuite, LayerTimes_SurviveReopeningAndTheLatestCount) {
  const KeepLayerTimes a = StoredTimesOf("a", "old"), b = StoredTimesOf("b", "other"),
                       later = StoredTimesOf("a", "new");
  ASSERT_THAT(store_->Write({{.layer_times = &a}, {.layer_times = &b}}), IsOk());
  ASSERT_THAT(store_->Write({{.layer_times = &later}}), IsOk());
  Reopen();
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::DeviceProfile read, store_->ReadLayerTimes("a"));
  EXPECT_EQ(read.device(), "new");
  EXPECT_THAT(store_->ReadLayerTimes("b"), IsOk());
  EXPECT_THAT(store_->ReadLayerTimes("c"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no such")));
}

TEST_P(StateStoreSuite, LayerTimes_BeyondTheLimitTheOldestGo) {
  for (int i = 0; i < StateStore::kLayerTimesMax + 2; ++i) {
    const KeepLayerTimes times = StoredTimesOf(absl::StrCat("key ", i), "device");
    ASSERT_THAT(store_->Write({{.layer_times = &times}}), IsOk());
  }
  EXPECT_THAT(store_->ReadLayerTimes("key 1"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no such")));
  EXPECT_THAT(store_->ReadLayerTimes("key 2"), IsOk());
}

}  // namespace penstock
