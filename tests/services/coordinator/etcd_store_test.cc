#include "services/coordinator/etcd_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"
#include "services/coordinator/etcd_rows.h"
#include "tests/services/coordinator/fake_etcd.h"
#include "tests/services/coordinator/state_store_suite.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Key;
using ::testing::Not;

constexpr char kStorePrefix[] = "/penstock";
using Fate = FakeEtcd::Fate;

std::string StoreKey(const std::string& row) { return absl::StrCat(kStorePrefix, "/", row); }

// Each store is of a term of its own, as of one leader after another.
class FakeEtcdHost final : public StateStoreHost {
 public:
  absl::StatusOr<std::unique_ptr<StateStore>> Open() override {
    etcd_.Remove(LeaderKey(kStorePrefix));
    return EtcdStore::Open(etcd_, kStorePrefix, etcd_.Put(LeaderKey(kStorePrefix), "a:1"));
  }
  void DamageRecord(const std::string& job_id) override {
    const std::string key = StoreKey(etcd_rows::Job(job_id));
    etcd_.Put(key, etcd_.All().at(key) + "x");
  }
  void RemoveEvent(const std::string& job_id, int64_t sequence) override {
    etcd_.Remove(StoreKey(etcd_rows::Event(job_id, sequence)));
  }

 private:
  FakeEtcd etcd_{RealClock()};
};

INSTANTIATE_TEST_SUITE_P(FakeEtcd, StateStoreSuite,
                         ::testing::Values([] { return std::make_unique<FakeEtcdHost>(); }));

class EtcdStoreTest : public ::testing::Test {
 protected:
  void SetUp() override { Lead(); }

  // A new leader opens the state.
  void Lead() {
    etcd_.Remove(LeaderKey(kStorePrefix));
    const int64_t term = etcd_.Put(LeaderKey(kStorePrefix), "b:2");
    PENSTOCK_ASSERT_OK_AND_ASSIGN(store_, EtcdStore::Open(etcd_, kStorePrefix, term));
  }
  std::vector<std::string> Jobs() {
    std::vector<std::string> ids;
    const absl::StatusOr<std::vector<StoredJob>> jobs = store_->Load();
    EXPECT_THAT(jobs, IsOk());
    for (const StoredJob& job : *jobs) ids.push_back(job.record.summary().job_id());
    return ids;
  }
  int64_t Parts() {
    int64_t parts = 0;
    for (const auto& [key, value] : etcd_.All()) parts += absl::StrContains(key, "/parts/");
    return parts;
  }

  FakeEtcd etcd_{RealClock()};
  std::unique_ptr<EtcdStore> store_;
};

TEST_F(EtcdStoreTest, WriteOfADeposedLeader_IsRefusedForGood) {
  const SaveJob mine = StoredJobOf("mine", v1::JOB_STATE_QUEUED),
                late = StoredJobOf("late", v1::JOB_STATE_QUEUED);
  ASSERT_THAT(store_->Write({{.job = &mine}}), IsOk());
  const std::unique_ptr<EtcdStore> deposed = std::move(store_);
  Lead();
  EXPECT_THAT(
      deposed->Write({{.job = &late}}),
      StatusIs(absl::StatusCode::kAborted, AllOf(HasSubstr("leads no longer"), HasSubstr("b:2"))));
  EXPECT_THAT(deposed->Touch(), StatusIs(absl::StatusCode::kAborted, HasSubstr("no longer")));
  EXPECT_THAT(Jobs(), ::testing::ElementsAre("mine"));
  // Even if the key has the same value again: it is another key.
  EXPECT_THAT(store_->Write({{.job = &late}}), IsOk());
}

TEST_F(EtcdStoreTest, OpeningWithoutLeading_IsRefused) {
  EXPECT_THAT(EtcdStore::Open(etcd_, kStorePrefix, 1).status(),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("leads no longer")));
}

TEST_F(EtcdStoreTest, RecordAndItsEvents_AreOneTransaction) {
  const SaveJob job = StoredJobOf("j", v1::JOB_STATE_RUNNING);
  const PublishEvent one = StoredEventOf("j", 1), two = StoredEventOf("j", 2);
  const int64_t before = etcd_.transactions();
  ASSERT_THAT(store_->Write({{.job = &job}, {.event = &one}, {.event = &two}}), IsOk());
  EXPECT_EQ(etcd_.transactions(), before + 1);
}

