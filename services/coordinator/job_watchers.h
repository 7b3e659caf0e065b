// JobWatchers: streams that wait for a job's next event.
//
// Thread safety: all methods may be called from any thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "services/rpc/server_call.h"

namespace penstock {

class JobWatchers {
 public:
  // Wakes `waker` at each new event of the job until its stream is over.
  void Add(const std::string& job_id, StreamWaker waker) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    wakers_[job_id].push_back(std::move(waker));
  }

  void Wake(const std::string& job_id) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    const auto job = wakers_.find(job_id);
    if (job == wakers_.end()) {
      return;
    }
    std::erase_if(job->second, [](const StreamWaker& waker) { return !waker.alive(); });
    for (const StreamWaker& waker : job->second) {
      waker.Wake();
    }
    if (job->second.empty()) {
      wakers_.erase(job);
    }
  }

 private:
  Mutex mutex_;
  std::map<std::string, std::vector<StreamWaker>> wakers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace penstock
