#include "planner/graph/slice_bounds.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace penstock {
namespace {

constexpr double kNone = std::numeric_limits<double>::infinity();
constexpr int kUnits = 65'536;

// Cuts are also bounded by their live bytes plus these multiples of the parameters inside, which no cut of few bytes
// and few (or many) parameters can avoid.
constexpr double kParameterWeights[] = {-2, 1, 3, 10, 20};

double Sum(const std::vector<double>& amounts) {
  return std::accumulate(amounts.begin(), amounts.end(), 0.0);
}

}  // namespace

std::optional<SliceBounds> SliceBounds::Of(const SortedGraph& graph, TimeBudget& budget) {
  SliceBounds bounds;
  bounds.work_s_ = Sum(graph.work_s);
  bounds.parameter_bytes_ = Sum(graph.parameter_bytes);
  if (bounds.work_s_ <= 0) return std::nullopt;

  CutProgramme programme(graph, kUnits, budget);
  const std::optional<CutProgramme::Rounding> rounding = programme.WorkRounding();
  if (!rounding.has_value()) return std::nullopt;
  bounds.unit_s_ = programme.unit_s();
  bounds.rounding_ = *rounding;
  bounds.charge_margin_ = programme.charge_margin();

  bounds.live_ = {.live_weight = 1};
  bounds.least_parameters_ = {.parameter_weight = 1};
  bounds.most_parameters_ = {.parameter_weight = -1};
  for (const double weight : kParameterWeights) {
    bounds.sums_.push_back({.live_weight = 1, .parameter_weight = weight});
  }
  std::vector<Curve*> curves = {&bounds.live_, &bounds.least_parameters_, &bounds.most_parameters_};
  for (Curve& sum : bounds.sums_) curves.push_back(&sum);
  for (Curve* curve : curves) {
    CutCharges charges{graph.parameter_bytes, graph.activation_bytes};
    for (double& bytes : charges.inside) bytes *= curve->parameter_weight;
    for (double& bytes : charges.crossing) bytes *= curve->live_weight;
    std::optional<std::vector<float>> least = programme.LeastCharges(charges);
    if (!least.has_value()) return std::nullopt;
    curve->least = *std::move(least);
  }
  return bounds;
}

double SliceBounds::Least(const Curve& curve, double from_s, double to_s) const {
  const int first =
      std::max(0, static_cast<int>(std::floor((from_s - rounding_.most_s) / unit_s_)));
  const int last = std::min(static_cast<int>(curve.least.size()) - 1,
                            static_cast<int>(std::ceil((to_s - rounding_.least_s) / unit_s_)));
  if (first > last) return kNone;
  const double least =
      *std::min_element(curve.least.begin() + first, curve.least.begin() + last + 1);
  if (least == kNone) return kNone;
  // Bytes and parameters that count against each other were summed up before they cancelled.
  const double cancelled = 2 * std::max(0.0, -curve.parameter_weight) * parameter_bytes_;
  return least - charge_margin_ * (std::abs(least) + cancelled);
}

std::vector<CutFamily::Slice> SliceBounds::Slices(int slices, int bands) const {
  std::vector<CutFamily::Slice> bounds = {{}};
  for (int slice = 0; slice < slices; ++slice) {
    AddBands({.least_work_s = work_s_ * slice / slices,
              .most_work_s = work_s_ * (slice + 1) / slices,
              .least_parameter_bytes = -kNone,
              .most_parameter_bytes = kNone},
             bands, bounds);
  }
  bounds.push_back({.least_work_s = work_s_,
                    .most_work_s = work_s_,
                    .least_parameter_bytes = parameter_bytes_,
                    .most_parameter_bytes = parameter_bytes_});
  return bounds;
}

std::vector<CutFamily::Slice> SliceBounds::Halves(
    const std::vector<CutFamily::Slice>& slices) const {
  std::vector<CutFamily::Slice> halves = {slices.front()};
  // Slices of the same work stand together; all their first halves come before all their second ones.
  for (size_t begin = 1; begin + 1 < slices.size();) {
    size_t end = begin;
    while (end + 1 < slices.size() && slices[end].least_work_s == slices[begin].least_work_s) ++end;
    const double middle_s = (slices[begin].least_work_s + slices[begin].most_work_s) / 2;
    for (const bool is_first : {true, false}) {
      for (size_t at = begin; at < end; ++at) {
        CutFamily::Slice half = slices[at];
        (is_first ? half.most_work_s : half.least_work_s) = middle_s;
        AddBands(half, 2, halves);
      }
    }
    begin = end;
  }
  halves.push_back(slices.back());
  return halves;
}

void SliceBounds::AddBands(const CutFamily::Slice& within, int bands,
                           std::vector<CutFamily::Slice>& slices) const {
  const double from_s = within.least_work_s;
  const double to_s = within.most_work_s;
  const double crossing = Least(live_, from_s, to_s);
  const double fewest =
      std::max(within.least_parameter_bytes, Least(least_parameters_, from_s, to_s));
  const double most = std::min(within.most_parameter_bytes, -Least(most_parameters_, from_s, to_s));
  if (crossing == kNone || fewest > most) return;
  // Bands thinner than the sums are exact would say no more.
  if (most - fewest < 2 * charge_margin_ * parameter_bytes_) bands = 1;
  std::vector<double> least_sums;
  for (const Curve& sum : sums_) least_sums.push_back(Least(sum, from_s, to_s));
  for (int band = 0; band < bands; ++band) {
    const double low = fewest + (most - fewest) * band / bands;
    const double high = fewest + (most - fewest) * (band + 1) / bands;
    double live_bytes = std::max(within.least_live_bytes, crossing);
    for (size_t sum = 0; sum < sums_.size(); ++sum) {
      const double weight = sums_[sum].parameter_weight;
      live_bytes = std::max(live_bytes, least_sums[sum] - weight * (weight > 0 ? high : low));
    }
    slices.push_back({.least_work_s = from_s,
                      .most_work_s = to_s,
                      .least_parameter_bytes = low,
                      .most_parameter_bytes = high,
                      .least_live_bytes = live_bytes});
  }
}

}  // namespace penstock
