// TransferParts: a file on its way between this worker and the coordinator, part after part, over a link that may break and with a
// coordinator that may be started again.
//
// A plain function; any thread. It waits.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/rpc/limits.h"

namespace penstock {

// For the call with a part. A run that is stopped, and a worker that ends, wait for a part that is on its way.
inline constexpr absl::Duration kPartCallTimeout = absl::Seconds(3);

// Calls `transfer` again and again, with the most bytes that its part may have, until it returns true: the file is over.
// Errors that may pass (DataPatience) are waited out as long as a part got through within `patience`.
// Parts become smaller when one is not answered in time, and larger again when several in a row are quick. `may_go_on` is asked
// before each call.
// Errors: that of `may_go_on`, or the last one of `transfer`.
absl::Status TransferParts(absl::FunctionRef<absl::Status()> may_go_on,
                           absl::FunctionRef<absl::StatusOr<bool>(int64_t part_bytes_max)> transfer,
                           absl::Duration patience = rpc_limits::kDataPatience);

}  // namespace penstock
