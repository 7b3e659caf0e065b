// LeaderNote: how a coordinator that does not lead says who does.
//
// The note is a payload of the status and travels with it over gRPC (services/rpc/status.h).
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace penstock {

// Returns the refusal of a coordinator that does not lead. `leader`: the address of the one that does; empty: unknown.
absl::Status NotLeading(absl::string_view leader);
// Returns `refusal` with such a note. REQUIRES: `refusal` is not OK.
absl::Status WithLeader(absl::Status refusal, absl::string_view leader);

// Returns the leader's address, which is empty if the refuser did not know it; nothing if the status is no such refusal.
std::optional<std::string> LeaderOf(const absl::Status& status);

}  // namespace penstock
