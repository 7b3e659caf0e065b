#include "services/metrics/finished_runs.h"

#include <utility>

namespace penstock {

void FinishedRuns::Add(RunSnapshot run, int64_t now_ns) {
  MutexLock lock(mutex_);
  std::erase_if(kept_, [&](const Kept& kept) { return kept.run.job_id == run.job_id; });
  run.running = false;
  kept_.push_back({std::move(run), now_ns});
  if (kept_.size() > kRunsMax) kept_.pop_front();
}

std::vector<RunSnapshot> FinishedRuns::Show(RunSnapshot current, int64_t now_ns) {
  std::vector<RunSnapshot> runs;
  bool shows_current = current.running && !current.stages.empty();
  MutexLock lock(mutex_);
  std::erase_if(kept_, [&](const Kept& kept) {
    return now_ns - kept.ended_ns >= absl::ToInt64Nanoseconds(kKeptFor);
  });
  for (const Kept& kept : kept_) {
    const bool same_job = kept.run.job_id == current.job_id;
    if (same_job && kept.run.epoch == current.epoch) shows_current = false;  // it ends just now
    if (same_job && kept.run.epoch != current.epoch && shows_current) continue;
    runs.push_back(kept.run);
  }
  if (shows_current) runs.push_back(std::move(current));
  return runs;
}

}  // namespace penstock
