#include "services/cli/study_runner.h"

#include <algorithm>
#include <atomic>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/cli/command.h"
#include "services/cli/study_threads.h"
#include "services/cli/text.h"

namespace penstock {
namespace {

constexpr char kEraseLine[] = "\r\x1b[K";
constexpr int64_t kPlainIntervalNs = 10'000'000'000;

}  // namespace

StudyRunner::StudyRunner(int threads, Console& console, Clock& clock, Interrupt& interrupt)
    : threads_(threads),
      console_(console),
      clock_(clock),
      interrupt_(interrupt),
      start_ns_(clock.MonotonicNs()),
      drawn_ns_(start_ns_) {}

StudyRunner::~StudyRunner() {
  if (line_open_) console_.err << kEraseLine << std::flush;
}

absl::Status StudyRunner::ForEach(int64_t count, const std::function<void(int64_t)>& body) {
  std::atomic<int64_t> done = 0;
  const auto call = [&](int64_t i) {
    body(i);
    ++done;
  };
  RunOnThreads(threads_, count, call, [&] {
    Draw(calls_done_ + done);
    return interrupt_.Count() == 0;
  });
  calls_done_ += done;
  if (interrupt_.Count() > 0) return InterruptedError("interrupted; nothing was written");
  return absl::OkStatus();
}

void StudyRunner::Announce(const std::string& what, int64_t calls_in_all) {
  what_ = what;
  calls_in_all_ = calls_in_all;
}

void StudyRunner::Draw(int64_t calls_done) {
  if (console_.err_is_terminal) {
    console_.err << kEraseLine << Line(calls_done) << std::flush;
    line_open_ = true;
    return;
  }
  const int64_t now_ns = clock_.MonotonicNs();
  if (now_ns - drawn_ns_ < kPlainIntervalNs) return;
  drawn_ns_ = now_ns;
  console_.err << Line(calls_done) << "\n" << std::flush;
}

std::string StudyRunner::Line(int64_t calls_done) const {
  const double seconds = static_cast<double>(clock_.MonotonicNs() - start_ns_) * 1e-9;
  const double share =
      static_cast<double>(calls_done) / static_cast<double>(std::max<int64_t>(1, calls_in_all_));
  return absl::StrFormat("%3.0f %%  run %d of %d  %s  %s", 100 * share, calls_done, calls_in_all_,
                         FormatDuration(seconds), what_);
}

}  // namespace penstock
