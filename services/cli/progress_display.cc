#include "services/cli/progress_display.h"

namespace penstock {
namespace {

constexpr char kEraseLine[] = "\r\x1b[K";

}  // namespace

ProgressDisplay::~ProgressDisplay() {
  if (!drawn_.empty()) console_.err << "\n" << std::flush;
}

void ProgressDisplay::Update(const Progress& progress) {
  const int64_t now_ns = clock_.MonotonicNs();
  const int64_t interval_ns = console_.err_is_terminal ? kRedrawIntervalNs : kPlainIntervalNs;
  if (now_ns - last_ns_ < interval_ns) return;
  last_ns_ = now_ns;
  Draw(progress);
}

void ProgressDisplay::Finish(const Progress& progress) { Draw(progress); }

void ProgressDisplay::Draw(const Progress& progress) {
  if (console_.err_is_terminal) {
    const std::string line = progress.Line(console_.columns - 1);
    if (line == drawn_) return;
    drawn_ = line;
    console_.err << kEraseLine << line << std::flush;
  } else if (progress.step() != last_step_) {
    last_step_ = progress.step();
    console_.err << progress.PlainLine() << "\n" << std::flush;
  }
}

void ProgressDisplay::Note(const std::string& line) {
  if (drawn_.empty()) {
    console_.err << line << "\n" << std::flush;
  } else {
    console_.err << kEraseLine << line << "\n" << drawn_ << std::flush;
  }
}

}  // namespace penstock
