#include "worker/device_pair.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status.h"

namespace penstock {
namespace {

// Making an ID shows whether groups can be made here at all, so both make one.
PairMessage Introduce(DeviceGroups* groups, std::string& why_not) {
  PairMessage message;
  if (groups == nullptr) {
    why_not = "this worker's device joins no groups";
    return message;
  }
  const absl::StatusOr<DeviceGroupId> id = groups->MakeId();
  if (!id.ok()) {
    why_not = std::string(id.status().message());
    return message;
  }
  message.id = *id;
  const std::string device = groups->device();
  std::copy_n(device.begin(), std::min(device.size(), message.device.size()),
              message.device.begin());
  return message;
}

}  // namespace

absl::StatusOr<DevicePair> JoinPair(
    DeviceGroups* groups, int rank, absl::Duration timeout,
    absl::FunctionRef<absl::StatusOr<PairMessage>(const PairMessage&)> exchange) {
  DevicePair pair;
  PairMessage own = Introduce(groups, pair.why_not);
  PENSTOCK_ASSIGN_OR_RETURN(const PairMessage other, exchange(own));
  const bool here = own.device[0] != '\0';
  const bool there = other.device[0] != '\0';
  if (!here || !there || own.device == other.device) {
    if (here) pair.why_not = there ? "both workers use one device" : "the other worker has none";
    return pair;
  }
  absl::StatusOr<std::unique_ptr<DeviceGroup>> group =
      groups->Join(rank == 0 ? own.id : other.id, rank, 2, absl::Now() + timeout);
  own.joined = group.ok() ? 1 : 0;
  PENSTOCK_ASSIGN_OR_RETURN(const PairMessage outcome, exchange(own));
  if (group.ok() && outcome.joined == 1) {
    pair.group = *std::move(group);
  } else {
    pair.why_not =
        group.ok() ? "the other worker could not join" : std::string(group.status().message());
  }
  return pair;
}

}  // namespace penstock
