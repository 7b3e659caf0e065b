#include "services/cli/checkpoint_source.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "coordinator/job_state.h"

namespace penstock {

absl::StatusOr<std::string> FindCheckpointPath(Files& files, const std::string& source,
                                               const CoordinatorOptions& coordinator) {
  if (files.Exists(source)) return source;
  if (absl::StrContains(source, '/')) {
    return absl::NotFoundError(absl::StrCat("there is no checkpoint directory ", source));
  }
  PENSTOCK_ASSIGN_OR_RETURN(CoordinatorClient client, CoordinatorClient::Connect(coordinator));
  const absl::StatusOr<v1::GetJobResponse> job = client.GetJob(source);
  if (!job.ok()) {
    return Annotate(job.status(),
                    absl::StrCat("there is no directory ", source, ", and no such job either"));
  }
  if (job->result().checkpoint().empty()) {
    return absl::NotFoundError(
        absl::StrCat("job ", source,
                     IsTerminal(job->summary().state())
                         ? " ended without a checkpoint; a job is kept with --set "
                           "checkpoint.directory=DIR"
                         : " has no checkpoint yet"));
  }
  return job->result().checkpoint();
}

}  // namespace penstock
