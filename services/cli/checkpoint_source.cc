#include "services/cli/checkpoint_source.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "coordinator/job_state.h"

namespace penstock {
namespace {

// Checkpoints are named by paths of the cluster, which its users need not see.
constexpr char kElsewhere[] =
    "; a cluster's checkpoints are on the disk that its workers share, or on the coordinator's "
    "machine (--checkpoint-root coordinator): run the command there, or copy the directory here, "
    "as with `scp -r`, and name the copy";

}  // namespace

absl::StatusOr<std::string> FindCheckpointPath(Files& files, const std::string& source,
                                               const CoordinatorOptions& coordinator) {
  if (files.Exists(source)) return source;
  if (absl::StrContains(source, '/')) {
    return absl::NotFoundError(
        absl::StrCat("there is no checkpoint directory ", source, " on this machine", kElsewhere));
  }
  PENSTOCK_ASSIGN_OR_RETURN(CoordinatorClient client, CoordinatorClient::Connect(coordinator));
  const absl::StatusOr<v1::GetJobResponse> job = client.GetJob(source);
  if (!job.ok()) {
    return Annotate(job.status(),
                    absl::StrCat("there is no directory ", source, ", and no such job either"));
  }
  const std::string& checkpoint = job->result().checkpoint();
  if (checkpoint.empty()) {
    return absl::NotFoundError(
        absl::StrCat("job ", source,
                     IsTerminal(job->summary().state())
                         ? " ended without a checkpoint; a job is kept with --set "
                           "checkpoint.directory=DIR"
                         : " has no checkpoint yet"));
  }
  if (files.Exists(checkpoint)) return checkpoint;
  return absl::NotFoundError(absl::StrCat("the last checkpoint of job ", source, " is ", checkpoint,
                                          ", which is not on this machine", kElsewhere));
}

void AddWeightsOption(CLI::App& app, WeightChoice& choice) {
  const std::string current(Name(WeightChoice::kCurrent)), average(Name(WeightChoice::kAverage));
  app.add_option_function<std::string>(
         "--weights",
         [&choice, average](const std::string& word) {
           choice = word == average ? WeightChoice::kAverage : WeightChoice::kCurrent;
         },
         "current: the weights of the checkpoint's step; ema: their moving averages, which "
         "training.ema keeps")
      ->type_name("WHICH")
      ->check(CLI::IsMember({current, average}))
      ->default_str(current);
}

}  // namespace penstock
