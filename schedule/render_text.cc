#include "schedule/render_text.h"

#include <algorithm>
#include <array>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "schedule/nice_time.h"

namespace penstock {
namespace {

enum Kind : int {
  kForward,
  kRecompute,
  kBackwardInput,
  kBackwardWeight,
  kUpdate,
  kCollective,
  kWaiting,
  kKinds
};

// ANSI colours by kind: blue, light blue, green, light green, orange and violet backgrounds, grey text.
constexpr std::array<absl::string_view, kKinds> kColors = {
    "\x1b[48;5;68;97m",  "\x1b[48;5;110;30m", "\x1b[48;5;35;30m", "\x1b[48;5;115;30m",
    "\x1b[48;5;214;30m", "\x1b[48;5;141;30m", "\x1b[38;5;245m"};
constexpr absl::string_view kPlain = "\x1b[0m";

// The kind of a span, or kKinds for what the picture leaves out.
Kind KindOf(const Span& span) {
  if (span.lane == Lane::kWait) return kWaiting;
  if (span.lane == Lane::kCollective) return kCollective;
  if (span.lane != Lane::kCompute) return kKinds;
  switch (span.action.kind) {
    case ActionKind::kForward:
      return kForward;
    case ActionKind::kRecompute:
      return kRecompute;
    case ActionKind::kBackwardInput:
      return kBackwardInput;
    case ActionKind::kBackwardWeight:
      return kBackwardWeight;
    default:
      return kUpdate;
  }
}

char SymbolOf(Kind kind, const Action& action) {
  const auto digit = static_cast<char>(action.microbatch % 10);
  switch (kind) {
    case kForward:
      return static_cast<char>('0' + digit);
    case kRecompute:
      return static_cast<char>('k' + digit);
    case kBackwardInput:
      return static_cast<char>('a' + digit);
    case kBackwardWeight:
      return static_cast<char>('A' + digit);
    case kUpdate:
      return '*';
    case kCollective:
      return '+';
    default:
      return '.';
  }
}

// One slot of one worker: the kind that takes most of it wins.
class Cell {
 public:
  void Cover(Kind kind, int64_t duration_ns, char symbol) {
    covered_ns_[kind] += duration_ns;
    if (duration_ns >= longest_ns_[kind]) {
      longest_ns_[kind] = duration_ns;
      symbols_[kind] = symbol;
    }
  }
  Kind Winner() const {
    const auto most = std::max_element(covered_ns_.begin(), covered_ns_.end());
    return *most == 0 ? kKinds : static_cast<Kind>(most - covered_ns_.begin());
  }
  char Symbol() const {
    const Kind kind = Winner();
    return kind == kKinds ? ' ' : symbols_[kind];
  }

 private:
  std::array<int64_t, kKinds> covered_ns_{};
  std::array<int64_t, kKinds> longest_ns_{};
  std::array<char, kKinds> symbols_{};
};

using Row = std::vector<Cell>;

void Draw(const Span& span, int64_t origin_ns, int64_t slot_ns, Row& row) {
  const Kind kind = KindOf(span);
  if (kind == kKinds || span.duration_ns() <= 0) return;
  const char symbol = SymbolOf(kind, span.action);
  const auto columns = static_cast<int64_t>(row.size());
  const int64_t first = (span.start_ns - origin_ns) / slot_ns;
  const int64_t last = std::min(columns - 1, (span.end_ns - 1 - origin_ns) / slot_ns);
  for (int64_t column = first; column <= last; ++column) {
    const int64_t slot_start_ns = origin_ns + column * slot_ns;
    const int64_t covered_ns =
        std::min(span.end_ns, slot_start_ns + slot_ns) - std::max(span.start_ns, slot_start_ns);
    row[column].Cover(kind, covered_ns, symbol);
  }
}

std::string Print(const Row& row, bool color) {
  std::string line;
  Kind previous = kKinds;
  for (const Cell& cell : row) {
    const Kind kind = cell.Winner();
    if (color && kind != previous)
      absl::StrAppend(&line, kPlain, kind < kKinds ? kColors[kind] : "");
    previous = kind;
    line += cell.Symbol();
  }
  if (color && previous != kKinds) line += std::string(kPlain);
  if (!color) line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

}  // namespace

std::string RenderText(absl::Span<const DrawnTimeline> drawn, const TextPictureOptions& options) {
  const DrawnWindow window = WindowOf(drawn);
  const int64_t length_ns = window.length_ns();
  const int64_t columns_max = std::max(1, options.columns);
  const int64_t slot_ns = std::max<int64_t>(
      1, options.slot_ns > 0 ? options.slot_ns : (length_ns + columns_max - 1) / columns_max);
  const int64_t columns = std::min(columns_max, (length_ns + slot_ns - 1) / slot_ns);

  const size_t name_width = RowNameLength(drawn);
  bool recomputes = false;
  std::string picture;
  for (const DrawnTimeline& one : drawn) {
    const Timeline& timeline = *one.timeline;
    if (drawn.size() > 1) {
      absl::StrAppend(&picture, one.name, one.note.empty() ? "" : ": ", one.note, "\n");
    }
    std::vector<Row> rows(timeline.workers, Row(columns));
    for (const Span& span : timeline.spans) {
      Draw(span, window.start_ns, slot_ns, rows[span.worker.value]);
      recomputes = recomputes || KindOf(span) == kRecompute;
    }
    for (int32_t worker = 0; worker < timeline.workers; ++worker) {
      absl::StrAppendFormat(&picture, "%-*s |%s\n", name_width, RowName(one, worker),
                            Print(rows[worker], options.color));
    }
  }
  if (options.legend) {
    const std::string indent(name_width + 2, ' ');
    const bool cut = columns * slot_ns < length_ns;
    absl::StrAppend(&picture, indent, "a column is ", NiceTime(slot_ns, options.unit),
                    ", the whole ", NiceTime(length_ns, options.unit),
                    cut ? ", of which this is the beginning\n" : "\n", indent, "0-9 forward, ",
                    recomputes ? "k-t recompute, " : "",
                    "a-j backward (input), A-J backward (weights), * update, "
                    "+ collective, . waiting\n");
  }
  return picture;
}

std::string RenderText(const Timeline& timeline, const TextPictureOptions& options) {
  return RenderText({{.timeline = &timeline}}, options);
}

}  // namespace penstock
