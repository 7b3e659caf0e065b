#include "schedule/render_svg.h"

#include <algorithm>
#include <array>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/svg.h"
#include "schedule/nice_time.h"

namespace penstock {
namespace {

// The picture tells these apart. `css` is the class of the shapes.
struct SpanColour {
  absl::string_view css;
  absl::string_view label;
  absl::string_view light, dark;  // fill colours
};
constexpr int kColours = 15;
constexpr std::array<SpanColour, kColours> kColourTable = {{
    {"f", "forward", "#4f83cc", "#5b93e0"},
    {"r", "recompute", "#96bbe8", "#86aede"},
    {"i", "backward, input", "#2f9e78", "#37b389"},
    {"w", "backward, weights", "#86cfb0", "#7fd0ae"},
    {"s", "update", "#f2a73b", "#f5b452"},
    {"c", "collective", "#9673c9", "#a98ade"},
    {"m", "send, receive", "#6b7785", "#8b97a5"},
    {"wi", "wait: input", "#e3e7ec", "#343b46"},
    {"wc", "wait: credit", "#f3d9c9", "#5a4234"},
    {"wg", "wait: collective", "#e4dbf1", "#463a5c"},
    {"wd", "wait: data", "#f6efc4", "#57512a"},
    {"wh", "wait: host", "#f2dde6", "#583b49"},
    {"o", "offload", "#c2557e", "#d6709a"},
    {"p", "prefetch", "#8a6fb0", "#a58bca"},
    {"x", "reduction under way", "#6a3fb5", "#cdb5f5"},
}};
constexpr int kLastNumbered = 2;  // F, R and I show their microbatch
constexpr int kFirstWait = 7;
constexpr int kLastOfAllPictures = 10;
constexpr int kOffload = 12;
constexpr int kPrefetch = 13;
constexpr int kReduction = 14;

constexpr size_t kTooltipSpansMax = 2000;
constexpr double kMargin = 24;
constexpr double kLabelWidthMin = 84;
constexpr size_t kLabelLettersMax =
    32;  // of a longer name its end is drawn, which tells workers apart
constexpr double kLetterWidth = 7.2;  // of a name, at the most on average
constexpr double kShareWidth = 58;
constexpr double kTop = 70;
constexpr double kRowHeight = 28;
constexpr double kRowGap = 7;
constexpr double kGroupHeight = 26;  // of the line above the rows of one of several timelines
constexpr double kLegendHeight = 62;
constexpr double kNumberWidth = 6.2;  // of a digit

// Returns an index into kColourTable, or -1 for a span that is not drawn.
int ColourOf(const Span& span) {
  switch (span.lane) {
    case Lane::kCompute:
      if (span.action.kind == ActionKind::kForward) return 0;
      if (span.action.kind == ActionKind::kRecompute) return 1;
      if (span.action.kind == ActionKind::kBackwardInput) return 2;
      return span.action.kind == ActionKind::kBackwardWeight ? 3 : 4;
    case Lane::kCollective:
      return 5;
    case Lane::kSend:
    case Lane::kReceive:
      return 6;
    case Lane::kWait:
      return kFirstWait + static_cast<int>(span.wait) - 1;
    case Lane::kOffload:
      return kOffload;
    case Lane::kPrefetch:
      return kPrefetch;
    case Lane::kTransfer:
      return span.action.kind == ActionKind::kReduce ? kReduction : -1;
  }
  return -1;
}

std::string Px(double value) { return SvgNumber(value, 2); }

std::string ShortName(const std::string& name) {
  if (name.size() <= kLabelLettersMax) return name;
  size_t begin = name.size() - kLabelLettersMax + 1;
  while (begin < name.size() && (name[begin] & 0xc0) == 0x80) ++begin;  // inside a character
  return absl::StrCat("...", name.substr(begin));
}

double LabelWidth(absl::Span<const DrawnTimeline> drawn) {
  const auto letters = static_cast<double>(std::min(RowNameLength(drawn), kLabelLettersMax));
  return std::max(kLabelWidthMin, letters * kLetterWidth + 12);
}

// Where the rows of one timeline are.
struct Group {
  const DrawnTimeline& drawn;
  const Timeline& timeline;
  double top = 0;         // of the first row
  int64_t length_ns = 1;  // of its own window

