#include "services/worker/product_rates.h"

#include <memory>

#include "base/status.h"
#include "job/resolve.h"
#include "services/worker/job_backend.h"
#include "worker/product_rate.h"

namespace penstock {

absl::StatusOr<double> ProductRates::Of(const v1::JobSpec& spec, Clock& clock) {
  PENSTOCK_ASSIGN_OR_RETURN(const ResolvedJob job, ResolveJob(spec));
  const std::pair key(job.precision, static_cast<int>(job.threads));
  if (const auto known = known_.find(key); known != known_.end()) return known->second;
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend,
                            MakeJobBackend(spec, device_, threads_max_));
  PENSTOCK_ASSIGN_OR_RETURN(const double rate, MeasureProductRate(*backend, job.precision, clock));
  known_[key] = rate;
  return rate;
}

}  // namespace penstock
