// PassGraphs: CUDA graphs, passes that a device captures once and replays, where launching their kernels one by
// one would take the host longer than the device needs for them.
//
// A CUDA graph repeats everything that the pass was queued with, addresses and numbers alike, so it may be
// replayed only for an equal key. The key has all that differs between two microbatches but for the sample,
// which the device reads from its own memory: SetSample. Which addresses come together is decided by the
// pool; docs/adr/0012 says why they are few, and tests/worker/graphs_test.cc counts them.
//
// Thread safety: the thread that owns the back-end; stats() any.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace penstock {

enum class Pass : uint8_t { kForward, kBackwardInput, kBackwardWeight };
inline constexpr int kPasses = 3;

class PassGraphs {
 public:
  // Recordings kept for one pass of one node; the one that was not used for longest makes room.
  static constexpr int kKeptMax = 64;

  // Two sets of kNodeInputsMax addresses, two of kNodeBuffersMax, seven more, and two numbers.
  static constexpr int kArguments = 49;

  struct Key {
    Pass pass = Pass::kForward;
    int node = 0;  // of the stage
    // Whatever the node's call refers to, in any fixed order: addresses, and numbers by their bits.
    std::array<uint64_t, kArguments> arguments = {};
    friend bool operator==(const Key&, const Key&) = default;
  };

  struct Stats {
    int64_t passes = 0;    // asked for
    int64_t replayed = 0;  // of them
    int64_t recorded = 0;
    int64_t kept = 0;      // recordings there are now
    std::string given_up;  // why nothing is recorded any more; empty: it is
  };

  virtual ~PassGraphs() = default;

  // The sample that the passes from now on begin with: PassContext::first_sample.
  virtual void SetSample(int64_t first_sample) = 0;
  // Performs a pass: calls `queue`, or repeats what an earlier call of it queued for an equal key. A
  // pass that cannot be captured is queued each time.
  // REQUIRES: `queue` does nothing but ask the device for work. Errors: those of `queue`, of the device.
  virtual absl::Status Run(const Key& key, absl::FunctionRef<absl::Status()> queue) = 0;
  virtual Stats stats() const = 0;
};

}  // namespace penstock
