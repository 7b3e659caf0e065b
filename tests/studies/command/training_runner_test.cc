#include "studies/command/training_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <ostream>
#include <sstream>
#include <streambuf>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/mutex.h"
#include "tests/support/manual_clock.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kRunSecondNs = 1'000'000'000;

// Text that one thread writes and another one waits for.
class SharedText : public std::streambuf {
 public:
  std::string Get() {
    MutexLock lock(mutex_);
    return text_;
  }
  // Whether `part` comes before the deadline.
  bool WaitFor(const std::string& part) {
    const auto deadline = After(absl::Seconds(30));
    MutexLock lock(mutex_);
    while (text_.find(part) == std::string::npos) {
      if (!changed_.WaitUntil(mutex_, deadline)) return false;
    }
    return true;
  }

 protected:
  int_type overflow(int_type c) override {
    MutexLock lock(mutex_);
    text_ += static_cast<char>(c);
    changed_.NotifyAll();
    return c;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::string text_ ABSL_GUARDED_BY(mutex_);
};

class TrainingRunnerTest : public ::testing::Test {
 protected:
  TrainingRunnerTest() : interrupt_(*Interrupt::Create()) {}

  // A run of so many microbatches, two seconds each.
  absl::Status Train(TrainingRunner& runner, int microbatches) {
    for (int i = 0; i < microbatches; ++i) {
      clock_.now_ns += 2 * kRunSecondNs;
      absl::Status status = runner.MicrobatchDone(3.25, 4096);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  Interrupt interrupt_;
  ManualClock clock_;
  std::ostringstream out_;
  SharedText shown_;
  std::ostream err_{&shown_};
  Console console_{out_, err_};
};

TEST_F(TrainingRunnerTest, ForEachRun_TrainsEveryRunOnce) {
  for (const int threads : {1, 2, 7}) {
    TrainingRunner runner(threads, console_, clock_, interrupt_);
    std::vector<std::atomic<int>> runs(20);
    EXPECT_THAT(runner.ForEachRun(20, 20,
                                  [&](int64_t i) {
                                    ++runs[i];
                                    return absl::OkStatus();
                                  }),
                IsOk());
    for (const std::atomic<int>& count : runs) EXPECT_EQ(count, 1);
  }
}

TEST_F(TrainingRunnerTest, Progress_CountsTheMicrobatchesOfAllRuns) {
  TrainingRunner runner(1, console_, clock_, interrupt_);
  EXPECT_THAT(runner.ForEachRun(2, 10, [&](int64_t) { return Train(runner, 5); }), IsOk());
  EXPECT_THAT(shown_.Get(), HasSubstr("microbatch 10/10  loss 3.2500  2.05 k tokens/s"));
  EXPECT_EQ(out_.str(), "");
}

// It is told while the runs go on.
TEST_F(TrainingRunnerTest, Estimate_IsOfTheFirstMicrobatches) {
  TrainingRunner runner(1, console_, clock_, interrupt_);
  EXPECT_THAT(runner.ForEachRun(2, 1800,
                                [&](int64_t i) {
                                  if (i == 1) return absl::OkStatus();
                                  absl::Status status = Train(runner, 4);
                                  EXPECT_TRUE(shown_.WaitFor(
                                      "runs: 2, 1 at a time; 1800 microbatches in all, 2.0 s each: "
                                      "about 1h 00m"));
                                  return status;
                                }),
              IsOk());
}

TEST_F(TrainingRunnerTest, TooFewMicrobatches_GiveNoEstimate) {
  TrainingRunner runner(1, console_, clock_, interrupt_);
  EXPECT_THAT(runner.ForEachRun(1, 3, [&](int64_t) { return Train(runner, 3); }), IsOk());
  EXPECT_THAT(shown_.Get(), Not(HasSubstr("about")));
}

TEST_F(TrainingRunnerTest, Error_IsReturnedAndNoMoreRunsBegin) {
  TrainingRunner runner(1, console_, clock_, interrupt_);
  int began = 0;
  EXPECT_THAT(runner.ForEachRun(5, 5,
                                [&](int64_t i) {
                                  ++began;
                                  return i == 1 ? absl::InternalError("broken") : absl::OkStatus();
                                }),
              StatusIs(absl::StatusCode::kInternal, "broken"));
  EXPECT_EQ(began, 2);
}

TEST_F(TrainingRunnerTest, Interrupt_EndsARunWithItsMicrobatch) {
  TrainingRunner runner(1, console_, RealClock(), interrupt_);
  kill(getpid(), SIGINT);
  EXPECT_THAT(runner.ForEachRun(2, 1'000'000'000,
                                [&](int64_t) {
                                  absl::Status status;
                                  while (status.ok()) status = runner.MicrobatchDone(1.0, 1);
                                  return status;
                                }),
              StatusIs(absl::StatusCode::kCancelled, "interrupted"));
}

}  // namespace
}  // namespace penstock
