#include "studies/theory/line_chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

#include "absl/strings/str_format.h"
#include "base/svg.h"

namespace penstock {
namespace {

struct Colour {
  const char* light;
  const char* dark;
};
constexpr std::array<Colour, 8> kColours = {{{"#2f6fc4", "#6aa5f0"},
                                             {"#d1622b", "#ee8f5c"},
                                             {"#24896a", "#45b992"},
                                             {"#8a5cc2", "#b38fe6"},
                                             {"#b8892a", "#dcb559"},
                                             {"#c2457c", "#e87faa"},
                                             {"#5a6675", "#98a5b4"},
                                             {"#3d98b5", "#6bc4df"}}};
constexpr double kMarginLeft = 84;
constexpr double kMarginRight = 28;
constexpr double kMarginTop = 74;
constexpr double kMarginBottom = 58;
constexpr double kLegendRow = 21;
constexpr double kLegendWidth = 18;  // of a line's sample
constexpr double kCharacterWidth = 6.6;
constexpr int kDot = 4;  // radius
constexpr int kLargeDot = 18;
constexpr double kTicks = 6;  // about this many on an axis

std::string Px(double value) { return SvgNumber(value, 1); }

// One axis: from values to a share of its length.
class Axis {
 public:
  Axis(bool logarithmic, double low, double high) : logarithmic_(logarithmic) {
    const bool usable = low <= high;  // else no point has a place
    low_ = Scale(usable ? low : 1.0);
    high_ = Scale(usable ? high : 10.0);
    if (low_ == high_) {
      low_ -= 0.5;
      high_ += 0.5;
    }
  }

  bool Has(double value) const { return std::isfinite(value) && (!logarithmic_ || value > 0.0); }
  // 0 to 1 within the axis. REQUIRES: Has(value).
  double Share(double value) const { return (Scale(value) - low_) / (high_ - low_); }

  std::vector<double> Ticks() const {
    const double length = high_ - low_;
    return logarithmic_ && length > 1.0 ? Powers(std::max(1.0, std::ceil(length / (2 * kTicks))))
                                        : Even();
  }

 private:
  double Scale(double value) const { return logarithmic_ ? std::log10(value) : value; }

  // Powers of ten; with few of them 2 and 5 times them as well.
  std::vector<double> Powers(double stride) const {
    std::vector<double> ticks;
    const bool few = high_ - low_ < 3.0;
    for (double power = std::floor(low_ / stride) * stride; power <= high_; power += stride) {
      for (const double factor : {1.0, 2.0, 5.0}) {
        const double value = factor * std::pow(10.0, power);
        const bool inside = Scale(value) >= low_ - 1e-9 && Scale(value) <= high_ + 1e-9;
        if (inside && (factor == 1.0 || few)) ticks.push_back(value);
      }
    }
    return ticks;
  }

  // Multiples of 1, 2 or 5 times a power of ten.
  std::vector<double> Even() const {
    const double low = logarithmic_ ? std::pow(10.0, low_) : low_;
    const double high = logarithmic_ ? std::pow(10.0, high_) : high_;
    const double power = std::pow(10.0, std::floor(std::log10((high - low) / kTicks)));
    double distance = power;
    for (const double factor : {2.0, 5.0, 10.0}) {
      if ((high - low) / distance > kTicks + 2) distance = factor * power;
    }
    std::vector<double> ticks;
    for (auto i = static_cast<int64_t>(std::ceil(low / distance - 1e-9));
         static_cast<double>(i) * distance <= high + 1e-9 * distance; ++i) {
      ticks.push_back(static_cast<double>(i) * distance);
    }
    return ticks;
  }

  const bool logarithmic_;
  double low_ = 0.0;  // in scaled units
  double high_ = 0.0;
};

Axis XAxis(const LineChart& chart) {
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  for (const ChartLine& line : chart.lines) {
    for (const ChartPoint& point : line.points) {
      if (!std::isfinite(point.x) || (chart.x_log && point.x <= 0.0)) continue;
      low = std::min(low, point.x);
      high = std::max(high, point.x);
    }
  }
  return Axis(chart.x_log, low, high);
}

Axis YAxis(const LineChart& chart) {
  if (chart.y_min != chart.y_max) return Axis(chart.y_log, chart.y_min, chart.y_max);
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  for (const ChartLine& line : chart.lines) {
    for (const ChartPoint& point : line.points) {
      for (const double y : {point.y, point.low, point.high}) {
        if (!std::isfinite(y) || (chart.y_log && y <= 0.0)) continue;
        low = std::min(low, y);
        high = std::max(high, y);
      }
    }
  }
  return Axis(chart.y_log, low, high);
}

class Picture {
 public:
  Picture(const LineChart& chart, int width, int height)
      : chart_(chart),
        x_axis_(XAxis(chart)),
        y_axis_(YAxis(chart)),
        width_(width),
        height_(height),
        plot_width_(width - kMarginLeft - kMarginRight),
        plot_height_(height - kMarginTop - kMarginBottom - LegendHeight()) {}

