// StudyRunner: where a study of studies/theory/ runs: on the threads of this process, with progress on standard
// error, until it is done or Ctrl-C.
//
// Thread-compatible; ForEach calls its body from several threads.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "services/cli/console.h"
#include "services/cli/interrupt.h"
#include "services/cli/work_display.h"
#include "studies/theory/study.h"

namespace penstock {

class StudyRunner : public StudyContext {
 public:
  // REQUIRES: threads > 0; the arguments outlive the runner.
  StudyRunner(int threads, Console& console, Clock& clock, Interrupt& interrupt);

  // Errors: Cancelled once there was a Ctrl-C; calls under way are finished first.
  absl::Status ForEach(int64_t count, const std::function<void(int64_t)>& body) override;
  void Announce(const std::string& what, int64_t calls_in_all) override;

 private:
  const int threads_;
  Interrupt& interrupt_;
  WorkDisplay display_;
  std::string what_;
  int64_t calls_done_ = 0;  // before the ForEach under way
  int64_t calls_in_all_ = 0;
};

}  // namespace penstock
