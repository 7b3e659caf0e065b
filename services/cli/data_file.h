// DataFile: the training text as the command line sees it before a job starts: there, readable, long
// enough, and named by its digest.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "penstock/v1/job.pb.h"

namespace penstock {

struct DataFile {
  std::string path;
  int64_t size_bytes = 0;
  std::string sha256;
};

// Where the job's text is if relative paths are looked up under `data_root`.
std::string DataPath(const std::string& data_root, const v1::JobSpec& spec);

// Reads the file once. Errors: NotFound, InvalidArgument (a directory, or nothing in it),
// PermissionDenied, all with "data.text.path: " in front.
absl::StatusOr<DataFile> InspectDataFile(const std::string& path);

// Checks that the job's text is there and enters its digest. Errors: as above.
absl::Status CheckJobData(const std::string& data_root, v1::JobSpec& spec);

}  // namespace penstock
