#include "studies/experiments/study_threads.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "base/deadline.h"
#include "base/mutex.h"

namespace penstock {
namespace {

constexpr absl::Duration kLookInterval = absl::Milliseconds(100);

// The calls, handed out to threads.
class Calls {
 public:
  Calls(int64_t count, const std::function<void(int64_t)>& body) : count_(count), body_(body) {}

  // Runs on a thread: takes calls until there are none left.
  void Work() {
    while (!stopped_) {
      const int64_t call = next_++;
      if (call >= count_) break;
      body_(call);
    }
    MutexLock lock(mutex_);
    ++threads_done_;
    changed_.NotifyOne();
  }

  void Stop() { stopped_ = true; }

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
  std::atomic<bool> stopped_ = false;
  Mutex mutex_;
  CondVar changed_;
  int threads_done_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace

void RunOnThreads(int threads, int64_t count, const std::function<void(int64_t)>& body,
                  const std::function<bool()>& look) {
  Calls calls(count, body);
  const int wanted = static_cast<int>(std::min<int64_t>(threads, count));
  std::vector<std::thread> running;
  running.reserve(wanted);
  for (int i = 0; i < wanted; ++i) running.emplace_back([&calls] { calls.Work(); });
  while (!calls.WaitFor(wanted, kLookInterval)) {
    if (!look()) calls.Stop();
  }
  for (std::thread& thread : running) thread.join();
}

}  // namespace penstock
