#include "planner/graph/render_plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/svg.h"

namespace penstock {
namespace {

// Describes one bar, of a stage that computes and then averages gradients, or of a link.
struct Row {
  std::string label;   // "stage 0 x7"
  std::string detail;  // its layers, or bytes
  double compute_s = 0;
  double sync_s = 0;
  double link_s = 0;
  double total_s = 0;  // as the cost model joins them
};

std::string Bytes(double bytes) {
  constexpr std::array<const char*, 4> kUnits = {"B", "kB", "MB", "GB"};
  size_t unit = 0;
  while (bytes >= 1000 && unit + 1 < kUnits.size()) {
    bytes /= 1000;
    ++unit;
  }
  return absl::StrFormat("%.3g %s", bytes, kUnits[unit]);
}

std::string Layers(const LayerGraph& graph, const PlannedStage& stage) {
  const std::string& first = graph.nodes[stage.nodes.front()].id;
  if (stage.nodes.size() == 1) return first;
  return absl::StrCat(first, " to ", graph.nodes[stage.nodes.back()].id, ", ", stage.nodes.size(),
                      " layers");
}

std::vector<Row> RowsOf(const LayerGraph& graph, const StagePlan& plan) {
  std::vector<Row> rows;
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const PlannedStage& stage = plan.stages[i];
    rows.push_back({.label = absl::StrCat("stage ", i, " x", stage.replicas),
                    .detail = absl::StrCat(Layers(graph, stage), ", ", Bytes(stage.parameter_bytes),
                                           " of parameters"),
                    .compute_s = stage.compute_s,
                    .sync_s = stage.sync_s,
                    .total_s = stage.stage_s});
    if (i + 1 == plan.stages.size()) break;
    const double link_s = std::max(stage.output_s, plan.stages[i + 1].input_s);
    rows.push_back({.label = absl::StrCat("link ", i, "-", i + 1),
                    .detail = absl::StrCat(Bytes(stage.output_bytes), " each way"),
                    .link_s = link_s,
                    .total_s = link_s});
  }
  return rows;
}

// Says where a bar's parts end, as shares of the period. Parts that are done at the same time overlap.
struct Shares {
  double compute = 0;
  double sync = 0;
  double link = 0;
};
Shares SharesOf(const Row& row, double period_s) {
  if (period_s <= 0) return {};
  const double compute = row.compute_s / period_s;
  return {.compute = compute, .sync = row.total_s / period_s, .link = row.link_s / period_s};
}

constexpr int kTextColumns = 48;

std::string TextBar(const Shares& shares) {
  std::string bar(kTextColumns, ' ');
  const auto fill = [&](double from, double to, char mark) {
    const auto first = std::lround(from * kTextColumns);
    const auto last = std::min<long>(std::lround(to * kTextColumns), kTextColumns);
    for (long at = first; at < last; ++at) bar[at] = mark;
  };
  fill(0, shares.compute, '#');
  fill(shares.compute, shares.sync, '+');
  fill(0, shares.link, '-');
  return bar;
}

constexpr double kWidth = 1100;
constexpr double kBarLeft = 120;
constexpr double kBarWidth = 440;
constexpr double kRowHeight = 30;
constexpr double kTop = 66;

std::string Px(double value) { return SvgNumber(value, 1); }

std::string Rectangle(double from, double to, double y, const char* style) {
  if (to <= from) return "";
  return absl::StrCat("<rect class=\"", style, "\" x=\"", Px(kBarLeft + from * kBarWidth),
                      "\" y=\"", Px(y), "\" width=\"", Px((to - from) * kBarWidth), "\" height=\"",
                      Px(kRowHeight - 10), "\"/>\n");
}

std::string Text(double x, double y, const char* style, const std::string& text) {
  return absl::StrCat("<text class=\"", style, "\" x=\"", Px(x), "\" y=\"", Px(y), "\">",
                      SvgText(text), "</text>\n");
}

constexpr char kStyle[] =
    "<style>text{font:13px sans-serif;fill:#20262e}.t{font-size:18px;font-weight:600}"
    ".d{fill:#5a6675}.c{fill:#2f6fc4}.s{fill:#d1622b}.l{fill:#24896a}.f{fill:none;stroke:#98a5b4}"
    ".b{fill:#fff}@media(prefers-color-scheme:dark){text{fill:#e6e9ee}.d{fill:#98a5b4}"
    ".b{fill:#14181e}.c{fill:#6aa5f0}.s{fill:#ee8f5c}.l{fill:#45b992}}</style>\n";

}  // namespace

std::string RenderPlanText(const LayerGraph& graph, const StagePlan& plan) {
  const std::vector<Row> rows = RowsOf(graph, plan);
  size_t label_width = 0;
  for (const Row& row : rows) label_width = std::max(label_width, row.label.size());
  std::string text;
  for (const Row& row : rows) {
    absl::StrAppendFormat(&text, "%-*s |%s| %10.3f ms  %s\n", static_cast<int>(label_width),
                          row.label, TextBar(SharesOf(row, plan.period_s)), row.total_s * 1e3,
                          row.detail);
  }
  return absl::StrCat(text, std::string(label_width + 2, ' '),
                      "# compute, + averaging of gradients, - link\n");
}

std::string RenderPlanSvg(const LayerGraph& graph, const StagePlan& plan,
                          const std::string& title) {
  const std::vector<Row> rows = RowsOf(graph, plan);
  const double height = kTop + kRowHeight * static_cast<double>(rows.size()) + 34;
  std::string svg = absl::StrCat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", Px(kWidth), " ", Px(height),
      "\" width=\"", Px(kWidth), "\" height=\"", Px(height), "\" role=\"img\">\n", kStyle,
      "<rect class=\"b\" width=\"100%\" height=\"100%\"/>\n", Text(20, 30, "t", title),
      Text(
          20, 50, "d",
          absl::StrFormat("%s on %d workers: %.3f ms for a minibatch; model of costs: %s",
                          ReplicasText(plan), plan.workers_used, plan.period_s * 1e3, plan.model)));
  double y = kTop;
  for (const Row& row : rows) {
    const Shares shares = SharesOf(row, plan.period_s);
    absl::StrAppend(&svg, Text(20, y + 15, "", row.label),
                    Rectangle(0, std::min(shares.compute, 1.0), y, "c"),
                    Rectangle(shares.compute, std::min(shares.sync, 1.0), y, "s"),
                    Rectangle(0, std::min(shares.link, 1.0), y, "l"), Rectangle(0, 1, y, "f"),
                    Text(kBarLeft + kBarWidth + 12, y + 15, "d",
                         absl::StrFormat("%.3f ms, %s", row.total_s * 1e3, row.detail)));
    y += kRowHeight;
  }
  return absl::StrCat(svg, Rectangle(0, 0.02, y + 4, "c"),
                      Text(kBarLeft + 16, y + 20, "d", "compute"), Rectangle(0.2, 0.22, y + 4, "s"),
                      Text(kBarLeft + 0.2 * kBarWidth + 16, y + 20, "d", "averaging of gradients"),
                      Rectangle(0.6, 0.62, y + 4, "l"),
                      Text(kBarLeft + 0.6 * kBarWidth + 16, y + 20, "d", "link"), "</svg>\n");
}

}  // namespace penstock
