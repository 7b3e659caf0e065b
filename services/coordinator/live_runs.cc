#include "services/coordinator/live_runs.h"

#include <algorithm>
#include <utility>

namespace penstock {

std::shared_ptr<const LiveRun> LiveRuns::Look(const std::string& job_id, int64_t epoch,
                                              const v1::Plan& plan, absl::Duration wanted) {
  std::shared_ptr<const LiveRun> latest;
  {
    MutexLock lock(mutex_);
    const int64_t now_ns = clock_.MonotonicNs();
    if (!jobs_.contains(job_id)) MakeRoom(now_ns);
    Job& job = jobs_.try_emplace(job_id, Job{.epoch = epoch}).first->second;
    if (job.epoch != epoch) job = {.epoch = epoch};
    job.looked_ns = now_ns;
    const bool fresh = job.asked_ns.has_value() &&
                       now_ns - *job.asked_ns < absl::ToInt64Nanoseconds(kRefreshInterval);
    if (job.gathering || fresh) return job.latest;
    job.gathering = true;
    job.asked_ns = now_ns;
    latest = job.latest;
  }
  gather_(job_id, plan, std::clamp(wanted, kWindowMin, kWindowMax),
          [this, job_id, epoch](LiveRun live) {
            auto gathered = std::make_shared<const LiveRun>(std::move(live));
            MutexLock lock(mutex_);
            const auto job = jobs_.find(job_id);
            if (job == jobs_.end() || job->second.epoch != epoch) return;  // forgotten meanwhile
            job->second.latest = std::move(gathered);
            job->second.gathering = false;
          });
  return latest;
}

void LiveRuns::MakeRoom(int64_t now_ns) {
  std::erase_if(jobs_, [now_ns](const auto& entry) {
    return now_ns - entry.second.looked_ns > absl::ToInt64Nanoseconds(kForgetAfter);
  });
  if (jobs_.size() < kJobsMax) return;
  jobs_.erase(std::min_element(jobs_.begin(), jobs_.end(), [](const auto& a, const auto& b) {
    return a.second.looked_ns < b.second.looked_ns;
  }));
}

}  // namespace penstock
