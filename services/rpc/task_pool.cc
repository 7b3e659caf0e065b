#include "services/rpc/task_pool.h"

#include <utility>

#include "services/rpc/completion_poller.h"

namespace penstock {

TaskPool::TaskPool(int threads, int queue_max, const std::string& name)
    : queue_max_(static_cast<size_t>(queue_max)) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this, name] {
      NameThread(name);
      Work();
    });
  }
}

TaskPool::~TaskPool() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  for (std::thread& thread : threads_) thread.join();
}

bool TaskPool::Submit(std::function<void()> task) {
  {
    MutexLock lock(mutex_);
    if (stopping_ || queue_.size() >= queue_max_) return false;
    queue_.push_back(std::move(task));
  }
  changed_.NotifyOne();
  return true;
}

void TaskPool::Work() {
  while (true) {
    std::function<void()> task;
    {
      MutexLock lock(mutex_);
      while (queue_.empty() && !stopping_) changed_.Wait(mutex_);
      if (queue_.empty()) return;
      task = std::move(queue_.front());
      queue_.pop_front();
    }
    task();
  }
}

}  // namespace penstock
