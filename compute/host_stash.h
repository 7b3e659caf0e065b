// HostStash: weight versions that wait in the host's memory until they are read again.
//
// A version that was replaced and is still to be read goes out beside the computation, and comes back the
// same way ahead of its backward pass. On the device there are then three versions at most: the current one,
// the one on its way out and the one on its way back, so it serves stages with more versions. Where
// host and device share their memory nothing is copied.
//
// Thread safety: the thread that owns the back-end.
#pragma once

#include <array>

#include "absl/status/status.h"
#include "compute/backend.h"
#include "compute/buffer_pool.h"

namespace penstock {

// The flat array of one version, and its mirror in bf16 (empty unless asked for).
struct WeightArrays {
  Buffer f32, bf16;
};

// The part of a version that is on the host or on its way.
struct HostCopy {
  enum class State : uint8_t {
    kNone,     // only on the device
    kLeaving,  // on the device, a copy to the host under way
    kAway,     // only on the host
    kComing,   // a copy to the device under way
    kBoth,     // on the device again
  };
  State state = State::kNone;
  std::array<Outgoing, 2> outgoing;  // f32, bf16
  std::array<Tensor, 2> host;
  std::array<Incoming, 2> incoming;

  bool on_device() const {
    return state == State::kNone || state == State::kLeaving || state == State::kBoth;
  }
};

class HostStash {
 public:
  static constexpr int64_t kDeviceVersionsMax = 3;

  // REQUIRES: `backend` outlives it.
  explicit HostStash(Backend& backend) : backend_(&backend) {}

  // Each does only what is left to do. Errors: those of the back-end's copies.
  //
  // Begins to move to the host; the arrays can be read until FinishLeaving.
  absl::Status StartLeaving(const WeightArrays& arrays, HostCopy& copy);
  // Waits for the copy, after which the arrays are given back.
  absl::Status FinishLeaving(WeightArrays& arrays, HostCopy& copy);
  // Begins to bring back what is away.
  absl::Status StartComing(HostCopy& copy);
  // From here on calls to the back-end may read the arrays.
  absl::Status FinishComing(WeightArrays& arrays, HostCopy& copy);
  // Gives the arrays of what was brought back to the device's pool again.
  static void Leave(WeightArrays& arrays, HostCopy& copy);

 private:
  Backend* backend_;
};

}  // namespace penstock
