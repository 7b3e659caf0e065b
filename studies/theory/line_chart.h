// LineChart: lines over a common axis, with bands, as a self-contained SVG picture.
//
// For whatever is better seen than read: a loss over time for several methods, a figure against the number
// of stages. Colours follow the reader's light or dark setting.
//
// A value and a pure function.
#pragma once

#include <string>
#include <vector>

namespace penstock {

struct ChartPoint {
  double x = 0.0;
  double y = 0.0;
  // The band around the line; equal to y: none.
  double low = 0.0;
  double high = 0.0;
};

struct ChartLine {
  std::string label;
  std::vector<ChartPoint> points;  // by x
  bool dashed = false;             // a reference, such as a formula
  bool marked = false;             // a dot at every point: few, measured ones
  bool apart = false;              // large dots and no line: what belongs to a place, as on a map
};

struct LineChart {
  std::string title;
  std::string subtitle;
  std::string x_label;
  std::string y_label;
  // Logarithmic axes leave out what is not positive.
  bool x_log = false;
  bool y_log = false;
  // Values beyond are cut off at the frame; where both are equal the points decide.
  double y_min = 0.0;
  double y_max = 0.0;
  std::vector<ChartLine> lines;
};

// Points whose x or y is not finite interrupt their line.
std::string RenderLineChart(const LineChart& chart, int width_px = 900, int height_px = 560);

}  // namespace penstock