// However a large write breaks off, the record is there only with all of its events.
TEST_F(EtcdStoreTest, LargeWriteThatBreaksOff_LeavesNoRecordWithoutItsEvents) {
  constexpr int64_t kEvents = 350;
  std::vector<PublishEvent> events;
  for (int64_t i = 1; i <= kEvents; ++i) events.push_back(StoredEventOf("j", i));
  const SaveJob before = StoredJobOf("j", v1::JOB_STATE_QUEUED),
                after = StoredJobOf("j", v1::JOB_STATE_RUNNING);
  ASSERT_THAT(store_->Write({{.job = &before}}), IsOk());
  std::vector<StateStore::Change> changes = {{.job = &after}};
  for (const PublishEvent& event : events) changes.push_back({.event = &event});
  for (const int done : {0, 1, 2, 3}) {
    std::deque<Fate> fates(done, Fate::kFine);
    fates.push_back(Fate::kRequestLost);
    etcd_.SetFates(fates);
    EXPECT_THAT(store_->Write(changes),
                StatusIs(absl::StatusCode::kUnavailable, HasSubstr("etcd")));
    EXPECT_EQ(store_->ReadRecord("j")->summary().state(), v1::JOB_STATE_QUEUED) << done;
    EXPECT_THAT(store_->ReadEvents("j", 0, 1000), IsOk()) << "no gap";
  }
  etcd_.SetFates({});
  ASSERT_THAT(store_->Write(changes), IsOk());
  Lead();
  EXPECT_EQ(store_->ReadRecord("j")->summary().state(), v1::JOB_STATE_RUNNING);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto read, store_->ReadEvents("j", 0, 1000));
  EXPECT_EQ(static_cast<int64_t>(read.size()), kEvents);
}

TEST_F(EtcdStoreTest, AnswerThatIsLost_ChangesNothingWhenItIsWrittenAgain) {
  const SaveJob a = StoredJobOf("a", v1::JOB_STATE_RUNNING, "key"),
                b = StoredJobOf("b", v1::JOB_STATE_QUEUED);
  const PublishEvent one = StoredEventOf("a", 1), two = StoredEventOf("a", 2);
  etcd_.SetFates({Fate::kAnswerLost});
  EXPECT_FALSE(store_->Write({{.job = &a}, {.event = &one}}).ok());
  ASSERT_THAT(store_->Write({{.job = &b}, {.job = &a}, {.event = &one}, {.event = &two}}), IsOk());
  Lead();
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::vector<StoredJob> jobs, store_->Load());
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_EQ(jobs[0].record.summary().job_id(), "b");
  EXPECT_EQ(jobs[1].idempotency_key, "key");
  EXPECT_EQ(jobs[1].last_sequence, 2);
  EXPECT_EQ(store_->ReadEvents("a", 0, 10)->size(), 2u);
}

// The events that wait are bounded, so one that was written may not be among those that are written again.
TEST_F(EtcdStoreTest, EventThatWasWrittenAndIsNotWrittenAgain_IsNoDamage) {
  const PublishEvent one = StoredEventOf("j", 1), two = StoredEventOf("j", 2),
                     three = StoredEventOf("j", 3);
  ASSERT_THAT(store_->Write({{.event = &one}}), IsOk());
  etcd_.SetFates({Fate::kAnswerLost});
  EXPECT_FALSE(store_->Write({{.event = &two}}).ok());
  ASSERT_THAT(store_->Write({{.event = &three}}), IsOk());
  EXPECT_EQ(store_->ReadEvents("j", 0, 10)->size(), 3u);
}

// A slow member has it while another does what was written later.
TEST_F(EtcdStoreTest, TransactionThatIsLate_IsNotDoneAnyMore) {
  const SaveJob first = StoredJobOf("j", v1::JOB_STATE_QUEUED),
                early = StoredJobOf("j", v1::JOB_STATE_PREPARING),
                later = StoredJobOf("j", v1::JOB_STATE_RUNNING);
  ASSERT_THAT(store_->Write({{.job = &first}}), IsOk());
  etcd_.SetFates({Fate::kLate});
  EXPECT_FALSE(store_->Write({{.job = &early}}).ok());
  ASSERT_THAT(store_->Write({{.job = &later}}), IsOk());
  EXPECT_EQ(etcd_.DeliverLate(), 0);
  EXPECT_EQ(store_->ReadRecord("j")->summary().state(), v1::JOB_STATE_RUNNING);
}

