// DataPatience: whether one who sends or fetches a file in parts (data.proto) asks again after an error: when a link or the
// coordinator was away, its threads were busy, or a part came damaged, as long as a part got through lately.
//
// Thread-compatible.
#pragma once

#include <algorithm>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "services/rpc/limits.h"

namespace penstock {

class DataPatience {
 public:
  explicit DataPatience(absl::Duration patience = rpc_limits::kDataPatience)
      : patience_(patience) {}

  // Whether an error may be gone the next time.
  static bool Passes(const absl::Status& status) {
    return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
           absl::IsResourceExhausted(status) || absl::IsDataLoss(status) || absl::IsAborted(status);
  }

  // A part got through.
  void OnProgress() {
    progressed_ = absl::Now();
    pause_ = kPauseMin;
  }

  // Waits a little and returns true if the call is worth making again.
  bool MayAskAgain(const absl::Status& status) {
    if (!Passes(status) || absl::Now() - progressed_ > patience_) return false;
    absl::SleepFor(pause_);
    pause_ = std::min(2 * pause_, kPauseMax);
    return true;
  }

 private:
  static constexpr absl::Duration kPauseMin = absl::Milliseconds(50);
  static constexpr absl::Duration kPauseMax = absl::Seconds(1);

  const absl::Duration patience_;
  absl::Time progressed_ = absl::Now();
  absl::Duration pause_ = kPauseMin;
};

}  // namespace penstock
