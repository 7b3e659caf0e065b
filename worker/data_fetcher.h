// DataFetcher: brings files that users put to the cluster, by their SHA-256, to this worker's disk.
//
// Called by one thread at a time.
#pragma once

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "penstock/v1/job.pb.h"

namespace penstock {

class DataFetcher {
 public:
  virtual ~DataFetcher() = default;

  // Fetches those that are not here yet, and returns the path of each. They stay at least until the next call.
  // `may_go_on` is asked before each part: an error ends the work with it.
  // Errors: NotFound (the coordinator has it not), DataLoss (its content is another), FailedPrecondition (no room), Unavailable
  // and DeadlineExceeded (nothing came for long), each with the digest.
  virtual absl::StatusOr<std::vector<std::string>> Fetch(
      const std::vector<std::string>& digests, absl::FunctionRef<absl::Status()> may_go_on) = 0;
};

// Fetches all files that `data` names by their digest (PutDigestOf), and names them by their paths here. Their content is
// that of their digests by then, so nobody needs to look at it again. `fetcher`: null if this worker keeps none.
// Errors: those of Fetch; FailedPrecondition if there is no fetcher.
absl::Status FetchPutData(DataFetcher* fetcher, absl::FunctionRef<absl::Status()> may_go_on,
                          v1::DataSpec& data);

}  // namespace penstock
