#include "services/cli/data_progress.h"

#include <utility>

#include "base/clock.h"
#include "services/cli/command.h"

namespace penstock {

DataProgress::DataProgress(std::string unit, Interrupt& interrupt, Console& console)
    : interrupt_(interrupt) {
  if (console.err_is_terminal) display_.emplace(std::move(unit), console, RealClock());
}

absl::Status DataProgress::Report(int64_t done, int64_t all, const std::string& what) {
  if (display_) display_->Draw(done, all, what);
  return interrupt_.Count() > 0 ? InterruptedError("interrupted") : absl::OkStatus();
}

}  // namespace penstock
