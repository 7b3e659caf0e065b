// DataProgress: shows on a terminal how far work on data is, and ends it when the user asks to.
//
// Thread-compatible.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "services/cli/console.h"
#include "services/cli/interrupt.h"
#include "services/cli/work_display.h"

namespace penstock {

class DataProgress {
 public:
  // `unit`: what is counted. REQUIRES: `interrupt` and `console` outlive it.
  DataProgress(std::string unit, Interrupt& interrupt, Console& console);

  // Errors: that of an interruption.
  absl::Status Report(int64_t done, int64_t all, const std::string& what);

 private:
  Interrupt& interrupt_;
  std::optional<WorkDisplay> display_;
};

}  // namespace penstock
