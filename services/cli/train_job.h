// TrainJob: everything about a job that can be known on this machine before a process is started, so
// that bad input costs nothing and leaves nothing behind.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/files.h"
#include "penstock/v1/job.pb.h"
#include "services/cli/job_file.h"

namespace penstock {

struct TrainJobOptions {
  JobFileOptions job;
  int workers = 0;        // 0: the job's pipeline.stages, or kDefaultWorkers
  std::string data_root;  // empty: the folder of the job file
  bool reference =
      false;  // trains without a cluster, and neither reads nor writes checkpoints; no order stays open
};

struct TrainJob {
  // The submitted job (CompleteSubmission): paths of checkpoints are absolute, the data's digest is entered.
  v1::JobSpec spec;
  int workers = 1;
  std::string data_root;  // absolute
  std::string notes;      // for the user, a line each: NotesOf, and what became of the split
};

inline constexpr int kDefaultWorkers = 2;

// Reads the job, and checks that it fits the workers, that its text is there and long enough, and that
// it can start where it is to (checkpoint/start.h), as the coordinator will.
// Errors: InvalidArgument, NotFound, DataLoss, FailedPrecondition, PermissionDenied, all naming key,
// option or file.
absl::StatusOr<TrainJob> PrepareTrainJob(Files& files, const TrainJobOptions& options);

}  // namespace penstock
