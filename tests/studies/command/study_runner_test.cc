#include "studies/command/study_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <sstream>
#include <vector>

#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

class StudyRunnerTest : public ::testing::Test {
 protected:
  StudyRunnerTest() : interrupt_(*Interrupt::Create()) {}

  Interrupt interrupt_;
  std::ostringstream out_;
  std::ostringstream err_;
  Console console_{out_, err_};
};

TEST_F(StudyRunnerTest, ForEach_CallsEveryNumberOnce) {
  for (const int threads : {1, 2, 7}) {
    StudyRunner runner(threads, console_, RealClock(), interrupt_);
    std::vector<std::atomic<int>> calls(100);
    EXPECT_THAT(runner.ForEach(100, [&](int64_t i) { ++calls[i]; }), IsOk());
    for (const std::atomic<int>& count : calls) EXPECT_EQ(count, 1);
    EXPECT_THAT(runner.ForEach(0, [](int64_t) { FAIL(); }), IsOk());
  }
  EXPECT_EQ(out_.str(), "");
}

TEST_F(StudyRunnerTest, Interrupt_EndsTheStudy) {
  StudyRunner runner(2, console_, RealClock(), interrupt_);
  kill(getpid(), SIGINT);
  EXPECT_THAT(runner.ForEach(3, [](int64_t) {}),
              StatusIs(absl::StatusCode::kCancelled, "interrupted; nothing was written"));
}

}  // namespace
}  // namespace penstock
