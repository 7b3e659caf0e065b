#include "compute/parameter_arena.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "base/sha256.h"

namespace penstock {
namespace {

constexpr int64_t kAlignmentFloats = 16;

int64_t Padded(int64_t floats) {
  return (floats + kAlignmentFloats - 1) / kAlignmentFloats * kAlignmentFloats;
}

uint64_t IdentityOf(const std::string& name) {
  return std::stoull(Sha256Hex("parameter " + name).substr(0, 16), nullptr, 16);
}

}  // namespace

ParameterArena::ParameterArena(const ModelGraph& model, LayerRange layers) {
  // A parameter's place on this stage.
  struct Place {
    int64_t weight = 0;
    int64_t gradient = 0;  // of the use that is nearest to where we are
    int tie = -1;
    int uses = 0;
  };
  std::map<std::string, Place> places;
  const auto place = [&](const ParameterSpec& parameter, int tie) {
    places[parameter.name] = {.weight = weight_count_, .tie = tie};
    weight_count_ += Padded(parameter.size());
  };
  std::vector<int> uses_here;  // by tie
  for (const Tie& tie : model.ties) {
    const auto [begin, end] =
        std::pair(std::lower_bound(tie.uses.begin(), tie.uses.end(), layers.first),
                  std::lower_bound(tie.uses.begin(), tie.uses.end(), layers.end()));
    uses_here.push_back(static_cast<int>(end - begin));
    TiedParameters& tied = tied_.emplace_back();
    if (begin == end) continue;
    tied.first = tied.last = weight_count_;
    for (const ParameterSpec& parameter : tie.parameters) {
      place(parameter, static_cast<int>(&tie - model.ties.data()));
    }
    tied.count = weight_count_ - tied.first;
  }
  for (int l = layers.first; l < layers.end(); ++l) {
    for (const ParameterSpec& parameter : model.layers[l].parameters) {
      if (places.count(parameter.name) == 0) place(parameter, -1);
    }
  }
  gradient_count_ = weight_count_;
  for (size_t t = 0; t < tied_.size(); ++t) {
    TiedParameters& tied = tied_[t];
    const bool crosses = uses_here[t] < static_cast<int>(model.ties[t].uses.size());
    for (int use = 1; use < uses_here[t]; ++use) {
      const Use later = {gradient_count_, tied.last, tied.count};
      (crosses ? tied.uses : later_uses_).push_back(later);
      tied.last = gradient_count_;
      gradient_count_ += tied.count;
    }
  }
  for (int l = layers.first; l < layers.end(); ++l) {
    std::vector<int64_t>& offsets = weights_.emplace_back();
    std::vector<int64_t>& gradients = gradients_.emplace_back();
    std::vector<ParameterSlice>& slices = slices_.emplace_back();
    std::vector<int>& owners = slice_owners_.emplace_back();
    for (const ParameterSpec& parameter : model.layers[l].parameters) {
      Place& here = places[parameter.name];
      offsets.push_back(here.weight);
      const int use = here.uses++;
      if (use > 0) {
        if (here.tie >= 0) {
          // The uses follow each other behind the weights, as the tie's parameters do in each.
          const TiedParameters& tied = tied_[here.tie];
          const int64_t second = tied.last - (uses_here[here.tie] - 2) * tied.count;
          here.gradient = second + (use - 1) * tied.count + here.weight - tied.first;
        } else {
          later_uses_.push_back({gradient_count_, here.gradient, parameter.size()});
          here.gradient = gradient_count_;
          gradient_count_ += Padded(parameter.size());
        }
        gradients.push_back(here.gradient);
        continue;
      }
      here.gradient = here.weight;
      gradients.push_back(here.gradient);
      ParameterSlice& slice = slices.emplace_back(ParameterSlice{
          here.weight, parameter.size(), parameter.decays, IdentityOf(parameter.name)});
      owners.push_back(here.tie >= 0 ? model.ties[here.tie].owner() : l);
      if (parameter.maps_features) {
        slice.rows = parameter.shape[0];
        slice.columns = parameter.size() / parameter.shape[0];
      }
    }
  }
}

}  // namespace penstock
