#include "planner/slice_bounds.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "planner/cut_programme.h"

namespace penstock {
namespace {

constexpr float kNone = std::numeric_limits<float>::infinity();
// Bytes that cross change fast with work, parameters slowly.
constexpr int kLiveUnits = 16'384;
constexpr int kParameterUnits = 4'096;

// The least charge of a cut by work, with what is needed to look it up.
struct Curve {
  std::vector<float> least;
  double unit_s = 0;
  CutProgramme::Rounding rounding;

  // Over all cuts with work from `from_s` to `to_s`; infinite if there is none.
  float Between(double from_s, double to_s) const {
    const int first =
        std::max(0, static_cast<int>(std::floor((from_s - rounding.most_s) / unit_s)));
    const int last = std::min(static_cast<int>(least.size()) - 1,
                              static_cast<int>(std::ceil((to_s - rounding.least_s) / unit_s)));
    float best = kNone;
    for (int unit = first; unit <= last; ++unit) best = std::min(best, least[unit]);
    return best;
  }
};

std::optional<Curve> LeastByWork(CutProgramme& programme, const CutCharges& charges) {
  const std::optional<CutProgramme::Rounding> rounding = programme.WorkRounding();
  if (!rounding.has_value()) return std::nullopt;
  std::optional<std::vector<float>> least = programme.LeastCharges(charges);
  if (!least.has_value()) return std::nullopt;
  return Curve{*std::move(least), programme.unit_s(), *rounding};
}

}  // namespace

std::optional<std::vector<CutFamily::Slice>> BoundSlices(const SortedGraph& graph, int slices,
                                                         TimeBudget& budget) {
  const double work_s = std::accumulate(graph.work_s.begin(), graph.work_s.end(), 0.0);
  if (work_s <= 0) return std::nullopt;
  const std::vector<double> nothing(graph.size());
  std::vector<double> negative = graph.parameter_bytes;
  for (double& bytes : negative) bytes = -bytes;

  CutProgramme fine(graph, kLiveUnits, budget);
  CutProgramme coarse(graph, kParameterUnits, budget);
  const auto live = LeastByWork(fine, {nothing, graph.activation_bytes});
  const auto least_parameters = LeastByWork(coarse, {graph.parameter_bytes, nothing});
  const auto most_parameters = LeastByWork(coarse, {negative, nothing});
  if (!live.has_value() || !least_parameters.has_value() || !most_parameters.has_value()) {
    return std::nullopt;
  }
  const double parameter_bytes =
      std::accumulate(graph.parameter_bytes.begin(), graph.parameter_bytes.end(), 0.0);
  const double parameter_margin = CutProgramme::kChargeMargin * parameter_bytes;
  std::vector<CutFamily::Slice> bounds = {{}};
  for (int slice = 0; slice < slices; ++slice) {
    const double from_s = work_s * slice / slices;
    const double to_s = work_s * (slice + 1) / slices;
    const float crossing = live->Between(from_s, to_s);
    if (crossing == kNone) continue;
    bounds.push_back(
        {.least_work_s = from_s,
         .most_work_s = to_s,
         .least_parameter_bytes = least_parameters->Between(from_s, to_s) - parameter_margin,
         .most_parameter_bytes = -most_parameters->Between(from_s, to_s) + parameter_margin,
         .least_live_bytes = crossing * (1 - CutProgramme::kChargeMargin)});
  }
  bounds.push_back({.least_work_s = work_s,
                    .most_work_s = work_s,
                    .least_parameter_bytes = parameter_bytes,
                    .most_parameter_bytes = parameter_bytes});
  return bounds;
}

}  // namespace penstock
