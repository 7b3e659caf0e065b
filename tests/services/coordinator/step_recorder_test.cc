#include "services/coordinator/step_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_directory.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A job's state as a coordinator has it, and a recorder of it.
class StepRecorderTest : public ::testing::Test {
 protected:
  StepRecorderTest() {
    MutexLock lock(mutex_);
    record_.mutable_summary()->set_job_id("gpt-1");
    record_.mutable_summary()->set_submitted_unix_ms(1'790'000'000'000);
    record_.mutable_spec()->mutable_training()->set_steps(1000);
    record_.mutable_spec()->mutable_step_records()->set_directory(directory());
  }

  std::string directory() const { return directory_.path() / "records"; }
  void Start() {
    recorder_.emplace(StepRecorder::Parts{
        .record = [this](const std::string&) -> absl::StatusOr<v1::GetJobResponse> {
          MutexLock lock(mutex_);
          return record_;
        },
        .events = [this](const std::string&, int64_t after) { return EventsAfter(after); },
        .log =
            [this](const std::string&, const std::string& text) {
              MutexLock lock(mutex_);
              log_.push_back(text);
            },
        .files = RealFiles(),
        .read_interval = absl::Milliseconds(2),
        .retry_interval = absl::Milliseconds(5)});
  }
  absl::StatusOr<std::vector<v1::JobEvent>> EventsAfter(int64_t sequence) {
    MutexLock lock(mutex_);
    const auto end = std::min<int64_t>(events_.size(), sequence + 3);  // a page of three
    return std::vector<v1::JobEvent>(events_.begin() + std::min<int64_t>(sequence, end),
                                     events_.begin() + end);
  }
  void Happen(v1::JobEvent event) {
    {
      MutexLock lock(mutex_);
      event.set_sequence(static_cast<int64_t>(events_.size()) + 1);
      events_.push_back(event);
    }
    if (recorder_.has_value()) recorder_->Wake("gpt-1", event);
  }
  void Steps(int64_t first, int64_t last) {
    for (int64_t step = first; step <= last; ++step) {
      v1::JobEvent event;
      event.mutable_step_done()->set_step(step);
      event.mutable_step_done()->set_loss(1.0);
      Happen(std::move(event));
    }
  }
  void End() {
    v1::JobEvent event;
    event.mutable_state_changed()->set_state(v1::JOB_STATE_SUCCEEDED);
    Happen(std::move(event));
  }
  std::vector<std::string> Log() {
    MutexLock lock(mutex_);
    return log_;
  }
  // The steps in metrics.jsonl, one a line.
  std::vector<int64_t> Recorded() const {
    std::ifstream file(std::filesystem::path(directory()) / "metrics.jsonl");
    std::vector<int64_t> steps;
    for (std::string line; std::getline(file, line);) {
      steps.push_back(std::stoll(line.substr(line.find(':') + 1)));
    }
    return steps;
  }
  template <typename Condition>
  void Await(Condition condition) {
    const absl::Time give_up = absl::Now() + absl::Seconds(30);
    while (!condition() && absl::Now() < give_up) absl::SleepFor(absl::Milliseconds(1));
    EXPECT_TRUE(condition());
  }

  TestDirectory directory_;
  Mutex mutex_;
  v1::GetJobResponse record_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::JobEvent> events_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> log_ ABSL_GUARDED_BY(mutex_);
  std::optional<StepRecorder> recorder_;
};

TEST_F(StepRecorderTest, Job_IsWrittenWhileItRunsAndToItsEnd) {
  Start();
  Steps(1, 10);
  Await([&] { return Recorded().size() == 10; });
  Steps(11, 20);
  End();
  recorder_.reset();  // writes what it has not yet
  std::vector<int64_t> expected;
  for (int64_t step = 1; step <= 20; ++step) expected.push_back(step);
  EXPECT_EQ(Recorded(), expected);
  EXPECT_THAT(Log(), IsEmpty());
}

TEST_F(StepRecorderTest, EachFormat_HasItsFile) {
  for (const char* format : {"csv", "tensorboard"}) {
    MutexLock lock(mutex_);
    record_.mutable_spec()->mutable_step_records()->add_formats(format);
  }
  Start();
  Steps(1, 3);
  recorder_.reset();
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory())) {
    names.push_back(entry.path().filename());
  }
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("metrics.csv",
                                                     "events.out.tfevents.1790000000.gpt-1"));
}

// As after a restart: the recorder knows nothing, and the file has a torn line.
TEST_F(StepRecorderTest, NewRecorder_LeavesEachStepOnce) {
  Start();
  Steps(1, 5);
  recorder_.reset();
  std::ofstream(std::filesystem::path(directory()) / "metrics.jsonl", std::ios::app)
      << "{\"step\":6,\"lo";
  Start();
  Steps(6, 7);
  recorder_.reset();
  EXPECT_THAT(Recorded(), ElementsAre(1, 2, 3, 4, 5, 6, 7));
}

TEST_F(StepRecorderTest, JobThatResumesAnother_GoesOnInItsFile) {
  Start();
  Steps(1, 8);
  recorder_.reset();
  {
    MutexLock lock(mutex_);
    events_.clear();
  }
  Start();
  Steps(5, 6);  // it resumed the checkpoint of step 4
  recorder_.reset();
  EXPECT_THAT(Recorded(), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST_F(StepRecorderTest, DiskThatFails_IsToldOfOnceAndNothingIsMissing) {
  std::ofstream(directory()) << "a file where the directory is to be";
  Start();
  Steps(1, 4);
  Await([&] { return !Log().empty(); });
  EXPECT_THAT(Log()[0], HasSubstr("the records of steps from 1 on are missing"));
  Steps(5, 6);
  absl::SleepFor(absl::Milliseconds(30));  // some tries
  std::filesystem::remove(directory());
  Await([&] { return Recorded().size() == 6; });
  EXPECT_THAT(Recorded(), ElementsAre(1, 2, 3, 4, 5, 6));
  Await([&] { return Log().size() == 2; });
  EXPECT_THAT(Log()[1], HasSubstr("none is missing"));
}

TEST_F(StepRecorderTest, JobWithoutADirectory_IsNotRecorded) {
  {
    MutexLock lock(mutex_);
    record_.mutable_spec()->clear_step_records();
  }
  Start();
  Steps(1, 4);
  End();
  recorder_.reset();
  EXPECT_FALSE(std::filesystem::exists(directory()));
  EXPECT_THAT(Log(), IsEmpty());
}

TEST(RecordDirectory, IsTheCheckpointsUnlessTheJobNamesOne) {
  v1::JobSpec spec;
  EXPECT_EQ(RecordDirectoryOf(spec), "");
  spec.mutable_checkpoint()->set_directory("/checkpoints");
  EXPECT_EQ(RecordDirectoryOf(spec), "/checkpoints");
  spec.mutable_step_records()->set_directory("/records");
  EXPECT_EQ(RecordDirectoryOf(spec), "/records");
}

}  // namespace
}  // namespace penstock