  double Y(int32_t worker) const { return top + worker * (kRowHeight + kRowGap); }
  double bottom() const { return Y(timeline.workers); }
  double BusyShare(const TimeShares& shares) const {
    return static_cast<double>(shares.busy_ns()) / static_cast<double>(length_ns);
  }
  double MeanBusyShare() const {
    double busy = 0;
    for (const TimeShares& shares : SharesOf(timeline)) busy += BusyShare(shares);
    return busy / std::max(1, timeline.workers);
  }
};

class Picture {
 public:
  Picture(absl::Span<const DrawnTimeline> drawn, const SvgOptions& options)
      : options_(options),
        window_(WindowOf(drawn)),
        length_ns_(std::max<int64_t>(1, window_.length_ns())),
        label_width_(LabelWidth(drawn)),
        plot_left_(kMargin + label_width_),
        plot_width_(std::max(200.0, options.width - 2 * kMargin - label_width_ - kShareWidth)) {
    for (const DrawnTimeline& one : drawn) {
      const double above = drawn.size() > 1 ? kGroupHeight : 0;
      const Timeline& timeline = *one.timeline;
      groups_.push_back({one, timeline, plot_bottom_ + above,
                         std::max<int64_t>(1, timeline.end_ns() - timeline.start_ns())});
      plot_bottom_ = groups_.back().bottom();
      spans_ += timeline.spans.size();
    }
  }

  std::string Render() {
    Begin();
    Axis();
    for (const Group& group : groups_) {
      Rows(group);
      if (spans_ <= kTooltipSpansMax) {
        for (const Span& span : group.timeline.spans) DrawOne(span, group);
      } else {
        DrawMany(group);
      }
    }
    Legend();
    svg_ += "</svg>\n";
    return std::move(svg_);
  }

 private:
  double X(int64_t ns) const {
    return plot_left_ + plot_width_ * static_cast<double>(ns - window_.start_ns) /
                            static_cast<double>(length_ns_);
  }

  template <typename... Args>
  void Add(const absl::FormatSpec<Args...>& format, const Args&... args) {
    absl::StrAppendFormat(&svg_, format, args...);
  }

  void Begin() {
    const double height = plot_bottom_ + kLegendHeight;
    Add("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %s\" width=\"%d\" "
        "height=\"%s\" font-family=\"system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif\">\n",
        options_.width, Px(height), options_.width, Px(height));
    svg_ +=
        "<style>\n.bg{fill:#ffffff}.row{fill:#f4f6f8}.grid{stroke:#d5dae0}"
        "text{fill:#3d4651;font-size:12px}.title{fill:#1b222b;font-size:18px;font-weight:600}"
        ".dim{fill:#77818d}.n{fill:#ffffff;font-size:10.5px;text-anchor:middle;"
        "pointer-events:none}\n";
    AddFills(&SpanColour::light);
    svg_ +=
        "\n@media (prefers-color-scheme:dark){.bg{fill:#161b22}.row{fill:#1d232c}"
        ".grid{stroke:#39424e}text{fill:#c5ced8}.title{fill:#f0f4f8}.dim{fill:#8b96a3}"
        ".n{fill:#0d1117}\n";
    AddFills(&SpanColour::dark);
    svg_ += "}\n</style>\n";
    Add("<rect class=\"bg\" width=\"%d\" height=\"%s\" rx=\"8\"/>\n", options_.width, Px(height));
    Add("<text class=\"title\" x=\"%s\" y=\"34\">%s</text>\n", Px(kMargin),
        SvgText(options_.title));
    Add("<text class=\"dim\" x=\"%s\" y=\"53\">%s</text>\n", Px(kMargin), SvgText(Subtitle()));
  }

