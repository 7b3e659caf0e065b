// RunReference: `penstock train --reference`, the serial training that a cluster must equal bit for bit.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "penstock/v1/cluster.pb.h"
#include "schedule/recorded_order.h"
#include "services/cli/console.h"
#include "services/cli/train_job.h"

namespace penstock {

// Trains in this process and thread. The result has what a single process has: losses, tokens, times
// and weights; `per_stage` is empty. For asynchronous methods the layers are split over as many stages
// as `train` has, like the coordinator does. It always starts from the job's first step. `extra_cuts`:
// steps after which the run to compare with was drained; `recorded`: the order it took, of a job in recorded
// order.
absl::StatusOr<v1::GetJobResponse> RunReference(const TrainJob& train,
                                                const std::vector<int64_t>& extra_cuts,
                                                std::optional<RecordedOrder> recorded,
                                                Console& console);

}  // namespace penstock