// It is done before the next one, which follows it all the same.
TEST_F(EtcdStoreTest, TransactionThatIsLateButInTurn_IsFollowed) {
  const SaveJob early = StoredJobOf("j", v1::JOB_STATE_PREPARING),
                later = StoredJobOf("j", v1::JOB_STATE_RUNNING);
  etcd_.SetFates({Fate::kLate, Fate::kLate});
  EXPECT_FALSE(store_->Write({{.job = &early}}).ok());
  EXPECT_FALSE(store_->Write({{.job = &early}}).ok());
  EXPECT_EQ(etcd_.DeliverLate(), 1) << "one of the two";
  ASSERT_THAT(store_->Write({{.job = &later}}), IsOk());
  EXPECT_EQ(store_->ReadRecord("j")->summary().state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(Jobs().size(), 1u);
}

// Its submitter was told that it was not taken.
TEST_F(EtcdStoreTest, NewJobWhoseWriteFailed_IsGoneAfterTheNextWrite) {
  const SaveJob refused = StoredJobOf("refused", v1::JOB_STATE_QUEUED, "key"),
                again = StoredJobOf("again", v1::JOB_STATE_QUEUED, "key");
  etcd_.SetFates({Fate::kAnswerLost});
  EXPECT_FALSE(store_->Write({{.job = &refused}}).ok());
  EXPECT_THAT(etcd_.All(), Contains(Key(HasSubstr("/jobs/refused"))));
  ASSERT_THAT(store_->Write({{.job = &again}}), IsOk());
  EXPECT_THAT(etcd_.All(), Not(Contains(Key(HasSubstr("/jobs/refused")))));
  EXPECT_THAT(Jobs(), ::testing::ElementsAre("again"));
}

// There may be nothing to write for long.
TEST_F(EtcdStoreTest, NewJobWhoseWriteFailed_IsGoneWhenEtcdAnswersAgain) {
  const SaveJob refused = StoredJobOf("refused", v1::JOB_STATE_QUEUED, "key");
  etcd_.SetFates({Fate::kAnswerLost, Fate::kRequestLost});
  EXPECT_FALSE(store_->Write({{.job = &refused}}).ok());
  EXPECT_FALSE(store_->Touch().ok());
  EXPECT_THAT(etcd_.All(), Contains(Key(HasSubstr("/jobs/refused"))));
  ASSERT_THAT(store_->Touch(), IsOk());
  EXPECT_THAT(etcd_.All(), Not(Contains(Key(HasSubstr("/jobs/refused")))));
}

TEST_F(EtcdStoreTest, PartsOfEarlierValues_AreRemoved) {
  SaveJob job = StoredJobOf("j", v1::JOB_STATE_RUNNING);
  job.record.mutable_summary()->set_error(std::string(1 << 20, 'a'));
  ASSERT_THAT(store_->Write({{.job = &job}}), IsOk());
  EXPECT_EQ(Parts(), 3);
  job.record.mutable_summary()->set_error(std::string(1 << 20, 'b'));
  // The parts are written, and their row is not.
  etcd_.SetFates({Fate::kFine, Fate::kRequestLost});
  EXPECT_FALSE(store_->Write({{.job = &job}}).ok());
  EXPECT_GT(Parts(), 3);
  EXPECT_EQ(store_->ReadRecord("j")->summary().error()[0], 'a');
  Lead();
  EXPECT_EQ(Parts(), 3) << "loose ones go when the state is opened";
  EXPECT_EQ(store_->ReadRecord("j")->summary().error()[0], 'a');
  ASSERT_THAT(store_->Write({{.job = &job}}), IsOk());
  EXPECT_EQ(Parts(), 3);
  EXPECT_EQ(store_->ReadRecord("j")->summary().error()[0], 'b');
  job.record.mutable_summary()->clear_error();
  ASSERT_THAT(store_->Write({{.job = &job}}), IsOk());
  EXPECT_EQ(Parts(), 0);
}

TEST_F(EtcdStoreTest, DamagedRows_AreRefusedByTheirKey) {
  const SaveJob job = StoredJobOf("j", v1::JOB_STATE_RUNNING);
  const PublishEvent one = StoredEventOf("j", 1), two = StoredEventOf("j", 2),
                     three = StoredEventOf("j", 3);
  ASSERT_THAT(store_->Write({{.job = &job}, {.event = &one}, {.event = &two}, {.event = &three}}),
              IsOk());
  const std::map<std::string, std::string> good = etcd_.All();
  const std::string second = StoreKey(etcd_rows::Event("j", 2)),
                    record = StoreKey(etcd_rows::Job("j"));

  etcd_.Remove(second);
  EXPECT_THAT(
      store_->ReadEvents("j", 0, 10),
      StatusIs(absl::StatusCode::kDataLoss, AllOf(HasSubstr(second), HasSubstr("missing"))));
  etcd_.Put(second, good.at(StoreKey(etcd_rows::Event("j", 1))));
  EXPECT_THAT(
      store_->ReadEvents("j", 0, 10),
      StatusIs(absl::StatusCode::kDataLoss, AllOf(HasSubstr(second), HasSubstr("damaged"))));
  etcd_.Put(second, good.at(second));
  EXPECT_THAT(store_->ReadEvents("j", 0, 10), IsOk());

  etcd_.Put(record, good.at(record) + "x");
  EXPECT_THAT(store_->ReadRecord("j"),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("restore a snapshot of etcd")));
  etcd_.Remove(LeaderKey(kStorePrefix));
  const int64_t term = etcd_.Put(LeaderKey(kStorePrefix), "b:2");
  EXPECT_THAT(EtcdStore::Open(etcd_, kStorePrefix, term).status(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr(record)));
}

TEST_F(EtcdStoreTest, RowsOfALaterVersion_AreRefusedByName) {
  etcd_.Put(StoreKey(etcd_rows::kVersion), "2");
  EXPECT_THAT(EtcdStore::Open(etcd_, kStorePrefix, 1).status(),
              StatusIs(absl::StatusCode::kUnimplemented,
                       AllOf(HasSubstr("version 2"), HasSubstr("newer build"))));
}

}  // namespace
}  // namespace penstock
