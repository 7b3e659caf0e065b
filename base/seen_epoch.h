// SeenEpoch: how a worker that refuses an attempt at a job says which epoch of the job it knows.
//
// The note is a payload of the status and travels with it over gRPC (services/rpc/status.h), so that a coordinator need
// not read a number out of a text for people.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"

namespace penstock {

// Epochs are from 1 to this, so that there is always a later one.
inline constexpr int64_t kEpochMax = int64_t{1} << 62;

// Returns `refusal` with the note that `epoch` and those before it may have been used. REQUIRES: `refusal` is not OK.
absl::Status WithSeenEpoch(absl::Status refusal, int64_t epoch);

// Returns that epoch, or nothing: the status is OK, or has no such note, or one that is out of range.
std::optional<int64_t> SeenEpochOf(const absl::Status& status);

}  // namespace penstock
