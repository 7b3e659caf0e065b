#include "studies/command/study_runner.h"

#include <atomic>

#include "services/cli/command.h"
#include "studies/experiments/study_threads.h"

namespace penstock {

StudyRunner::StudyRunner(int threads, Console& console, Clock& clock, Interrupt& interrupt)
    : threads_(threads), interrupt_(interrupt), display_("run", console, clock) {}

absl::Status StudyRunner::ForEach(int64_t count, const std::function<void(int64_t)>& body) {
  std::atomic<int64_t> done = 0;
  const auto call = [&](int64_t i) {
    body(i);
    ++done;
  };
  RunOnThreads(threads_, count, call, [&] {
    display_.Draw(calls_done_ + done, calls_in_all_, what_);
    return interrupt_.Count() == 0;
  });
  calls_done_ += done;
  if (interrupt_.Count() > 0) return InterruptedError("interrupted; nothing was written");
  return absl::OkStatus();
}

void StudyRunner::Announce(const std::string& what, int64_t calls_in_all) {
  what_ = what;
  calls_in_all_ = calls_in_all;
}

}  // namespace penstock
