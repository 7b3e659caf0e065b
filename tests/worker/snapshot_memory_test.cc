// Files of snapshots in a worker's memory.
#include "worker/snapshot_memory.h"

#include <gtest/gtest.h>

#include "checkpoint/layout.h"
#include "tests/support/status_matchers.h"
#include "worker/snapshot_keeper.h"

namespace penstock {
namespace {

using ::testing::_;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string PathOf(int64_t step, const std::string& file, int64_t epoch = 7) {
  return JoinPath(SnapshotDirectory("job", epoch, step), file);
}

TEST(SnapshotMemory, Names_LaterSnapshotsSortAfterEarlierOnes) {
  EXPECT_LT(SnapshotDirectory("job", 7, 99), SnapshotDirectory("job", 7, 100));
  EXPECT_LT(SnapshotDirectory("job", 9, 100), SnapshotDirectory("job", 10, 1));
  EXPECT_EQ(SnapshotDirectory("job", 1700000000000, 30), "job/0000001700000000000-000000000030");
}

TEST(SnapshotMemory, WholeFile_IsReadBack) {
  SnapshotMemory memory(100);
  ASSERT_THAT(memory.WriteDurably(PathOf(1, "a"), {"one ", "two"}), IsOk());
  EXPECT_THAT(memory.Read(PathOf(1, "a"), 7), IsOkAndHolds("one two"));
  EXPECT_THAT(memory.Read(PathOf(1, "a"), 6), StatusIs(absl::StatusCode::kOutOfRange, _));
  EXPECT_THAT(memory.Read(PathOf(1, "b"), 6), StatusIs(absl::StatusCode::kNotFound, _));
  EXPECT_THAT(memory.SizeOf(PathOf(1, "a")), IsOkAndHolds(7));
  EXPECT_THAT(memory.ReadPart(PathOf(1, "a"), 4, 2), IsOkAndHolds("tw"));
  EXPECT_THAT(memory.ReadPart(PathOf(1, "a"), 7, 2), IsOkAndHolds(""));
  EXPECT_THAT(memory.ReadPart(PathOf(1, "a"), 8, 2), StatusIs(absl::StatusCode::kOutOfRange, _));
  EXPECT_EQ(memory.bytes(), 7);
  // The same file once more takes no more room.
  ASSERT_THAT(memory.WriteDurably(PathOf(1, "a"), {"four"}), IsOk());
  EXPECT_EQ(memory.bytes(), 4);
}

TEST(SnapshotMemory, Parts_MakeAFileOnceAllAreThere) {
  SnapshotMemory memory(100);
  const std::string path = PathOf(1, "a");
  ASSERT_THAT(memory.WritePart(path, 6, 0, "abc"), IsOk());
  EXPECT_THAT(memory.Read(path, 6), StatusIs(absl::StatusCode::kNotFound, _));
  EXPECT_THAT(memory.WritePart(path, 6, 4, "ef"),
              StatusIs(absl::StatusCode::kFailedPrecondition, _));
  EXPECT_THAT(memory.WritePart(path, 7, 3, "def"),
              StatusIs(absl::StatusCode::kFailedPrecondition, _));
  EXPECT_THAT(memory.WritePart(path, 6, 3, "defg"),
              StatusIs(absl::StatusCode::kFailedPrecondition, _));
  EXPECT_THAT(memory.WritePart(path, 6, -1, "abc"),
              StatusIs(absl::StatusCode::kFailedPrecondition, _));
  ASSERT_THAT(memory.WritePart(path, 6, 0, "abc"), IsOk()) << "its answer was lost";
  ASSERT_THAT(memory.WritePart(path, 6, 3, "def"), IsOk());
  ASSERT_THAT(memory.WritePart(path, 6, 3, "def"), IsOk());
  EXPECT_THAT(memory.Read(path, 6), IsOkAndHolds("abcdef"));
  ASSERT_THAT(memory.WritePart(PathOf(1, "empty"), 0, 0, ""), IsOk());
  EXPECT_THAT(memory.Read(PathOf(1, "empty"), 0), IsOkAndHolds(""));
  EXPECT_THAT(memory.WritePart(PathOf(1, "late"), 6, 3, "def"),
              StatusIs(absl::StatusCode::kFailedPrecondition, _));
}

TEST(SnapshotMemory, TooManyBytes_AreRefusedAndTakeNoRoom) {
  SnapshotMemory memory(10);
  ASSERT_THAT(memory.WriteDurably(PathOf(1, "a"), {"123456"}), IsOk());
  EXPECT_THAT(memory.WriteDurably(PathOf(1, "b"), {"12345"}),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("--snapshot-memory")));
  EXPECT_THAT(memory.WritePart(PathOf(1, "b"), 5, 0, "1"),
              StatusIs(absl::StatusCode::kResourceExhausted, _));
  EXPECT_THAT(memory.WritePart(PathOf(1, "b"), -5, 0, ""),
              StatusIs(absl::StatusCode::kResourceExhausted, _));
  EXPECT_EQ(memory.bytes(), 6);
  ASSERT_THAT(memory.WriteDurably(PathOf(1, "b"), {"1234"}), IsOk());
}

TEST(SnapshotMemory, PathsThatAreNoSnapshots_AreRefused) {
  SnapshotMemory memory(10);
  for (const std::string& path :
       {std::string("a"), std::string("a/b"), std::string("/b/c"), std::string("a//c"),
        std::string("a/b/"), std::string("a/b/c/d"), "a/b/" + std::string(2000, 'c')}) {
    EXPECT_THAT(memory.WritePart(path, 1, 0, "1"), StatusIs(absl::StatusCode::kInvalidArgument, _))
        << path;
  }
  EXPECT_EQ(memory.bytes(), 0);
}

TEST(SnapshotMemory, NewSnapshots_TakeThePlaceOfTheOldestOfTheirJob) {
  SnapshotMemory memory(100);
  ASSERT_THAT(memory.WriteDurably("other/1/a", {"1"}), IsOk());
  for (int64_t step = 1; step <= 4; ++step) {
    ASSERT_THAT(memory.WriteDurably(PathOf(step, "a"), {"1"}), IsOk());
    ASSERT_THAT(memory.WriteDurably(PathOf(step, "b"), {"1"}), IsOk());
  }
  EXPECT_THAT(memory.Read(PathOf(1, "a"), 1), StatusIs(absl::StatusCode::kNotFound, _));
  EXPECT_THAT(memory.Read(PathOf(1, "b"), 1), StatusIs(absl::StatusCode::kNotFound, _));
  EXPECT_THAT(memory.Read(PathOf(2, "a"), 1), IsOk());
  EXPECT_THAT(memory.WriteDurably(PathOf(1, "a"), {"1"}),
              StatusIs(absl::StatusCode::kFailedPrecondition, _));
  EXPECT_THAT(memory.Jobs(), ElementsAre("job", "other"));
  EXPECT_EQ(memory.bytes(), 7);
}

TEST(SnapshotMemory, WhatTheCoordinatorNeeds_StaysHoweverManyComeAfterIt) {
  SnapshotMemory memory(100);
  for (int64_t step = 1; step <= 2; ++step) {
    ASSERT_THAT(memory.WriteDurably(PathOf(step, "a"), {"1"}), IsOk());
  }
  memory.KeepFrom("job", SnapshotDirectory("job", 7, 2));
  for (int64_t step = 3; step <= 9; ++step) {
    ASSERT_THAT(memory.WriteDurably(PathOf(step, "a"), {"1"}), IsOk());
  }
  for (const int64_t step : {2, 8, 9}) EXPECT_THAT(memory.Read(PathOf(step, "a"), 1), IsOk());
  EXPECT_EQ(memory.bytes(), 3);
}

TEST(SnapshotMemory, FilesWithoutBytesAndJobs_AreBounded) {
  SnapshotMemory memory(100);
  for (size_t job = 0; job < SnapshotMemory::kJobsMax; ++job) {
    ASSERT_THAT(memory.WritePart("job-" + std::to_string(job) + "/1/a", 0, 0, ""), IsOk());
  }
  EXPECT_THAT(memory.WritePart("one-more/1/a", 0, 0, ""),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("too many jobs")));
  ASSERT_THAT(memory.WritePart("job-1/1/b", 0, 0, ""), IsOk());
}

