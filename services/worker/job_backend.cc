#include "services/worker/job_backend.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "job/resolve.h"

namespace penstock {

absl::StatusOr<std::unique_ptr<Backend>> MakeJobBackend(const v1::JobSpec& spec,
                                                        const Device& device, int threads_max) {
  PENSTOCK_ASSIGN_OR_RETURN(const ResolvedJob job, ResolveJob(spec));
  if (job.threads > threads_max) {
    return absl::FailedPreconditionError(absl::StrCat("training.threads is ", job.threads,
                                                      ", but this worker has ", threads_max,
                                                      " at most (--threads)"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend,
                            MakeBackendOn(device, job.threads, job.repeatability));
  if (const absl::Status has = backend->CheckPrecision(job.precision); !has.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("training.precision is ", PrecisionName(job.precision),
                     ", but this worker computes on ", backend->name(), ": ", has.message()));
  }
  return backend;
}

}  // namespace penstock
