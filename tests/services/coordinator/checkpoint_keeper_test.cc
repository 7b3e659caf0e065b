#include "services/coordinator/checkpoint_keeper.h"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <filesystem>
#include <future>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/layout.h"
#include "services/coordinator/directory_lock.h"
#include "services/coordinator/job_store.h"
#include "tests/support/memory_files.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_directory.h"

namespace penstock {
namespace {

using ::testing::_;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class NoPerformer final : public EffectPerformer {
 public:
  void Perform(const CallWorker&) override {}
  void Perform(const ProbeWorker&) override {}
  void Perform(const FindCheckpoint&) override {}
  void Perform(const CommitStaged&) override {}
  void Perform(const DiscardStaged&) override {}
  void Perform(const GatherTimeline&) override {}
  void Perform(const JudgeCandidates&) override {}
  void Perform(const GatherPasses&) override {}
  void OnEventStored(const PublishEvent&) override {}
  void OnStoreWritable(bool) override {}
};

// A disk on which whatever is below /hung hangs until the test lets it go.
class HangingFiles final : public MemoryFiles {
 public:
  explicit HangingFiles(std::shared_future<void> going) : going_(std::move(going)) {}

  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override {
    if (absl::StartsWith(path, "/hung")) going_.wait();
    return MemoryFiles::List(path);
  }
  absl::StatusOr<std::string> Read(const std::string& path, int64_t size_bytes_max) override {
    if (absl::StartsWith(path, "/hung/models")) going_.wait();
    return MemoryFiles::Read(path, size_bytes_max);
  }

 private:
  const std::shared_future<void> going_;
};

absl::StatusOr<Descriptor> NoLocks(const std::string&) {
  return absl::UnimplementedError("no locks here");
}

// Two disks: /hung, which hangs, and another.
std::string DiskOf(const std::string& directory) {
  return absl::StartsWith(directory, "/hung") ? "/hung" : "/";
}

class CheckpointKeeperTest : public ::testing::Test {
 protected:
  void SetUp() override {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(JobStore store, JobStore::Open(""));
    loop_ = std::make_unique<EventLoop>(RealClock(), CoordinatorLimits(),
                                        std::make_unique<JobStore>(std::move(store)), performer_,
                                        nullptr);
    keeper_ = std::make_unique<CheckpointKeeper>(*loop_, *files_, NoLocks, DiskOf);
  }
  void TearDown() override {
    LetGo();
    keeper_.reset();
  }
  void LetGo() {
    if (!std::exchange(let_go_, true)) go_.set_value();
  }
  void Stage(const std::string& root, int64_t step, const std::string& tag) {
    const absl::Status staged = files_->WriteDurably(StagingPath(root, step, tag) + "/file", {"x"});
    ASSERT_THAT(staged, IsOk());
  }
  // What the disk of `root` was asked for before is done.
  void Await(const std::string& root) {
    v1::CheckpointSpec checkpoint;
    checkpoint.set_directory(root);
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    ASSERT_THAT(files_->WriteDurably(JoinPath(root, StepDirectoryName(1)) + "/file", {"x"}),
                IsOk());
    while (keeper_->LookAhead(checkpoint).ok()) ASSERT_LT(absl::Now(), deadline);
  }

