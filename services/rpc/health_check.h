// CheckHealth: asks a server's health service, as the probes of a container do.
//
// Thread safety: may be called from any thread.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/rpc/address.h"

namespace penstock {

// OK if the server at `address`, as a whole or `part` of it, says within `timeout` that it serves. In plain text, as the
// health port speaks. Errors: Unavailable if it says that it does not serve, or if nobody answers; NotFound if it has no
// such part; DeadlineExceeded after `timeout`; what else the call ends with.
absl::Status CheckHealth(const HostPort& address, absl::Duration timeout,
                         const std::string& part = "");

}  // namespace penstock
