// Draws what Google Benchmark measured as a picture: CPU time over one argument, a line for each value of the others.
//
//   benchmark_chart X_ARGUMENT TITLE < results.json > chart.svg
//
// Benchmarks without that argument are left out.
#include <cmath>
#include <iostream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "studies/theory/line_chart.h"

namespace penstock {
namespace {

struct Measured {
  std::string label;
  double x = 0;
};

// Of a name as "PlanChain/layers:50/workers:4/iterations:1".
std::optional<Measured> Split(const std::string& name, const std::string& x_argument) {
  std::vector<std::string> others;
  std::optional<double> x;
  for (const absl::string_view part : absl::StrSplit(name, '/')) {
    const std::pair<std::string, std::string> argument =
        absl::StrSplit(part, absl::MaxSplits(':', 1));
    double value = 0;
    if (argument.first == x_argument && absl::SimpleAtod(argument.second, &value)) {
      x = value;
    } else if (argument.second.empty()) {
      others.push_back(argument.first);
    } else if (argument.first != "iterations") {
      others.push_back(absl::StrCat(argument.second, " ", argument.first));
    }
  }
  if (!x.has_value()) return std::nullopt;
  return Measured{absl::StrJoin(others, ", "), *x};
}

double Seconds(const nlohmann::json& benchmark) {
  const std::map<std::string, double> units = {
      {"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1.0}};
  return benchmark.value("cpu_time", 0.0) * units.at(benchmark.value("time_unit", "ns"));
}

int Draw(const std::string& x_argument, const std::string& title) {
  const std::string text(std::istreambuf_iterator<char>(std::cin), {});
  const nlohmann::json results = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (results.is_discarded() || !results.contains("benchmarks")) {
    std::cerr << "benchmark_chart: expected what --benchmark_format=json prints\n";
    return 2;
  }
  LineChart chart{.title = title,
                  .x_label = x_argument,
                  .y_label = "seconds of CPU",
                  .x_log = true,
                  .y_log = true};
  std::map<std::string, size_t> line_of;
  for (const nlohmann::json& benchmark : results["benchmarks"]) {
    const std::optional<Measured> measured = Split(benchmark.value("name", ""), x_argument);
    if (!measured.has_value()) continue;
    const auto [known, is_new] = line_of.emplace(measured->label, chart.lines.size());
    if (is_new) chart.lines.push_back({.label = measured->label, .marked = true});
    const double seconds = Seconds(benchmark);
    chart.lines[known->second].points.push_back({measured->x, seconds, seconds, seconds});
  }
  std::cout << RenderLineChart(chart);
  return 0;
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: benchmark_chart X_ARGUMENT TITLE < results.json > chart.svg\n";
    return 2;
  }
  return penstock::Draw(argv[1], argv[2]);
}
