// DataFetcher: brings what users put to the cluster (base/put_path.h) to this worker's disk.
//
// Called by one thread at a time.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/files.h"
#include "base/put_path.h"
#include "job/resolve.h"
#include "penstock/v1/job.pb.h"

namespace penstock {

class DataFetcher {
 public:
  virtual ~DataFetcher() = default;

  // Lets go what Fetch gave until now: a run begins.
  virtual void BeginRun() = 0;
  // Fetches what `put` names, unless it is here, and returns its path here. Of a directory come the files that are `wanted`, by
  // their names below it ("" for a file that `put` itself names), beside those that were wanted earlier in the run. They stay at
  // least until BeginRun. `may_go_on` is asked before each part: an error ends the work with it.
  // Errors: NotFound (the coordinator has it not, or the directory has not the name), DataLoss (its content is another),
  // InvalidArgument (a list that is none), FailedPrecondition (no room), Unavailable and DeadlineExceeded (nothing came for
  // long), each with the digest.
  virtual absl::StatusOr<std::string> Fetch(const PutPath& put,
                                            absl::FunctionRef<bool(absl::string_view name)> wanted,
                                            absl::FunctionRef<absl::Status()> may_go_on) = 0;
};

// Fetches all that `data` names and that was put, and names it by its path here. Its content is that of its digest by then, so
// nobody needs to look at it again. `fetcher`: null if this worker keeps none.
// Errors: those of Fetch, with the key; FailedPrecondition if there is no fetcher.
absl::Status FetchPutData(DataFetcher* fetcher, absl::FunctionRef<absl::Status()> may_go_on,
                          v1::DataSpec& data);

// Fetches the weights that `layers` of the job's model start from, if they were put, and names their directory here in `model`. Of
// a directory of shards come those that hold a parameter of these layers. `files`: of this worker's disk.
// Errors: as above, and those of the index of the shards.
absl::Status FetchPutWeights(DataFetcher* fetcher, Files& files,
                             absl::FunctionRef<absl::Status()> may_go_on, const ResolvedJob& job,
                             LayerRange layers, v1::ModelSpec& model);

}  // namespace penstock
