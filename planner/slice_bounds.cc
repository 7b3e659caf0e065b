#include "planner/slice_bounds.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "planner/cut_programme.h"

namespace penstock {
namespace {

constexpr float kNone = std::numeric_limits<float>::infinity();
// Bytes that cross change fast with work, parameters slowly.
constexpr int kLiveUnits = 16'384;
constexpr int kParameterUnits = 4'096;

// A slice is split by the parameters inside, and its cuts are also bounded by their live bytes plus so
// many times these.
constexpr int kBands = 12;
constexpr double kParameterWeights[] = {-2, 1, 3, 10};

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

// The curves of one programme.
class Curves {
 public:
  Curves(const SortedGraph& graph, int units, TimeBudget& budget)
      : programme_(graph, units, budget), rounding_(programme_.WorkRounding()) {}

  std::optional<Curve> Least(const CutCharges& charges) {
    if (!rounding_.has_value()) return std::nullopt;
    std::optional<std::vector<float>> least = programme_.LeastCharges(charges);
    if (!least.has_value()) return std::nullopt;
    return Curve{*std::move(least), programme_.unit_s(), *rounding_};
  }

 private:
  CutProgramme programme_;
  const std::optional<CutProgramme::Rounding> rounding_;
};

}  // namespace

std::optional<std::vector<CutFamily::Slice>> BoundSlices(const SortedGraph& graph, int slices,
                                                         TimeBudget& budget) {
  const double work_s = std::accumulate(graph.work_s.begin(), graph.work_s.end(), 0.0);
  if (work_s <= 0) return std::nullopt;
  const std::vector<double> nothing(graph.size());
  std::vector<double> negative = graph.parameter_bytes;
  for (double& bytes : negative) bytes = -bytes;

  Curves fine(graph, kLiveUnits, budget);
  Curves coarse(graph, kParameterUnits, budget);
  const auto live = fine.Least({nothing, graph.activation_bytes});
  const auto least_parameters = coarse.Least({graph.parameter_bytes, nothing});
  const auto most_parameters = coarse.Least({negative, nothing});
  if (!live.has_value() || !least_parameters.has_value() || !most_parameters.has_value()) {
    return std::nullopt;
  }
  const double parameter_bytes =
      std::accumulate(graph.parameter_bytes.begin(), graph.parameter_bytes.end(), 0.0);
  const double parameter_margin = CutProgramme::kChargeMargin * parameter_bytes;
  // Sums of both, which no cut of few bytes and few (or many) parameters can avoid.
  std::vector<std::pair<double, Curve>> sums;
  for (const double weight : kParameterWeights) {
    std::vector<double> weighted = graph.parameter_bytes;
    for (double& bytes : weighted) bytes *= weight;
    auto least = coarse.Least({weighted, graph.activation_bytes});
    if (!least.has_value()) return std::nullopt;
    sums.emplace_back(weight, *std::move(least));
  }

  std::vector<CutFamily::Slice> bounds = {{}};
  for (int slice = 0; slice < slices; ++slice) {
    const double from_s = work_s * slice / slices;
    const double to_s = work_s * (slice + 1) / slices;
    const float crossing = live->Between(from_s, to_s);
    if (crossing == kNone) continue;
    const double fewest = least_parameters->Between(from_s, to_s) - parameter_margin;
    const double most = -most_parameters->Between(from_s, to_s) + parameter_margin;
    for (int band = 0; band < kBands; ++band) {
      const double low = fewest + (most - fewest) * band / kBands;
      const double high = fewest + (most - fewest) * (band + 1) / kBands;
      double live_bytes = crossing * (1 - CutProgramme::kChargeMargin);
      for (const auto& [weight, curve] : sums) {
        const double sum = curve.Between(from_s, to_s);
        const double margin =
            CutProgramme::kChargeMargin * std::abs(sum) + parameter_margin * std::abs(weight);
        live_bytes = std::max(live_bytes, sum - weight * (weight > 0 ? high : low) - margin);
      }
      bounds.push_back({.least_work_s = from_s,
                        .most_work_s = to_s,
                        .least_parameter_bytes = low,
                        .most_parameter_bytes = high,
                        .least_live_bytes = live_bytes});
    }
  }
  bounds.push_back({.least_work_s = work_s,
                    .most_work_s = work_s,
                    .least_parameter_bytes = parameter_bytes,
                    .most_parameter_bytes = parameter_bytes});
  return bounds;
}

}  // namespace penstock
