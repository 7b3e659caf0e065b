// DataFile: the training text before a job starts: there, readable, long enough, and named by its digest.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/files.h"
#include "job/resolve.h"
#include "penstock/v1/job.pb.h"

namespace penstock {

struct DataFile {
  std::string path;
  int64_t size_bytes = 0;
  std::string sha256;
};

// Where the job's text is if relative paths are looked up under `data_root`.
std::string DataPath(const std::string& data_root, const v1::JobSpec& spec);

// Reads the file once, which takes a while if it is large: `stop` is looked at several times a second, and once it is
// true the reading ends. Errors: NotFound, InvalidArgument (a directory, or nothing in it),
// PermissionDenied, all with "data.text.path: " in front; Cancelled.
absl::StatusOr<DataFile> InspectDataFile(
    const std::string& path, const std::function<bool()>& stop = [] { return false; });

// Enters the file's digest into `spec`, so that a worker with another file of that name refuses the job.
// Errors: DataLoss if the job names another digest.
absl::Status EnterDigest(const DataFile& file, v1::JobSpec& spec);

// Checks that the text of `spec` is there and long enough for its samples, as every worker will, and
// enters its digest. `job` is `spec`, resolved; `stop` as of InspectDataFile. Errors: as above.
absl::Status CheckJobData(
    Files& files, const std::string& data_root, const ResolvedJob& job, v1::JobSpec& spec,
    const std::function<bool()>& stop = [] { return false; });

}  // namespace penstock