  std::string Render() {
    Begin();
    Axes();
    Add("<clipPath id=\"plot\"><rect x=\"%s\" y=\"%s\" width=\"%s\" height=\"%s\"/></clipPath>\n"
        "<g clip-path=\"url(#plot)\">\n",
        Px(kMarginLeft), Px(kMarginTop), Px(plot_width_), Px(plot_height_));
    for (size_t i = 0; i < chart_.lines.size(); ++i) Band(i);
    for (size_t i = 0; i < chart_.lines.size(); ++i) Line(i);
    svg_ += "</g>\n";
    Legend();
    svg_ += "</svg>\n";
    return std::move(svg_);
  }

 private:
  template <typename... Args>
  void Add(const absl::FormatSpec<Args...>& format, const Args&... args) {
    absl::StrAppendFormat(&svg_, format, args...);
  }

  double X(double value) const { return kMarginLeft + plot_width_ * x_axis_.Share(value); }
  // Far outside the frame nothing is seen, and numbers stay short.
  double Y(double value) const {
    return kMarginTop + plot_height_ * (1.0 - std::clamp(y_axis_.Share(value), -1.0, 2.0));
  }
  bool Has(const ChartPoint& point) const { return x_axis_.Has(point.x) && y_axis_.Has(point.y); }

  static double LegendItemWidth(const ChartLine& line) {
    const auto characters = std::count_if(line.label.begin(), line.label.end(), [](char byte) {
      return (byte & 0xC0) != 0x80;  // UTF-8: all but the later bytes of a character
    });
    return kLegendWidth + 24 + kCharacterWidth * static_cast<double>(characters);
  }
  double LegendHeight() const {
    double rows = 1;
    double x = kMarginLeft;
    for (const ChartLine& line : chart_.lines) {
      if (x > kMarginLeft && x + LegendItemWidth(line) > width_ - kMarginRight) {
        ++rows;
        x = kMarginLeft;
      }
      x += LegendItemWidth(line);
    }
    return rows * kLegendRow;
  }

  void Begin() {
    Add("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
        "height=\"%d\" font-family=\"system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif\">\n",
        width_, height_, width_, height_);
    svg_ +=
        "<style>\n.bg{fill:#ffffff}.grid{stroke:#d5dae0}.frame{stroke:#9aa4af;fill:none}"
        "text{fill:#3d4651;font-size:12px}.title{fill:#1b222b;font-size:18px;font-weight:600}"
        ".dim{fill:#77818d}.line{fill:none;stroke-width:2;stroke-linejoin:round}"
        ".band{opacity:.16}.dash{stroke-dasharray:6 5}\n";
    for (size_t i = 0; i < kColours.size(); ++i) {
      Add(".s%d{stroke:%s}.f%d{fill:%s}", i, kColours[i].light, i, kColours[i].light);
    }
    svg_ +=
        "\n@media (prefers-color-scheme:dark){.bg{fill:#161b22}.grid{stroke:#39424e}"
        ".frame{stroke:#6b7785}text{fill:#c5ced8}.title{fill:#f0f4f8}.dim{fill:#8b96a3}\n";
    for (size_t i = 0; i < kColours.size(); ++i) {
      Add(".s%d{stroke:%s}.f%d{fill:%s}", i, kColours[i].dark, i, kColours[i].dark);
    }
    svg_ += "}\n</style>\n";
    Add("<rect class=\"bg\" width=\"%d\" height=\"%d\" rx=\"8\"/>\n", width_, height_);
    Add("<text class=\"title\" x=\"24\" y=\"34\">%s</text>\n", SvgText(chart_.title));
    Add("<text class=\"dim\" x=\"24\" y=\"54\">%s</text>\n", SvgText(chart_.subtitle));
  }

