// FinishedJobs: the results of jobs that ended a short while ago, so that a scrape still sees how they ended.
//
// Each is read from the store once, and dropped with the job's time. Thread-compatible; time is an argument.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "penstock/v1/cluster.pb.h"

namespace penstock {

class FinishedJobs {
 public:
  static constexpr absl::Duration kKeptFor = absl::Minutes(5);
  using Read = std::function<absl::StatusOr<v1::GetJobResponse>(const std::string& job_id)>;

  // Returns the results of those in `jobs` that ended less than kKeptFor before `unix_ms`, by job id, without their
  // curves. Results that cannot be read (yet) are left out. Profiles have no result.
  const std::map<std::string, v1::JobResult>& At(const v1::ListJobsResponse& jobs, int64_t unix_ms,
                                                 const Read& read);

 private:
  std::map<std::string, v1::JobResult> results_;
};

}  // namespace penstock
