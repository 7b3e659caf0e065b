#include "compute/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <type_traits>

namespace penstock {

absl::Span<const absl::string_view> StateNamesOf(const OptimizerConfig& config) {
  return std::visit(
      [](const auto& each) {
        using Config = std::decay_t<decltype(each)>;
        static constexpr auto kNames = [] {
          std::array<absl::string_view, std::size(Config::kStates)> names;
          std::copy(std::begin(Config::kStates), std::end(Config::kStates), names.begin());
          return names;
        }();
        return absl::Span<const absl::string_view>(kNames.data(), each.states());
      },
      config);
}

absl::string_view KindOf(const OptimizerConfig& config) {
  return std::visit([](const auto& each) { return absl::string_view(each.kind()); }, config);
}

void SetMomentum(OptimizerConfig& config, double momentum) {
  std::visit([&](auto& each) { each.main_momentum() = momentum; }, config);
}

std::vector<SliceGroup> GroupSlices(absl::Span<const ParameterSlice> slices) {
  std::vector<SliceGroup> groups;
  for (size_t s = 0; s < slices.size(); ++s) {
    auto group = std::find_if(groups.begin(), groups.end(), [&](const SliceGroup& known) {
      return known.rate_scale == slices[s].rate_scale &&
             known.weight_decay == slices[s].weight_decay;
    });
    if (group == groups.end()) {
      group = groups.insert(group, {slices[s].rate_scale, slices[s].weight_decay, {}});
    }
    group->indices.push_back(s);
  }
  return groups;
}

MuonSlices::MuonSlices(absl::Span<const ParameterSlice> slices) {
  for (size_t s = 0; s < slices.size(); ++s) {
    if (slices[s].is_hidden_matrix()) {
      matrices_.push_back(s);
      continue;
    }
    others_.push_back(slices[s]);
    other_indices_.push_back(s);
  }
  other_scales_.resize(others_.size());
}

StepArguments MuonSlices::ArgumentsOfOthers(const StepArguments& whole) {
  for (size_t i = 0; i < other_indices_.size(); ++i) {
    other_scales_[i] = whole.gradient_scales[other_indices_[i]];
  }
  StepArguments of_others = whole;
  of_others.gradient_scales = other_scales_;
  return of_others;
}

double MuonRate(const ParameterSlice& matrix, double learning_rate) {
  constexpr double kAdamWScale = 0.2;  // the root mean square of AdamW's steps
  const auto side = static_cast<double>(std::max(matrix.rows, matrix.columns));
  return learning_rate * matrix.rate_scale * kAdamWScale * std::sqrt(side);
}

double MuonKeep(const MuonConfig& config, const ParameterSlice& matrix, double learning_rate) {
  const double decay =
      matrix.weight_decay.value_or(matrix.decays ? config.adamw.weight_decay : 0.0);
  return 1.0 - learning_rate * matrix.rate_scale * decay;
}

}  // namespace penstock
