// ProfileCluster: has a coordinator profile its cluster, and shows how far that is.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "job/resolve.h"
#include "penstock/v1/cluster.pb.h"
#include "services/cli/console.h"
#include "services/cli/coordinator_client.h"
#include "services/cli/interrupt.h"

namespace penstock {

// Submits the profile and watches it to its end. An interrupt cancels it; a second one returns at once.
//
// Errors: those of SubmitProfile; Cancelled (by an interrupt, or by somebody else), Unknown with what the job
// failed of, Unavailable (the coordinator is gone).
absl::StatusOr<v1::ClusterProfile> ProfileCluster(CoordinatorClient& client,
                                                  const v1::JobSpec& spec,
                                                  const v1::ProfileSpec& profile,
                                                  Interrupt& interrupt, Console& console,
                                                  Clock& clock);

}  // namespace penstock