  // Pictures without copies of stashes have no colours for them.
  void AddFills(absl::string_view SpanColour::*fill) {
    const std::array<bool, kColours> used = UsedColours();
    for (int kind = 0; kind < kColours; ++kind) {
      const SpanColour& colour = kColourTable[kind];
      if (kind <= kLastOfAllPictures || used[kind]) Add(".%s{fill:%s}", colour.css, colour.*fill);
    }
  }

  std::string Subtitle() const {
    if (!options_.subtitle.empty()) return options_.subtitle;
    if (groups_.size() != 1) return NiceTime(length_ns_, options_.unit);
    const Group& group = groups_.front();
    return absl::StrFormat("%s, %d workers, busy %.1f %% of the time",
                           NiceTime(length_ns_, options_.unit), group.timeline.workers,
                           100 * group.MeanBusyShare());
  }

  void Axis() {
    constexpr int64_t kTicks = 8;
    const int64_t tick_ns = NiceTickNs(length_ns_, kTicks);
    for (int64_t ns = 0; ns <= length_ns_; ns += tick_ns) {
      const std::string x = Px(X(window_.start_ns + ns));
      Add("<line class=\"grid\" x1=\"%s\" x2=\"%s\" y1=\"%s\" y2=\"%s\"/>"
          "<text class=\"dim\" text-anchor=\"middle\" x=\"%s\" y=\"%s\">%s</text>\n",
          x, x, Px(kTop - 6), Px(plot_bottom_), x, Px(plot_bottom_ + 14),
          ns == 0 ? "0" : NiceTime(ns, options_.unit));
    }
  }

  void Rows(const Group& group) {
    if (groups_.size() > 1) {
      Add("<text x=\"%s\" y=\"%s\"><tspan font-weight=\"600\">%s</tspan> %s</text>\n", Px(kMargin),
          Px(group.top - 9), SvgText(group.drawn.name), SvgText(group.drawn.note));
    }
    const std::vector<TimeShares> shares = SharesOf(group.timeline);
    for (int32_t worker = 0; worker < group.timeline.workers; ++worker) {
      const double middle = group.Y(worker) + kRowHeight / 2 + 4;
      Add("<rect class=\"row\" x=\"%s\" y=\"%s\" width=\"%s\" height=\"%s\" rx=\"3\"/>"
          "<text x=\"%s\" y=\"%s\">%s</text>"
          "<text class=\"dim\" x=\"%s\" y=\"%s\">%.1f %%</text>\n",
          Px(plot_left_), Px(group.Y(worker)), Px(plot_width_), Px(kRowHeight), Px(kMargin),
          Px(middle), SvgText(ShortName(RowName(group.drawn, worker))),
          Px(plot_left_ + plot_width_ + 10), Px(middle), 100 * group.BusyShare(shares[worker]));
    }
  }

  // Of a row, from its top on. Waiting fills the height only in part: it is the absence of work. Copies run along its
  // edges.
  struct Band {
    double top = 0;
    double height = kRowHeight;
  };
  static Band BandOf(int kind) {
    constexpr double kInset = 9;
    constexpr double kCopyHeight = 4;
    if (kind == kOffload || kind == kReduction) return {kRowHeight - kCopyHeight, kCopyHeight};
    if (kind == kPrefetch) return {0, kCopyHeight};
    return kind >= kFirstWait ? Band{kInset, kRowHeight - 2 * kInset} : Band();
  }

