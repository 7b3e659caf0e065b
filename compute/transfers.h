// Transfers: tensors of activations and gradients leave a device and come to it, beside the
// computation.
//
// A tensor that leaves is not there at once: the device still computes it, or copies it. The call that
// starts such work gives a ticket to ask for (Poll); so one thread can queue work for the device while
// another waits. Where calls return when their work is done, as on the CPU, there are no tickets.
//
// Thread safety: the thread that owns the back-end, except where stated.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "compute/tensor.h"

namespace penstock {

class DeviceShare;

// Nothing to wait for.
inline constexpr int64_t kNoTicket = -1;

// A tensor on its way out of the device: to host memory, or exported as it is (device_share.h).
struct Outgoing {
  Tensor device;               // kept until the device is done with it
  Tensor host;                 // not to be read before that; empty if the tensor is exported
  int64_t ticket = kNoTicket;  // tells when

  bool pending() const { return ticket != kNoTicket; }
};

class Transfers {
 public:
  virtual ~Transfers() = default;

  // Starts a copy of `tensor` to the back-end's host_pool(), as the calls so far leave it. No copy is made
  // where the two pools are one. Errors: ResourceExhausted, of the device.
  virtual absl::StatusOr<Outgoing> StartToHost(const Tensor& tensor) = 0;
  // Waits for the copy, no longer than ten minutes. Any thread, as Poll.
  // Errors: DeadlineExceeded, of the device.
  virtual absl::StatusOr<Tensor> FinishToHost(Outgoing outgoing) = 0;
  // The tensor for the device; later calls see it whole. Errors: as StartToHost.
  virtual absl::StatusOr<Tensor> ToDevice(const Tensor& host) = 0;

  // Returns whether the device has done the ticket's work; does not wait. Once this is true or an error
  // the ticket is used up. Any thread, also while the owner calls; not two for one ticket.
  // Errors: of the device.
  virtual absl::StatusOr<bool> Poll(int64_t ticket) = 0;

  // Moves tensors to other processes of this host without host memory; null where that is not possible.
  // Lives as long as the back-end.
  virtual DeviceShare* share() = 0;
};

}  // namespace penstock
