// ProgressDisplay: puts Progress on a terminal as one line that is overwritten, or into a file as a
// line now and then.
//
// Thread-compatible.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "services/cli/console.h"
#include "services/cli/progress.h"

namespace penstock {

class ProgressDisplay {
 public:
  static constexpr int64_t kRedrawIntervalNs = 100'000'000;
  static constexpr int64_t kPlainIntervalNs = 10'000'000'000;

  // REQUIRES: `console` and `clock` outlive the display.
  ProgressDisplay(Console& console, Clock& clock)
      : console_(console), clock_(clock), last_ns_(clock.MonotonicNs()) {}
  // Leaves the last line standing.
  ~ProgressDisplay();
  ProgressDisplay(const ProgressDisplay&) = delete;
  ProgressDisplay& operator=(const ProgressDisplay&) = delete;

  // Draws if it is time to.
  void Update(const Progress& progress);
  // Draws the last state of affairs.
  void Finish(const Progress& progress);
  // Prints a line that stays, above the bar.
  void Note(const std::string& line);

 private:
  void Draw(const Progress& progress);

  Console& console_;
  Clock& clock_;
  int64_t last_ns_;
  int64_t last_step_ = -1;  // of the last plain line
  std::string drawn_;       // on the terminal now, without newline
};

}  // namespace penstock