  void Axes() {
    const double bottom = kMarginTop + plot_height_;
    const double right = kMarginLeft + plot_width_;
    for (const double value : x_axis_.Ticks()) {
      const std::string x = Px(X(value));
      Add("<line class=\"grid\" x1=\"%s\" x2=\"%s\" y1=\"%s\" y2=\"%s\"/>"
          "<text class=\"dim\" text-anchor=\"middle\" x=\"%s\" y=\"%s\">%s</text>\n",
          x, x, Px(kMarginTop), Px(bottom), x, Px(bottom + 17), Number(value));
    }
    for (const double value : y_axis_.Ticks()) {
      const double y = Y(value);
      Add("<line class=\"grid\" x1=\"%s\" x2=\"%s\" y1=\"%s\" y2=\"%s\"/>"
          "<text class=\"dim\" text-anchor=\"end\" x=\"%s\" y=\"%s\">%s</text>\n",
          Px(kMarginLeft), Px(right), Px(y), Px(y), Px(kMarginLeft - 8), Px(y + 4), Number(value));
    }
    Add("<rect class=\"frame\" x=\"%s\" y=\"%s\" width=\"%s\" height=\"%s\"/>\n", Px(kMarginLeft),
        Px(kMarginTop), Px(plot_width_), Px(plot_height_));
    Add("<text text-anchor=\"middle\" x=\"%s\" y=\"%s\">%s</text>\n",
        Px(kMarginLeft + plot_width_ / 2), Px(bottom + 38), SvgText(chart_.x_label));
    const double middle = kMarginTop + plot_height_ / 2;
    Add("<text text-anchor=\"middle\" x=\"18\" y=\"%s\" transform=\"rotate(-90 18 "
        "%s)\">%s</text>\n",
        Px(middle), Px(middle), SvgText(chart_.y_label));
  }

  static std::string Number(double value) { return absl::StrFormat("%.6g", value); }

  // One area for each stretch of points without a gap.
  void Band(size_t index) {
    std::vector<ChartPoint> stretch;
    const auto finish = [&] {
      const bool visible = std::any_of(stretch.begin(), stretch.end(), [](const ChartPoint& point) {
        return point.low != point.y || point.high != point.y;
      });
      if (visible && stretch.size() > 1) {
        std::string path;
        for (const ChartPoint& point : stretch) AppendTo(path, point.x, point.high);
        for (auto point = stretch.rbegin(); point != stretch.rend(); ++point) {
          AppendTo(path, point->x, point->low);
        }
        Add("<path class=\"band f%d\" d=\"%sz\"/>\n", index % kColours.size(), path);
      }
      stretch.clear();
    };
    for (const ChartPoint& point : chart_.lines[index].points) {
      const bool has = Has(point) && y_axis_.Has(point.low) && y_axis_.Has(point.high);
      has ? stretch.push_back(point) : finish();
    }
    finish();
  }

  void AppendTo(std::string& path, double x, double y) const {
    absl::StrAppendFormat(&path, "%s%s %s", path.empty() ? "M" : "L", Px(X(x)), Px(Y(y)));
  }

  void Line(size_t index) {
    const ChartLine& line = chart_.lines[index];
    const size_t colour = index % kColours.size();
    std::string path;
    std::string stretch;
    for (const ChartPoint& point : line.points) {
      if (Has(point)) {
        AppendTo(stretch, point.x, point.y);
      } else {
        path += std::exchange(stretch, "");
      }
    }
    path += stretch;
    if (!path.empty() && !line.apart) {
      Add("<path class=\"line s%d%s\" d=\"%s\"/>\n", colour, line.dashed ? " dash" : "", path);
    }
    if (!line.marked && !line.apart) return;
    for (const ChartPoint& point : line.points) {
      if (!Has(point)) continue;
      Add("<circle class=\"f%d\" cx=\"%s\" cy=\"%s\" r=\"%d\"><title>%s: %s, %s</title></circle>\n",
          colour, Px(X(point.x)), Px(Y(point.y)), line.apart ? kLargeDot : kDot,
          SvgText(line.label), Number(point.x), Number(point.y));
    }
  }

  void Legend() {
    double x = kMarginLeft;
    double y = height_ - LegendHeight() + 6;
    for (size_t i = 0; i < chart_.lines.size(); ++i) {
      const ChartLine& line = chart_.lines[i];
      if (x > kMarginLeft && x + LegendItemWidth(line) > width_ - kMarginRight) {
        x = kMarginLeft;
        y += kLegendRow;
      }
      Add("<path class=\"line s%d%s\" d=\"M%s %sh%s\"/><text x=\"%s\" y=\"%s\">%s</text>\n",
          i % kColours.size(), line.dashed ? " dash" : "", Px(x), Px(y - 4), Px(kLegendWidth),
          Px(x + kLegendWidth + 6), Px(y), SvgText(line.label));
      x += LegendItemWidth(line);
    }
  }

  const LineChart& chart_;
  const Axis x_axis_;
  const Axis y_axis_;
  const int width_;
  const int height_;
  const double plot_width_;
  const double plot_height_;
  std::string svg_;
};

}  // namespace

std::string RenderLineChart(const LineChart& chart, int width_px, int height_px) {
  return Picture(chart, width_px, height_px).Render();
}

}  // namespace penstock