  std::promise<void> go_;
  bool let_go_ = false;
  const std::shared_ptr<HangingFiles> files_ =
      std::make_shared<HangingFiles>(go_.get_future().share());
  NoPerformer performer_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<CheckpointKeeper> keeper_;
};

TEST(CheckpointKeeperStart, StartIsSought_DeadAttemptsAreClearedUp) {
  const std::string root =
      std::filesystem::path(::testing::TempDir()) / absl::StrCat("keeper-", getpid());
  const std::string staging = StagingPath(root, 5, "dead");
  std::filesystem::create_directories(staging);
  DirectoryLease lease;
  const FindCheckpoint find{.job_id = "job-1", .query = {.root = root, .resume = "latest"}};
  EXPECT_THAT(ClaimAndFindStart(RealFiles(), find, lease), IsOk());
  EXPECT_FALSE(std::filesystem::exists(staging));
  std::filesystem::remove_all(root);
}

// Nothing tells whether another job writes there at this moment.
TEST_F(CheckpointKeeperTest, StartWithoutLocks_LeavesWhatOtherJobsStage) {
  ASSERT_THAT(files_->CreateDirectories("/fine"), IsOk());
  for (const char* tag : {"job-1-11", "job-2-11"}) Stage("/fine", 5, tag);
  DirectoryLease lease;
  const FindCheckpoint find{.job_id = "job-1", .query = {.root = "/fine", .resume = "latest"}};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const FoundStart start,
                                ClaimAndFindStart(*files_, find, lease, NoLocks));
  EXPECT_EQ(lease, nullptr);
  EXPECT_THAT(start.notes, ElementsAre(HasSubstr("no locks here")));
  EXPECT_THAT(files_->List("/fine"), IsOkAndHolds(ElementsAre("step-000000000005.tmp-job-2-11")));
}

TEST_F(CheckpointKeeperTest, AdoptedAttempt_KeepsWhatItStages) {
  ASSERT_THAT(files_->CreateDirectories("/fine"), IsOk());
  for (const char* tag : {"job-1-11", "job-1-12"}) Stage("/fine", 5, tag);
  const FindCheckpoint find{
      .job_id = "job-1", .query = {.root = "/fine"}, .adopted_tag = "job-1-12"};
  DirectoryLease lease;
  EXPECT_THAT(ClaimAndFindStart(*files_, find, lease, NoLocks), IsOk());
  EXPECT_THAT(files_->List("/fine"), IsOkAndHolds(ElementsAre("step-000000000005.tmp-job-1-12")));
}

TEST_F(CheckpointKeeperTest, Discard_RemovesTheAttemptsStagingAlone) {
  ASSERT_THAT(files_->CreateDirectories("/fine"), IsOk());
  for (int64_t step : {4, 5}) Stage("/fine", step, "job-1-11");
  Stage("/fine", 4, "job-1-12");
  keeper_->Perform(DiscardStaged{.root = "/fine", .tag = "job-1-11", .step = 4});
  Await("/fine");
  EXPECT_THAT(files_->List("/fine"),
              IsOkAndHolds(ElementsAre("step-000000000001", "step-000000000004.tmp-job-1-12",
                                       "step-000000000005.tmp-job-1-11")));
}

TEST_F(CheckpointKeeperTest, OneDiskHangs_WorkOnAnotherGoesOn) {
  for (const char* root : {"/hung/a", "/fine"})
    ASSERT_THAT(files_->CreateDirectories(root), IsOk());
  keeper_->Perform(
      FindCheckpoint{.job_id = "job-1", .query = {.root = "/hung/a"}, .limit_ms = 60'000});
  Stage("/fine", 5, "job-2-11");
  keeper_->Perform(DiscardStaged{.root = "/fine", .tag = "job-2-11", .step = 5});
  Await("/fine");
  EXPECT_THAT(files_->List("/fine"), IsOkAndHolds(ElementsAre("step-000000000001")));
}

// The checkpoint to resume from is elsewhere than the job's own.
TEST_F(CheckpointKeeperTest, DiskOfTheCheckpointHangs_WorkOnThatOfTheDirectoryGoesOn) {
  for (const char* root : {"/hung/a", "/fine"})
    ASSERT_THAT(files_->CreateDirectories(root), IsOk());
  v1::CheckpointSpec checkpoint;
  checkpoint.set_directory("/fine");
  checkpoint.set_resume("/hung/a");
  EXPECT_THAT(keeper_->LookAhead(checkpoint), IsOk()) << "its start will tell";
  keeper_->Perform(FindCheckpoint{
      .job_id = "job-1", .query = {.root = "/fine", .resume = "/hung/a"}, .limit_ms = 60'000});
  Await("/fine");
  checkpoint.set_directory("/hung/a");
  checkpoint.set_resume("/none");
  EXPECT_THAT(keeper_->LookAhead(checkpoint),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("checkpoint.resume: ")));
}

TEST_F(CheckpointKeeperTest, ModelOfADirectory_IsReadUnlessItsDiskHangs) {
  constexpr char kConfig[] =
      R"({"model_type": "gpt2", "n_embd": 8, "n_head": 2, "n_layer": 1, "n_positions": 4, "vocab_size": 9})";
  ASSERT_THAT(files_->WriteDurably("/fine/models/config.json", {kConfig}), IsOk());
  ASSERT_THAT(files_->WriteDurably("/hung/models/config.json", {kConfig}), IsOk());
  const auto read = [this](const char* directory) -> absl::StatusOr<v1::ModelSpec> {
    v1::ModelSpec model;
    model.mutable_hugging_face()->set_directory(directory);
    PENSTOCK_RETURN_IF_ERROR(keeper_->ReadModel(model));
    return model;
  };
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::ModelSpec model, read("/fine/models"));
  EXPECT_EQ(model.gpt().vocabulary(), 9);
  EXPECT_EQ(model.pretrained().directory(), "/fine/models");
  EXPECT_THAT(read("models"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("needs an absolute path")));
  EXPECT_THAT(read("/fine/none"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("config.json")));
  EXPECT_THAT(read("/hung/models"),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("does not answer")));
}

// Nobody waits for it any more, so it must neither take the directory nor clear it up.
TEST_F(CheckpointKeeperTest, SearchWaitedLongerThanItsLimit_IsNotBegun) {
  for (const char* root : {"/hung/a", "/hung/b"}) {
    ASSERT_THAT(files_->CreateDirectories(root), IsOk());
  }
  Stage("/hung/b", 5, "job-2-11");
  keeper_->Perform(
      FindCheckpoint{.job_id = "job-1", .query = {.root = "/hung/a"}, .limit_ms = 60'000});
  keeper_->Perform(FindCheckpoint{.job_id = "job-2", .query = {.root = "/hung/b"}, .limit_ms = 0});
  LetGo();
  Await("/hung/b");
  EXPECT_TRUE(files_->Exists(StagingPath("/hung/b", 5, "job-2-11") + "/file"));
}

// A directory with a lock, whatever it is called.
class LockedDirectoryTest : public CheckpointKeeperTest {
 protected:
  void SetUp() override {
    CheckpointKeeperTest::SetUp();
    for (const char* root : {"/hung/a", "/fine"}) {
      ASSERT_THAT(files_->CreateDirectories(root), IsOk());
    }
    MakeKeeper(absl::ZeroDuration());
  }
  void MakeKeeper(absl::Duration held_patience) {
    keeper_ = std::make_unique<CheckpointKeeper>(
        *loop_, *files_,
        [this](const std::string&) {
          free_.push_back(DirectoryLock::Take(directory_.path()).ok());
          ++takes_;
          return OpenLockFile(directory_.path() / DirectoryLock::kFileName);
        },
        DiskOf, held_patience);
  }
  // Makes a checkpoint in another directory, and returns a search for the start of a job that is to go on from it.
  FindCheckpoint FindFromElsewhere() {
    LayerState layer{.layer = 0, .name = "head"};
    layer.weights = {{.name = "w", .shape = {1}, .values = {1.0f}}};
    Manifest manifest{.job_id = "job-0", .step = 5, .updates = 5};
    manifest.fingerprint = {{"model.width", "8"}};
    auto written = WriteLayer(*files_, StagingPath("/other", 5, "tag"), layer);
    EXPECT_THAT(written, IsOk());
    if (written.ok()) manifest.files = *std::move(written);
    const auto there =
        CommitCheckpoint(*files_, {.root = "/other", .tag = "tag", .layers = 1}, manifest);
    EXPECT_THAT(there, IsOk());
    return {.job_id = "job-1",
            .query = {.root = "/fine",
                      .resume = there.ok() ? there->directory : "",
                      .fingerprint = manifest.fingerprint,
                      .steps = 10},
            .limit_ms = 60'000};
  }
  void AwaitTakes(int takes) {
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    while (takes_ < takes) {
      ASSERT_LT(absl::Now(), deadline);
      absl::SleepFor(absl::Milliseconds(1));
    }
  }

  const TestDirectory directory_;
  std::deque<bool> free_;  // was it before it was taken?
  std::atomic<int> takes_ = 0;
};

TEST_F(LockedDirectoryTest, CheckpointIsElsewhere_IsReadAndTheDirectoryTaken) {
  FindCheckpoint find = FindFromElsewhere();
  const std::string there = std::exchange(find.query.resume, "/none");
  keeper_->Perform(find);
  v1::CheckpointSpec checkpoint;
  checkpoint.set_resume("/none");
  EXPECT_THAT(keeper_->LookAhead(checkpoint), StatusIs(absl::StatusCode::kNotFound, _));
  EXPECT_EQ(takes_, 0) << "there is nothing to start from";
  find.query.resume = there;
  keeper_->Perform(find);
  AwaitTakes(1);
  ASSERT_THAT(loop_->Start(), IsOk());  // takes the lease
}

// Its job has failed meanwhile, so nobody would let the directory go before the next one is there.
TEST_F(LockedDirectoryTest, SearchEndsAfterItsLimit_GivesTheDirectoryUp) {
  constexpr absl::Duration kLimit = absl::Seconds(1);
  FindCheckpoint find{.job_id = "job-1",
                      .query = {.root = "/hung/a", .resume = "latest"},
                      .limit_ms = absl::ToInt64Milliseconds(kLimit)};
  keeper_->Perform(find);
  AwaitTakes(1);  // it hangs with the lock, and the loop is not there to take its answer
  absl::SleepFor(kLimit);
  find.job_id = "job-2";
  find.limit_ms = 60'000;
  keeper_->Perform(find);
  LetGo();
  AwaitTakes(2);
  EXPECT_THAT(free_, ElementsAre(true, true));
  ASSERT_THAT(loop_->Start(), IsOk());  // takes the lease
}

// The loop drops the answer for a job that was cancelled, but the disk may be faster.
TEST_F(LockedDirectoryTest, JobIsGoneWhenItsSearchEnds_TheNextFindsTheDirectoryFree) {
  ASSERT_THAT(loop_->Start(), IsOk());
  loop_->Post([](Coordinator&, Now) { absl::SleepFor(absl::Milliseconds(300)); });
  for (const char* job : {"job-1", "job-2"}) {
    keeper_->Perform(FindCheckpoint{
        .job_id = job, .query = {.root = "/fine", .resume = "latest"}, .limit_ms = 60'000});
  }
  AwaitTakes(2);
  EXPECT_THAT(free_, ElementsAre(true, true));
}

// The coordinator that led before has not let it go yet.
TEST_F(LockedDirectoryTest, DirectoryThatAnotherHolds_IsWaitedFor) {
  ASSERT_THAT(loop_->Start(), IsOk());
  MakeKeeper(/*held_patience=*/absl::Seconds(60));
  const FindCheckpoint own{
      .job_id = "job-1", .query = {.root = "/fine", .resume = "latest"}, .limit_ms = 60'000};
  for (const FindCheckpoint& find : {own, FindFromElsewhere()}) {
    const absl::Time deadline = absl::Now() + absl::Seconds(60);
    absl::StatusOr<std::shared_ptr<DirectoryLock>> held = DirectoryLock::Take(directory_.path());
    while (!held.ok()) {  // the job before has not let it go
      ASSERT_LT(absl::Now(), deadline);
      held = DirectoryLock::Take(directory_.path());
    }
    Stage("/fine", 5, "dead");
    const int before = takes_;
    keeper_->Perform(find);
    AwaitTakes(before + 2);
    EXPECT_TRUE(files_->Exists(StagingPath("/fine", 5, "dead") + "/file")) << "it is another's";
    held = absl::NotFoundError("let go");
    while (files_->Exists(StagingPath("/fine", 5, "dead") + "/file")) {
      ASSERT_LT(absl::Now(), deadline);
      absl::SleepFor(absl::Milliseconds(1));
    }
  }
}

// The files live on: the thread that hangs is in them.
TEST_F(CheckpointKeeperTest, DiskHangsAtTheEnd_IsNotWaitedForLong) {
  ASSERT_THAT(files_->CreateDirectories("/hung/a"), IsOk());
  keeper_->Perform(
      FindCheckpoint{.job_id = "job-1", .query = {.root = "/hung/a"}, .limit_ms = 60'000});
  const absl::Time before = absl::Now();
  keeper_.reset();
  loop_.reset();
  EXPECT_LT(absl::Now() - before, absl::Seconds(20));
  static const std::shared_ptr<HangingFiles> for_the_thread = files_;
}

}  // namespace
}  // namespace penstock
