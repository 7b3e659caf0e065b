// WorkDisplay: shows how far work is whose end is known: "25 %  run 3 of 12  8.1 s  what it does",
// on a terminal in place, in a file now and then.
//
// Thread-compatible.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "services/cli/console.h"

namespace penstock {

class WorkDisplay {
 public:
  // `unit`: what is counted. REQUIRES: `console` and `clock` outlive the display.
  WorkDisplay(std::string unit, Console& console, Clock& clock);
  // Leaves the terminal with a clean line.
  ~WorkDisplay();
  WorkDisplay(const WorkDisplay&) = delete;
  WorkDisplay& operator=(const WorkDisplay&) = delete;

  void Draw(int64_t done, int64_t total, const std::string& what);
  // Prints a line that stays.
  void Note(const std::string& line);

 private:
  const std::string unit_;
  Console& console_;
  Clock& clock_;
  const int64_t start_ns_;
  int64_t drawn_ns_;
  bool line_open_ = false;  // the terminal's last line is ours and unfinished
};

}  // namespace penstock
