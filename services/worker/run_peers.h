// Who takes part in a run, taken from its plan.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "services/transport/tensor_hub.h"
#include "worker/run.h"

namespace penstock {

// The plan comes from the network: whatever of it the transport relies on is checked here.
// Errors: InvalidArgument naming the field; FailedPrecondition if the plan is for another worker than
// `name` or an earlier life of it.
absl::StatusOr<RunPeers> PeersOf(const RunRequest& request, const std::string& name,
                                 uint64_t incarnation);

}  // namespace penstock
