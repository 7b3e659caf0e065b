// DeviceEmulation: makes a worker take the time of a device that is not there.
//
// A pass does its real arithmetic, so that the weights are right, and then waits until the device it stands for
// would be done. The waiting costs no core: eight such workers on a small machine show the bubbles,
// the staleness and the messages of eight devices.
//
// This holds only while the real arithmetic hides in the time it is given. Together the workers of a run may
// need half of the cores for it; more is refused, since their passes would then wait for each other.
//
// Thread-compatible.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/random.h"
#include "schedule/action.h"
#include "schedule/simulate.h"

namespace penstock {

class DeviceEmulation {
 public:
  // The first passes prepare kernels and memory and are not counted; then one in a few is looked at.
  static constexpr int64_t kWarmUpPasses = 16;
  static constexpr int64_t kPassesBetweenChecks = 64;

  struct Options {
    std::vector<StageCosts> stages;  // by stage
    // By stage and layer: the part of its W that is over when W of that layer and of those behind it is.
    std::vector<std::vector<double>> weight_done = {};
    // The n-th pass of a worker takes its time times a number from [1 - jitter, 1 + jitter) that
    // follows from seed, worker and n.
    double jitter = 0.0;
    uint64_t seed = 0;
    WorkerId worker;
    int workers = 1;  // of the run, all taken to share this machine
    int cores = 1;    // of the machine
  };
  // `cancelled`: the reason why a wait should end now, or OK.
  DeviceEmulation(Options options, Clock& clock, std::function<void(absl::Duration)> sleep,
                  std::function<absl::Status()> cancelled);

  // Waits until the pass `kind` (F, R, I, W or UPDATE) of `stage` is over that began at `start_ns` of
  // the clock, its arithmetic now done. Waits at most the longest of the stages' times, with jitter
  // twice that.
  // Errors: FailedPrecondition if the arithmetic needs too much, saying how much and what would do;
  // the reason for which it is cancelled, soon after that.
  absl::Status Await(ActionKind kind, StageId stage, int64_t start_ns);
  // Waits until the W of `stage` that began at `start_ns` is done with `layer` of the stage and those behind it, whose
  // arithmetic is done; Await of the pass follows. REQUIRES: Options::weight_done has it. Errors: those of cancelling.
  absl::Status AwaitLayer(StageId stage, int layer, int64_t start_ns);

 private:
  absl::Status Sleep(absl::Duration time);
  int64_t DurationNs(ActionKind kind, StageId stage) const;
  double NextFactor();
  // That of the pass in progress.
  double Factor();
  absl::Status CheckShare() const;

  const Options options_;
  Clock& clock_;
  const std::function<void(absl::Duration)> sleep_;
  const std::function<absl::Status()> cancelled_;
  RandomStream random_;
  std::optional<double> factor_;  // of the pass in progress, once it is known
  int64_t slept_ns_ = 0;          // during it
  int64_t passes_ = 0;
  int64_t arithmetic_ns_ = 0;  // after the warm-up
  int64_t emulated_ns_ = 0;
};

}  // namespace penstock
