// The file of `penstock train --record`: the order that a job's workers took, as text
// (schedule/recorded_order.h).
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/files.h"
#include "penstock/v1/cluster.pb.h"
#include "schedule/recorded_order.h"

namespace penstock {

// Returns the order that a job's workers logged. REQUIRES: its pipeline.order is recorded.
// Errors: FailedPrecondition if a worker's log of some range did not come; Internal if a log makes no sense.
absl::StatusOr<RecordedOrder> RecordedOrderOf(const v1::GetJobResponse& job);

// The orders of the runs that a job consisted of, one after the other.
// Errors: those of Files, of ParseRecordedOrder and of Continue, with the file.
absl::StatusOr<RecordedOrder> ReadRecordedOrders(Files& files,
                                                 const std::vector<std::string>& paths);

}  // namespace penstock
