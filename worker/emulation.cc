#include "worker/emulation.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_format.h"

namespace penstock {
namespace {

constexpr double kCoresShareMax = 0.5;
// A wait is cancelled after so long at the latest.
constexpr absl::Duration kSliceOfSleep = absl::Milliseconds(200);

}  // namespace

DeviceEmulation::DeviceEmulation(Options options, Clock& clock,
                                 std::function<void(absl::Duration)> sleep,
                                 std::function<absl::Status()> cancelled)
    : options_(std::move(options)),
      clock_(clock),
      sleep_(std::move(sleep)),
      cancelled_(std::move(cancelled)),
      random_(options_.seed, static_cast<uint64_t>(options_.worker.value)) {}

double DeviceEmulation::NextFactor() {
  return options_.jitter == 0.0 ? 1.0 : 1.0 + options_.jitter * (2.0 * random_.Uniform() - 1.0);
}

double DeviceEmulation::Factor() {
  if (!factor_.has_value()) factor_ = NextFactor();
  return *factor_;
}

absl::Status DeviceEmulation::AwaitLayer(StageId stage, int layer, int64_t start_ns) {
  const double pass_ns =
      static_cast<double>(DurationNs(ActionKind::kBackwardWeight, stage)) * Factor();
  const int64_t due_ns =
      start_ns + std::llround(pass_ns * options_.weight_done[stage.value][layer]);
  const int64_t before_ns = clock_.MonotonicNs();
  const absl::Status slept = Sleep(absl::Nanoseconds(due_ns - before_ns));
  slept_ns_ += clock_.MonotonicNs() - before_ns;
  return slept;
}

absl::Status DeviceEmulation::Await(ActionKind kind, StageId stage, int64_t start_ns) {
  const int64_t passed_ns = clock_.MonotonicNs() - start_ns;
  const int64_t arithmetic_ns = passed_ns - std::exchange(slept_ns_, 0);
  const int64_t emulated_ns = std::llround(static_cast<double>(DurationNs(kind, stage)) * Factor());
  factor_.reset();
  if (++passes_ > kWarmUpPasses) {
    arithmetic_ns_ += arithmetic_ns;
    emulated_ns_ += emulated_ns;
    if (passes_ % kPassesBetweenChecks == 0) {
      if (absl::Status status = CheckShare(); !status.ok()) return status;
    }
  }
  return Sleep(absl::Nanoseconds(emulated_ns - passed_ns));
}

absl::Status DeviceEmulation::Sleep(absl::Duration time) {
  while (time > absl::ZeroDuration()) {
    if (absl::Status status = cancelled_(); !status.ok()) return status;
    const absl::Duration slice = std::min(time, kSliceOfSleep);
    sleep_(slice);
    time -= slice;
  }
  return absl::OkStatus();
}

int64_t DeviceEmulation::DurationNs(ActionKind kind, StageId stage) const {
  const StageCosts& costs = options_.stages[stage.value];
  switch (kind) {
    case ActionKind::kForward:
      return std::llround(costs.forward_s * 1e9);
    case ActionKind::kRecompute:
      return std::llround(costs.recompute_s.value_or(costs.forward_s) * 1e9);
    case ActionKind::kBackwardInput:
      return std::llround(costs.backward_input_s * 1e9);
    case ActionKind::kBackwardWeight:
      return std::llround(costs.backward_weight_s * 1e9);
    default:
      return std::llround(costs.update_s * 1e9);
  }
}

absl::Status DeviceEmulation::CheckShare() const {
  const double share_max = kCoresShareMax * options_.cores / options_.workers;
  const double share =
      static_cast<double>(arithmetic_ns_) / static_cast<double>(std::max<int64_t>(1, emulated_ns_));
  if (share <= share_max) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "the emulated device's passes take %.3g ms on the mean, of which their arithmetic takes %.3g "
      "ms on "
      "this machine; %d workers on %d cores would need %.2g of them, more than half: use times of "
      "at least "
      "%.2g times as long, a smaller model, or smaller microbatches",
      static_cast<double>(emulated_ns_) * 1e-6 / static_cast<double>(passes_ - kWarmUpPasses),
      static_cast<double>(arithmetic_ns_) * 1e-6 / static_cast<double>(passes_ - kWarmUpPasses),
      options_.workers, options_.cores, share * options_.workers, share / share_max));
}

}  // namespace penstock
