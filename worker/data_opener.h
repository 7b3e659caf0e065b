// DataOpener: how one kind of data (job/data/data_kind.h) is found and opened on this machine. open_data.cc lists them.
//
// Plain values and functions.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/files.h"
#include "data/record_files.h"
#include "job/resolve.h"
#include "penstock/v1/job.pb.h"
#include "worker/data_source.h"
#include "worker/limits.h"
#include "worker/token_data.h"

namespace penstock {

struct DataRequest {
  Files& files;
  const v1::JobSpec& spec;
  const ResolvedJob& job;   // `spec`, resolved
  const std::string& root;  // relative paths start here
  const RunLimits& limits;
  // Looked at several times a second while files are read as a whole: once it is true, opening ends with Cancelled.
  std::function<bool()> stop = [] { return false; };
  // Opened to evaluate a model: the samples of validation are all those of this part, each once and as it is.
  std::optional<DataPart> evaluated = std::nullopt;

  bool validates() const { return evaluated.has_value() || spec.validation().every_steps() > 0; }
  // Samples of one whole validation.
  int64_t validation_samples() const { return job.validation_batches * job.microbatch_samples; }
};

struct DataOpener {
  v1::DataSpec::SourceCase source;
  // See OpenData.
  absl::StatusOr<std::unique_ptr<DataSource>> (*open)(const DataRequest& request);
  // The digest of what is at `path`; null of a kind without paths. `stop`: as of DataRequest.
  // Errors: NotFound, InvalidArgument and PermissionDenied, which begin with the path ("PATH is not a file"), Cancelled.
  absl::StatusOr<std::string> (*digest)(const std::string& path, const std::function<bool()>& stop);
  // Whether there is something at `path`; null: if it exists.
  bool (*is_here)(const std::string& path) = nullptr;
};

// For kinds whose data is a directory of records (data/record_files.h).
//
// How the directory `path`, whose index has this digest, is opened: contents are checked as request.limits say.
RecordFilesOptions RecordOptions(const DataRequest& request, const std::string& path,
                                 const std::string& sha256);
// The digest of a directory is that of its index. See DataOpener::digest.
absl::StatusOr<std::string> DigestOfRecords(const std::string& path,
                                            const std::function<bool()>& stop);

// For kinds whose data is a sequence of tokens: all that follows from the job and from these keys of theirs.
TokenDataOptions TokenOptions(const DataRequest& request, const std::string& order,
                              double validation_fraction);

// The content of a file. `sha256`: its digest, or empty, which accepts any.
// Errors: those of `files`; DataLoss with both digests.
absl::StatusOr<std::string> ReadFileOfJob(Files& files, const std::string& path,
                                          const std::string& sha256, int64_t size_bytes_max);

// The same of a content that was read. Errors: DataLoss with both digests.
absl::Status CheckFileOfJob(const std::string& path, absl::string_view content,
                            const std::string& sha256);

// Each in a file beside its DataSource.
extern const DataOpener kTextOpener;
extern const DataOpener kTokensOpener;
extern const DataOpener kRecordsOpener;
extern const DataOpener kPairsOpener;
extern const DataOpener kSyntheticOpener;

}  // namespace penstock
