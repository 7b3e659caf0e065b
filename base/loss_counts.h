// LossCounts: how workers were lost, and how soon that was known, for metrics.
//
// Plain value.
#pragma once

#include <array>
#include <cstdint>

namespace penstock {

enum class LossCause : uint8_t {
  kGone,        // its connection closed, and nobody listens where it was reached
  kUnanswered,  // its connection closed, and nobody answers there
  kSilent,      // no heartbeat came for too long
  kRestarted,   // another process registered in its place
  kStuck,       // its executor stood still while it waited for nobody; the worker itself stays
};
inline constexpr int kLossCauses = 5;

constexpr const char* NameOf(LossCause cause) {
  constexpr const char* kNames[kLossCauses] = {"gone", "unanswered", "silent", "restarted",
                                               "stuck"};
  return kNames[static_cast<int>(cause)];
}

struct LossCounts {
  struct Loss {
    int64_t count = 0;
    double detection_seconds = 0.0;  // of all of them together
  };
  std::array<Loss, kLossCauses> by_cause = {};

  // `detection_ns`: from the first sign, or the last sign of life, to the verdict.
  void Count(LossCause cause, int64_t detection_ns) {
    Loss& loss = by_cause[static_cast<int>(cause)];
    ++loss.count;
    loss.detection_seconds += 1e-9 * static_cast<double>(detection_ns);
  }
};

}  // namespace penstock
