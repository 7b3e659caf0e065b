#include "planner/graph/partition.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "planner/graph/limits.h"

namespace penstock {
namespace {

absl::Status CheckArguments(absl::Span<const double> layer_costs, int stages) {
  if (stages < 1) {
    return absl::InvalidArgumentError(absl::StrCat("expected at least 1 stage, got ", stages));
  }
  if (static_cast<size_t>(stages) > layer_costs.size()) {
    return absl::InvalidArgumentError(absl::StrCat(layer_costs.size(),
                                                   " layers cannot be cut into ", stages,
                                                   " stages, every stage needs a layer"));
  }
  for (size_t layer = 0; layer < layer_costs.size(); ++layer) {
    if (!std::isfinite(layer_costs[layer]) || layer_costs[layer] < 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the cost of layer ", layer, " must not be negative, got ", layer_costs[layer]));
    }
  }
  return absl::OkStatus();
}

class Partitioner {
 public:
  Partitioner(absl::Span<const double> layer_costs, absl::Span<const double> speeds)
      : layers_(static_cast<int>(layer_costs.size())),
        stages_(static_cast<int>(speeds.size())),
        speeds_(speeds),
        cost_before_(layers_ + 1) {
    for (int layer = 0; layer < layers_; ++layer) {
      cost_before_[layer + 1] = cost_before_[layer] + layer_costs[layer];
    }
  }

  std::vector<int> Solve() {
    const double bottleneck = Bottleneck();
    return Cut(bottleneck);
  }

 private:
  // Returns the cost of the layers [first, end) as stage number `stage`.
  double Cost(int stage, int first, int end) const {
    return (cost_before_[end] - cost_before_[first]) / speeds_[stage];
  }

  // Returns the smallest possible cost of the largest stage. largest[end], after round k, is that of the best way to
  // cut the layers before `end` into k stages.
  double Bottleneck() const {
    std::vector<double> largest(layers_ + 1, kInfinity);
    largest[0] = 0;
    for (int stage = 1; stage <= stages_; ++stage) {
      std::vector<double> next(layers_ + 1, kInfinity);
      for (int end = stage; end <= layers_; ++end) {
        // A last stage that begins earlier only costs more.
        for (int first = end - 1; first >= stage - 1; --first) {
          const double cost = Cost(stage - 1, first, end);
          if (cost >= next[end]) break;
          next[end] = std::min(next[end], std::max(largest[first], cost));
        }
      }
      largest = std::move(next);
    }
    return largest[layers_];
  }

  // Returns the cuts with the smallest sum of squares whose stages cost `limit` at most. It goes over suffixes, so that
  // among equal sums the first cut can be chosen as early as possible, then the second, ...
  std::vector<int> Cut(double limit) const {
    // squares[first] after round k is that of the layers from `first` on in k stages.
    std::vector<double> squares(layers_ + 1, kInfinity);
    squares[layers_] = 0;
    // end_of[k][first] is where the first of k stages from `first` on ends.
    std::vector<std::vector<int>> end_of(stages_ + 1, std::vector<int>(layers_ + 1, 0));
    for (int stage = 1; stage <= stages_; ++stage) {
      std::vector<double> next(layers_ + 1, kInfinity);
      for (int first = 0; first < layers_; ++first) {
        for (int end = first + 1; end <= layers_; ++end) {
          const double cost = Cost(stages_ - stage, first, end);
          if (cost > limit) break;
          if (cost * cost + squares[end] >= next[first]) continue;
          next[first] = cost * cost + squares[end];
          end_of[stage][first] = end;
        }
      }
      squares = std::move(next);
    }
    std::vector<int> first_layers = {0};
    for (int stage = stages_; stage > 1; --stage) {
      first_layers.push_back(end_of[stage][first_layers.back()]);
    }
    return first_layers;
  }

  const int layers_;
  const int stages_;
  const absl::Span<const double> speeds_;  // by stage
  std::vector<double> cost_before_;        // of the layers before each
};

}  // namespace

absl::StatusOr<std::vector<int>> PartitionChain(absl::Span<const double> layer_costs, int stages) {
  PENSTOCK_RETURN_IF_ERROR(CheckArguments(layer_costs, stages));
  return Partitioner(layer_costs, std::vector<double>(stages, 1.0)).Solve();
}

absl::StatusOr<std::vector<int>> PartitionChain(absl::Span<const double> layer_costs,
                                                absl::Span<const double> speeds) {
  PENSTOCK_RETURN_IF_ERROR(CheckArguments(layer_costs, static_cast<int>(speeds.size())));
  for (size_t stage = 0; stage < speeds.size(); ++stage) {
    if (std::isfinite(speeds[stage]) && speeds[stage] > 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the speed of stage ", stage, " must be positive, got ", speeds[stage]));
  }
  return Partitioner(layer_costs, speeds).Solve();
}

absl::StatusOr<std::vector<int>> PartitionChain(absl::Span<const double> layer_costs,
                                                absl::Span<const double> speeds,
                                                const std::vector<bool>& may_begin) {
  std::vector<int> first_layers;
  std::vector<double> costs;  // of the layers that stay together
  for (size_t layer = 0; layer < layer_costs.size(); ++layer) {
    if (may_begin[layer]) {
      first_layers.push_back(static_cast<int>(layer));
      costs.push_back(0.0);
    }
    costs.back() += layer_costs[layer];
  }
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<int> firsts, PartitionChain(costs, speeds));
  for (int& first : firsts) first = first_layers[first];
  return firsts;
}

}  // namespace penstock