TEST(SnapshotMemory, WhatTheCoordinatorNoLongerNeeds_Goes) {
  SnapshotMemory memory(100);
  for (int64_t step = 1; step <= 3; ++step) {
    ASSERT_THAT(memory.WriteDurably(PathOf(step, "a"), {"1"}), IsOk());
  }
  ASSERT_THAT(memory.WriteDurably("job2/1/a", {"1"}), IsOk());
  memory.KeepFrom("job", SnapshotDirectory("job", 7, 2));
  EXPECT_THAT(memory.Read(PathOf(1, "a"), 1), StatusIs(absl::StatusCode::kNotFound, _));
  EXPECT_THAT(memory.Read(PathOf(2, "a"), 1), IsOk());
  memory.Forget("job");
  EXPECT_THAT(memory.Jobs(), ElementsAre("job2"));
  EXPECT_EQ(memory.bytes(), 1);
}

TEST(SnapshotMemory, AnswerToAHeartbeat_SaysWhatMayGo) {
  SnapshotMemory memory(100);
  for (const char* job : {"ended", "goes-on", "has-none-whole"}) {
    for (int64_t step = 1; step <= 2; ++step) {
      ASSERT_THAT(memory.WriteDurably(JoinPath(SnapshotDirectory(job, 7, step), "a"), {"1"}),
                  IsOk());
    }
  }
  v1::HeartbeatRequest request;
  for (std::string& job : memory.Jobs()) request.add_snapshot_jobs(std::move(job));
  // It has come since.
  ASSERT_THAT(memory.WriteDurably("new/1/a", {"1"}), IsOk());
  v1::HeartbeatResponse answer;
  v1::KeptSnapshots& kept = *answer.add_kept();
  kept.set_job_id("goes-on");
  kept.set_first_directory(SnapshotDirectory("goes-on", 7, 2));
  answer.add_kept()->set_job_id("has-none-whole");
  memory.KeepNeeded(request, answer);
  EXPECT_THAT(memory.Jobs(), ElementsAre("goes-on", "has-none-whole", "new"));
  EXPECT_EQ(memory.bytes(), 4);
}