  void DrawOne(const Span& span, const Group& group) {
    const int kind = ColourOf(span);
    if (kind < 0) return;
    const double x = X(span.start_ns);
    // A hair of the row shows between neighbours, and what takes no time is still a line.
    const double width = std::max(0.8, X(span.end_ns) - x - 0.6);
    const Band band = BandOf(kind);
    const std::string what =
        span.lane == Lane::kWait
            ? absl::StrCat(ToString(span.action), " waits for ", WaitName(span.wait))
            : ToString(span.action);
    Add("<rect class=\"%s\" x=\"%s\" y=\"%s\" width=\"%s\" height=\"%s\" rx=\"%s\">"
        "<title>%s: %s</title></rect>",
        kColourTable[kind].css, Px(x), Px(group.Y(span.worker.value) + band.top), Px(width),
        Px(band.height), Px(std::min(2.5, width / 3)), what,
        NiceTime(span.duration_ns(), options_.unit));
    const std::string number = absl::StrCat(span.action.microbatch);
    if (kind <= kLastNumbered && width >= kNumberWidth * static_cast<double>(number.size()) + 3) {
      Add("<text class=\"n\" x=\"%s\" y=\"%s\">%s</text>", Px(x + width / 2),
          Px(group.Y(span.worker.value) + kRowHeight / 2 + 4), number);
    }
    svg_ += '\n';
  }

  void DrawMany(const Group& group) {
    std::vector<std::array<std::string, kColours>> paths(group.timeline.workers);
    for (const Span& span : group.timeline.spans) {
      const int kind = ColourOf(span);
      if (kind < 0) continue;
      const double x = X(span.start_ns);
      const double width = std::max(0.15, X(span.end_ns) - x);
      const Band band = BandOf(kind);
      absl::StrAppendFormat(&paths[span.worker.value][kind], "M%s %sh%sv%sh-%sz", Px(x),
                            Px(group.Y(span.worker.value) + band.top), Px(width), Px(band.height),
                            Px(width));
    }
    // Waiting first: work must never hide behind it. Copies last: they lie on work.
    const auto add = [&](const std::array<std::string, kColours>& row, int kind) {
      if (!row[kind].empty())
        Add("<path class=\"%s\" d=\"%s\"/>\n", kColourTable[kind].css, row[kind]);
    };
    for (const auto& row : paths) {
      for (int kind = kOffload - 1; kind >= 0; --kind) add(row, kind);
      for (int kind = kOffload; kind < kColours; ++kind) add(row, kind);
    }
  }

  std::array<bool, kColours> UsedColours() const {
    std::array<bool, kColours> used{};
    for (const Group& group : groups_) {
      for (const Span& span : group.timeline.spans) {
        if (const int kind = ColourOf(span); kind >= 0) used[kind] = true;
      }
    }
    return used;
  }

  // Only the kinds that occur.
  void Legend() {
    const std::array<bool, kColours> used = UsedColours();
    double x = kMargin;  // those of a run fit into the default width
    const double y = plot_bottom_ + 42;
    for (int kind = 0; kind < kColours; ++kind) {
      if (!used[kind]) continue;
      const SpanColour& entry = kColourTable[kind];
      Add("<rect class=\"%s\" x=\"%s\" y=\"%s\" width=\"14\" height=\"14\" rx=\"2.5\"/>"
          "<text x=\"%s\" y=\"%s\">%s</text>\n",
          entry.css, Px(x), Px(y - 11), Px(x + 20), Px(y), entry.label);
      x += 20 + kNumberWidth * static_cast<double>(entry.label.size()) + 18;
    }
    Add("<text class=\"dim\" x=\"%s\" y=\"%s\">busy</text>\n", Px(plot_left_ + plot_width_ + 10),
        Px(kTop - 8));
  }

  const SvgOptions& options_;
  const DrawnWindow window_;
  const int64_t length_ns_;
  const double label_width_;
  const double plot_left_;
  const double plot_width_;
  double plot_bottom_ = kTop;
  std::vector<Group> groups_;
  size_t spans_ = 0;
  std::string svg_;
};

}  // namespace

std::string RenderSvg(absl::Span<const DrawnTimeline> drawn, const SvgOptions& options) {
  return Picture(drawn, options).Render();
}

std::string RenderSvg(const Timeline& timeline, const SvgOptions& options) {
  return RenderSvg({{.timeline = &timeline}}, options);
}

}  // namespace penstock
