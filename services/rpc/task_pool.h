// TaskPool: a few threads behind a bounded queue, for work that must not run on a polling thread.
//
// Thread safety: all methods may be called from any thread.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace penstock {

class TaskPool {
 public:
  // `queue_max`: tasks that wait for a thread.
  TaskPool(int threads, int queue_max, const std::string& name);
  // Runs what is queued, then stops.
  ~TaskPool();
  TaskPool(const TaskPool&) = delete;
  TaskPool& operator=(const TaskPool&) = delete;

  // False, and nothing happens, if the queue is full or the pool is stopping.
  [[nodiscard]] bool Submit(std::function<void()> task) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Work() ABSL_LOCKS_EXCLUDED(mutex_);

  const size_t queue_max_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;  // constant after construction
};

}  // namespace penstock
