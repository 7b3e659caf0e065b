// DeviceGroup: the devices of several workers that add up arrays together, as replicas of a stage do with
// their gradients before an update.
//
// One member makes an ID, which reaches the others by whatever way; then all join, each with its rank. Their
// common work runs on the devices, in the order of each back-end's calls: no tensor passes through host
// memory, and no host waits but to join.
//
// Every device is in a group once. Workers that share one reduce over edges that export by IPC
// (device_share.h); worker/device_pair.h chooses.
//
// Thread safety: the thread that owns the back-end.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace penstock {

using DeviceGroupId = std::array<char, 128>;

class DeviceGroup {
 public:
  virtual ~DeviceGroup() = default;

  // Makes each of `count` elements at `data`, of the device, the sum of all members'. All members call it
  // in the same order with the same counts, and get the same bits; the order of the sum is the library's.
  // Errors: of the device, or of a member that is known to have failed; the group is of no use then.
  virtual absl::Status AllReduceSum(float* data, int64_t count) = 0;
};

class DeviceGroups {
 public:
  virtual ~DeviceGroups() = default;

  // "nccl", for people.
  virtual const char* name() const = 0;
  // Which device this is, of all devices of all hosts; at most 64 characters.
  virtual std::string device() const = 0;

  // For one group. Errors: Unavailable (the library for it is not installed).
  virtual absl::StatusOr<DeviceGroupId> MakeId() = 0;
  // Waits until all `size` members have called it. REQUIRES: the back-end outlives the group.
  // Errors: InvalidArgument (rank or size), DeadlineExceeded, Unavailable, of the device.
  virtual absl::StatusOr<std::unique_ptr<DeviceGroup>> Join(const DeviceGroupId& id, int rank,
                                                            int size, absl::Time deadline) = 0;
};

}  // namespace penstock
