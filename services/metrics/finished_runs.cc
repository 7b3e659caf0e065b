#include "services/metrics/finished_runs.h"

#include <algorithm>
#include <utility>

#include "base/deadline.h"

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
  for (Kept& kept : kept_) {
    kept.shown = true;
    const bool same_job = kept.run.job_id == current.job_id;
    if (same_job && kept.run.epoch == current.epoch) shows_current = false;  // it ends just now
    if (same_job && kept.run.epoch != current.epoch && shows_current) continue;
    runs.push_back(kept.run);
  }
  if (shows_current) runs.push_back(std::move(current));
  shown_.NotifyAll();
  return runs;
}

bool FinishedRuns::AllShown() const {
  return std::all_of(kept_.begin(), kept_.end(), [](const Kept& kept) { return kept.shown; });
}

bool FinishedRuns::AwaitShown(absl::Time deadline) {
  MutexLock lock(mutex_);
  const auto until = Monotonic(deadline);
  while (!AllShown()) {
    if (!shown_.WaitUntil(mutex_, until)) return AllShown();
  }
  return true;
}

}  // namespace penstock
