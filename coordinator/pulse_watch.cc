#include "coordinator/pulse_watch.h"

#include <algorithm>

#include "coordinator/effects.h"

namespace penstock {

int64_t PulseWatch::LimitNs(std::optional<double> step_seconds) {
  // Beyond this the job is stuck anyway (JobRunLimits::stall_timeout_ms), and no time that a worker tells overflows.
  constexpr double kStepSecondsMax = 3600.0;
  if (!step_seconds.has_value()) return kUnknownStepLimitMs * kNsPerMs;
  const double steps_ns = 1e9 * kSteps * std::clamp(*step_seconds, 0.0, kStepSecondsMax);
  return std::max(kLimitMinMs * kNsPerMs, static_cast<int64_t>(steps_ns));
}

int64_t PulseWatch::UnsteadyLimitNs(std::optional<double> step_seconds) {
  const int64_t times_ns = step_seconds.has_value() ? kUnsteadyTimes * LimitNs(step_seconds) : 0;
  return std::max(kUnsteadyLimitMinMs * kNsPerMs, times_ns);
}

std::optional<int64_t> PulseWatch::OnHeartbeat(int64_t pulse, int64_t limit_ns, int64_t now_ns) {
  if (pulse != pulse_ || pulse == 0) {
    pulse_ = pulse;
    since_ns_ = now_ns;
    heartbeats_ = 1;
    return std::nullopt;
  }
  ++heartbeats_;
  const int64_t still_ns = now_ns - since_ns_;
  return heartbeats_ >= kHeartbeatsMin && still_ns >= limit_ns ? std::optional(still_ns)
                                                               : std::nullopt;
}

}  // namespace penstock
