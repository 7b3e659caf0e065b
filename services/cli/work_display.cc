#include "services/cli/work_display.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/cli/text.h"

namespace penstock {
namespace {

constexpr char kEraseBar[] = "\r\x1b[K";
constexpr int64_t kPlainIntervalNs = 10'000'000'000;

}  // namespace

WorkDisplay::WorkDisplay(std::string unit, Console& console, Clock& clock)
    : unit_(std::move(unit)),
      console_(console),
      clock_(clock),
      start_ns_(clock.MonotonicNs()),
      drawn_ns_(start_ns_) {}

WorkDisplay::~WorkDisplay() {
  if (line_open_) console_.err << kEraseBar << std::flush;
}

void WorkDisplay::Draw(int64_t done, int64_t total, const std::string& what) {
  const int64_t now_ns = clock_.MonotonicNs();
  if (!console_.err_is_terminal && now_ns - drawn_ns_ < kPlainIntervalNs) return;
  drawn_ns_ = now_ns;
  const double share = static_cast<double>(done) / static_cast<double>(std::max<int64_t>(1, total));
  const std::string line =
      absl::StrFormat("%3.0f %%  %s %d of %d  %s  %s", 100 * share, unit_, done, total,
                      FormatDuration(static_cast<double>(now_ns - start_ns_) * 1e-9), what);
  line_open_ = console_.err_is_terminal;
  console_.err << (line_open_ ? kEraseBar : "") << line << (line_open_ ? "" : "\n") << std::flush;
}

void WorkDisplay::Note(const std::string& line) {
  console_.err << (line_open_ ? kEraseBar : "") << line << "\n" << std::flush;
  line_open_ = false;
}

}  // namespace penstock
