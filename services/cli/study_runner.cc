#include "services/cli/study_runner.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/deadline.h"
#include "base/mutex.h"
#include "services/cli/command.h"
#include "services/cli/text.h"

namespace penstock {
namespace {

constexpr char kEraseLine[] = "\r\x1b[K";
constexpr absl::Duration kLookInterval = absl::Milliseconds(100);
constexpr int64_t kPlainIntervalNs = 10'000'000'000;

// The calls of one ForEach, handed out to threads.
class Calls {
 public:
  Calls(int64_t count, const std::function<void(int64_t)>& body) : count_(count), body_(body) {}

  // Of a thread: takes calls until there are none left.
  void Work() {
    while (!stopped_) {
      const int64_t call = next_++;
      if (call >= count_) break;
      body_(call);
      ++done_;
    }
    MutexLock lock(mutex_);
    ++threads_done_;
    changed_.NotifyOne();
  }

  void Stop() { stopped_ = true; }
  int64_t done() const { return done_; }

  // Waits a while for all `threads` to be done; returns whether they are.
  bool WaitFor(int threads, absl::Duration wait) {
    const CondVar::Clock::time_point deadline = After(wait);
    MutexLock lock(mutex_);
    while (threads_done_ < threads) {
      if (!changed_.WaitUntil(mutex_, deadline)) break;
    }
    return threads_done_ == threads;
  }

 private:
  const int64_t count_;
  const std::function<void(int64_t)>& body_;
  std::atomic<int64_t> next_ = 0;
  std::atomic<int64_t> done_ = 0;
  std::atomic<bool> stopped_ = false;
  Mutex mutex_;
  CondVar changed_;
  int threads_done_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace

StudyRunner::StudyRunner(int threads, Console& console, Clock& clock, Interrupt& interrupt)
    : threads_(threads),
      console_(console),
      clock_(clock),
      interrupt_(interrupt),
      start_ns_(clock.MonotonicNs()),
      drawn_ns_(start_ns_) {}

StudyRunner::~StudyRunner() {
  if (line_open_) console_.err << kEraseLine << std::flush;
}

absl::Status StudyRunner::ForEach(int64_t count, const std::function<void(int64_t)>& body) {
  Calls calls(count, body);
  const int wanted = static_cast<int>(std::min<int64_t>(threads_, count));
  std::vector<std::thread> threads;
  for (int i = 0; i < wanted; ++i) threads.emplace_back([&calls] { calls.Work(); });
  while (!calls.WaitFor(wanted, kLookInterval)) {
    if (interrupt_.Count() > 0) calls.Stop();
    Draw(calls_done_ + calls.done());
  }
  for (std::thread& thread : threads) thread.join();
  calls_done_ += calls.done();
  if (interrupt_.Count() > 0) return InterruptedError("interrupted; nothing was written");
  return absl::OkStatus();
}

void StudyRunner::Announce(const std::string& what, int64_t calls_in_all) {
  what_ = what;
  calls_in_all_ = calls_in_all;
}

void StudyRunner::Draw(int64_t calls_done) {
  if (console_.err_is_terminal) {
    console_.err << kEraseLine << Line(calls_done) << std::flush;
    line_open_ = true;
    return;
  }
  const int64_t now_ns = clock_.MonotonicNs();
  if (now_ns - drawn_ns_ < kPlainIntervalNs) return;
  drawn_ns_ = now_ns;
  console_.err << Line(calls_done) << "\n" << std::flush;
}

std::string StudyRunner::Line(int64_t calls_done) const {
  const double seconds = static_cast<double>(clock_.MonotonicNs() - start_ns_) * 1e-9;
  const double share =
      static_cast<double>(calls_done) / static_cast<double>(std::max<int64_t>(1, calls_in_all_));
  return absl::StrFormat("%3.0f %%  run %d of %d  %s  %s", 100 * share, calls_done, calls_in_all_,
                         FormatDuration(seconds), what_);
}

}  // namespace penstock
