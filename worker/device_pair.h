// DevicePair: how two workers find out whether their devices can add up arrays together, as a group of two
// (compute/device_group.h), and become one.
//
// Both tell each other what they have and what came of it, so both take the same way, whatever fails on one
// of them. They do not become a group if they share a device: zero-copy edges serve such workers better.
//
// Plain functions.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "compute/device_group.h"

namespace penstock {

// The message that the two send each other, once before they join and once after.
struct PairMessage {
  std::array<char, 64> device = {};  // DeviceGroups::device; empty: none, or no group can be made
  DeviceGroupId id = {};             // of the member with rank 0
  int32_t joined = 0;
};

struct DevicePair {
  std::unique_ptr<DeviceGroup> group;  // null: there is none
  std::string why_not;                 // for people, where there is none
};

// `groups`: null where this worker's device has none. `rank`: 0 or 1, the other's is the other one.
// `exchange`: sends the peer a message and returns the one from there.
// Errors: those of `exchange`.
absl::StatusOr<DevicePair> JoinPair(
    DeviceGroups* groups, int rank, absl::Duration timeout,
    absl::FunctionRef<absl::StatusOr<PairMessage>(const PairMessage&)> exchange);

}  // namespace penstock
