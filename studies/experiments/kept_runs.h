// KeptRuns: a folder with the finished runs of studies, a file for each, so that a study that was cut off
// goes on from the runs it has.
//
// A file says by itself what was trained (penstock/v1/trained_run.proto, as JSON). It is written beside its
// place and then renamed, so that it is whole or not there.
//
// Thread safety: all methods may be called from any thread, for different names at a time.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/files.h"
#include "penstock/v1/trained_run.pb.h"

namespace penstock {

class KeptRuns {
 public:
  // REQUIRES: `files` outlives it.
  KeptRuns(Files& files, std::string directory) : files_(files), directory_(std::move(directory)) {}

  const std::string& directory() const { return directory_; }

  // The run NAME.json if it is there and whole: with a loss for every microbatch of its job, or with its validations if
  // the job validates; or diverged.
  // `wanted`: its job and stages.
  // Errors: InvalidArgument if the file is of other parameters (says which and what to do); those of the file
  // system.
  absl::StatusOr<std::optional<v1::TrainedRun>> Find(const std::string& name,
                                                     const v1::TrainedRun& wanted);
  // REQUIRES: the folder is there. Errors: those of the file system, naming the path.
  absl::Status Keep(const std::string& name, const v1::TrainedRun& run);

 private:
  std::string PathOf(const std::string& name) const;

  Files& files_;
  const std::string directory_;
};

}  // namespace penstock
