#include "studies/theory/line_chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace penstock {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ChartPoint At(double x, double y) { return {x, y, y, y}; }

TEST(LineChartTest, Lines_AreDrawnAndNamed) {
  const LineChart chart{.title = "Loss <a & b>",
                        .x_label = "steps",
                        .y_label = "loss",
                        .lines = {{.label = "first", .points = {At(0, 1), At(10, 3)}},
                                  {.label = "second", .points = {At(0, 2)}, .marked = true}}};
  const std::string svg = RenderLineChart(chart);
  EXPECT_THAT(svg, HasSubstr("Loss &lt;a &amp; b&gt;"));
  EXPECT_THAT(svg, HasSubstr(">first</text>"));
  EXPECT_THAT(svg, HasSubstr(">second</text>"));
  EXPECT_THAT(svg, HasSubstr("<circle"));
  EXPECT_THAT(svg, Not(HasSubstr("class=\"band f")));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

TEST(LineChartTest, Points_LieWhereTheAxesSay) {
  // Margins of the picture: the frame reaches from 84 to 872 and from 74 to 481.
  const LineChart chart{.lines = {{.label = "l", .points = {At(0, 0), At(5, 1), At(10, 2)}}}};
  EXPECT_THAT(RenderLineChart(chart), HasSubstr("d=\"M84 481L478 277.5L872 74\""));
  LineChart logarithmic{.x_log = true, .y_log = true};
  logarithmic.lines = {{.label = "l", .points = {At(1, 1), At(10, 100), At(100, 10000)}}};
  EXPECT_THAT(RenderLineChart(logarithmic), HasSubstr("d=\"M84 481L478 277.5L872 74\""));
}

TEST(LineChartTest, Band_IsDrawnWhereItIsWiderThanItsLine) {
  const LineChart chart{
      .lines = {{.label = "l", .points = {{0, 1, 0.5, 2}, {1, 1, 0.5, 2}, {2, 1, 0.5, 2}}}}};
  EXPECT_THAT(RenderLineChart(chart), HasSubstr("class=\"band f0\""));
}

TEST(LineChartTest, PointsWithoutAPlace_InterruptTheLine) {
  const double infinity = std::numeric_limits<double>::infinity();
  const LineChart chart{
      .y_log = true,
      .lines = {{.label = "l",
                 .points = {At(0, 1), At(1, 10), At(2, infinity), At(3, 0), At(4, 10), At(5, 1)}}}};
  const std::string svg = RenderLineChart(chart);
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
  const std::string path = svg.substr(svg.find("class=\"line s0\""));
  const std::string data = path.substr(0, path.find("/>"));
  EXPECT_EQ(std::count(data.begin(), data.end(), 'M'), 2) << data;
}

TEST(LineChartTest, PointsApart_AreLargeDotsWithoutALine) {
  const LineChart chart{
      .lines = {{.label = "here", .points = {At(1, 1), At(2, 3)}, .apart = true}}};
  const std::string svg = RenderLineChart(chart);
  EXPECT_THAT(svg, HasSubstr("r=\"18\"><title>here: 2, 3</title>"));
  const std::string plot =
      svg.substr(svg.find("<g clip-path"), svg.find("</g>") - svg.find("<g clip-path"));
  EXPECT_THAT(plot, Not(HasSubstr("<path")));
}

TEST(LineChartTest, NothingToDraw_IsStillAPicture) {
  for (const bool logarithmic : {false, true}) {
    LineChart chart{.x_log = logarithmic, .y_log = logarithmic};
    EXPECT_THAT(RenderLineChart(chart), HasSubstr("</svg>"));
    chart.lines = {{.label = "empty"}, {.label = "one", .points = {At(3, 3)}}};
    EXPECT_THAT(RenderLineChart(chart), Not(HasSubstr("nan")));
  }
}

}  // namespace
}  // namespace penstock
