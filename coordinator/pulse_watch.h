// PulseWatch: finds a worker whose executor is stuck while its process goes on answering.
//
// When one executor of a pipeline stops, all others soon wait for it, and nobody comes any further. Their heartbeats tell
// them apart: the pulse of one that waits goes on (worker/pulse.h), that of one that is stuck stands still. It stands still
// as well while an executor computes, so it may do so for some steps, and for three seconds at least.
//
// Only heartbeats count that were taken, several of them: time in which none came, because the worker, the network or the
// coordinator itself stood still, says nothing about the executor.
//
// A state machine without clock or I/O; thread-compatible.
#pragma once

#include <cstdint>
#include <optional>

namespace penstock {

class PulseWatch {
 public:
  // A pulse may stand still for kSteps median steps, and for kLimitMinMs at least.
  static constexpr int64_t kSteps = 4;
  static constexpr int64_t kLimitMinMs = 3000;
  // While no step's time is known.
  static constexpr int64_t kUnknownStepLimitMs = 60'000;
  // An unsteady one, for kUnsteadyTimes as long, and for this long at least.
  static constexpr int64_t kUnsteadyTimes = 10;
  static constexpr int64_t kUnsteadyLimitMinMs = 120'000;
  // Heartbeats with one pulse, at least.
  static constexpr int kHeartbeatsMin = 4;

  // `step_seconds`: the median of the last steps, if it is known.
  static int64_t LimitNs(std::optional<double> step_seconds);
  static int64_t UnsteadyLimitNs(std::optional<double> step_seconds);

  // Takes the pulse of a heartbeat; 0: it does not show. Returns for how long it has stood still if that is more than the
  // limit.
  std::optional<int64_t> OnHeartbeat(int64_t pulse, int64_t limit_ns, int64_t now_ns);

 private:
  int64_t pulse_ = 0;
  int64_t since_ns_ = 0;  // the first heartbeat that brought it
  int heartbeats_ = 0;    // that brought it
};

}  // namespace penstock
