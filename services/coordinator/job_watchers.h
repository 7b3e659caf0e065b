// JobWatchers: streams that wait for a job's next event.
//
// Thread safety: all methods may be called from any thread.
#pragma once

#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "services/rpc/waker_list.h"

namespace penstock {

class JobWatchers {
 public:
  // Wakes `waker` at each new event of the job until its stream is over. Forgets the streams that
  // are over, of all jobs: one that has ended has no event any more at which to do so.
  void Add(const std::string& job_id, StreamWaker waker) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    for (auto job = jobs_.begin(); job != jobs_.end();) {
      job->second.Sweep();
      job = job->second.empty() ? jobs_.erase(job) : std::next(job);
    }
    jobs_[job_id].Add(std::move(waker));
  }

  void Wake(const std::string& job_id) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    const auto job = jobs_.find(job_id);
    if (job != jobs_.end()) {
      job->second.WakeAll();
    }
  }

  // Returns how many jobs somebody watches, or did until lately.
  size_t jobs() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    return jobs_.size();
  }

 private:
  Mutex mutex_;
  std::map<std::string, WakerList> jobs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace penstock