v1::Plan PlanOn(const std::vector<std::string>& addresses) {
  v1::Plan plan;
  for (size_t i = 0; i < addresses.size(); ++i) {
    v1::StageAssignment& stage = *plan.add_stages();
    stage.set_worker_index(static_cast<int32_t>(i));
    stage.set_worker("w" + std::to_string(i));
    stage.set_address(addresses[i]);
    stage.set_incarnation(10 + i);
  }
  return plan;
}

TEST(PeerOf, IsTheNextWorkerOnAnotherHost) {
  const v1::Plan plan = PlanOn({"a:1", "a:2", "b:1", "b:2"});
  EXPECT_EQ(PeerOf(plan, 0)->worker(), "w2");
  EXPECT_EQ(PeerOf(plan, 1)->worker(), "w2");
  EXPECT_EQ(PeerOf(plan, 2)->worker(), "w0");
  EXPECT_EQ(PeerOf(plan, 3)->worker(), "w0");
  EXPECT_EQ(PeerOf(plan, 3)->address(), "a:1");
  EXPECT_EQ(PeerOf(plan, 3)->incarnation(), 10u);
}

TEST(PeerOf, OnOneHost_IsTheNextWorker) {
  EXPECT_EQ(PeerOf(PlanOn({"[::1]:1", "[::1]:2", "[::1]:3"}), 2)->worker(), "w0");
  EXPECT_FALSE(PeerOf(PlanOn({"a:1"}), 0).has_value());
}

}  // namespace
}  // namespace penstock
