// OpenData: the data of a job, whichever kind it is. Workers, the serial reference and studies open it with this one
// function, so they cannot disagree about what sample i is.
//
// Plain functions.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/files.h"
#include "job/resolve.h"
#include "penstock/v1/job.pb.h"
#include "worker/data_source.h"
#include "worker/limits.h"

namespace penstock {

// `job`: what `spec` resolves to. `root`: relative paths start from it.
// Errors: NotFound, PermissionDenied, FailedPrecondition (a pipe), DataLoss (another digest than the job's, or damaged
// files), InvalidArgument (the data do not fill the model's ports, or are too few), OutOfRange (a text too large to
// hold).
absl::StatusOr<std::unique_ptr<DataSource>> OpenData(Files& files, const v1::JobSpec& spec,
                                                     const ResolvedJob& job,
                                                     const std::string& root,
                                                     const RunLimits& limits);

// The data of `spec` to evaluate a model on: Split::kValidation is all of `part`, each sample once, without
// augmentation. Of `spec` nothing but the data and the seed counts. A model that carries state reads a text in `batch`
// streams.
// Errors: as OpenData; InvalidArgument (kAll of data whose parts are in two places).
absl::StatusOr<std::unique_ptr<DataSource>> OpenEvaluationData(Files& files,
                                                               const v1::JobSpec& spec,
                                                               const ModelGraph& model,
                                                               DataPart part, int64_t batch,
                                                               const std::string& root);

// Before a job starts, where it is handed in: checks that its data, and the weights that it starts from, are there and
// fit, as every worker will, and enters their digests into `spec`, so that a worker with other data of that name refuses the job. It reads files as a whole:
// `stop` is looked at several times a second, and once it is true the reading ends.
// Errors: as OpenData, with the key in front; DataLoss if the job names another digest; Cancelled.
absl::Status CheckJobData(
    Files& files, const std::string& root, const ResolvedJob& job, v1::JobSpec& spec,
    const std::function<bool()>& stop = [] { return false; });

// Returns whether every path that the job reads data or first weights from is there.
bool JobDataIsHere(const std::string& root, const v1::JobSpec& spec);

}  // namespace penstock
