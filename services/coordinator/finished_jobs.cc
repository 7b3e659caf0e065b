#include "services/coordinator/finished_jobs.h"

#include <set>
#include <utility>

namespace penstock {

const std::map<std::string, v1::JobResult>& FinishedJobs::At(const v1::ListJobsResponse& jobs,
                                                             int64_t unix_ms, const Read& read) {
  std::set<std::string> fresh;
  for (const v1::JobSummary& job : jobs.jobs()) {
    const bool ended = job.ended_unix_ms() > 0;
    if (!ended || unix_ms - job.ended_unix_ms() >= absl::ToInt64Milliseconds(kKeptFor)) continue;
    fresh.insert(job.job_id());
    if (results_.contains(job.job_id())) continue;
    absl::StatusOr<v1::GetJobResponse> record = read(job.job_id());
    // A record that was written before the job's end will be written again.
    if (!record.ok() || record->summary().ended_unix_ms() == 0 || !record->has_result()) continue;
    v1::JobResult& result = *record->mutable_result();
    result.clear_losses();
    result.clear_validations();
    result.clear_order();
    results_.emplace(job.job_id(), std::move(result));
  }
  std::erase_if(results_, [&](const auto& entry) { return !fresh.contains(entry.first); });
  return results_;
}

}  // namespace penstock
