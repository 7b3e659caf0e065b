#include "compute/parameter_arena.h"

#include <algorithm>
#include <map>
#include <set>
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

ParameterSlice SliceOf(const ParameterSpec& parameter, int64_t offset) {
  ParameterSlice slice = {offset, parameter.size(), parameter.decays, IdentityOf(parameter.name)};
  slice.rate_scale = parameter.rate_scale;
  slice.weight_decay = parameter.weight_decay;
  if (parameter.maps_features) {
    slice.rows = parameter.shape[0];
    slice.columns = parameter.size() / parameter.shape[0];
  }
  return slice;
}

// The names of the parameters that lie in the frozen array: those that are used by nodes alone all of whose parameters do.
std::set<std::string> FindApart(const ModelGraph& model, LayerRange layers) {
  const absl::Span<const Node> nodes = absl::MakeConstSpan(model.nodes)
                                           .subspan(model.layers[layers.first].first_node,
                                                    model.layers[layers.end() - 1].end_node() -
                                                        model.layers[layers.first].first_node);
  std::set<std::string> apart;
  for (const Node& node : nodes) {
    for (const ParameterSpec& parameter : node.parameters) {
      if (parameter.frozen) apart.insert(parameter.name);
    }
  }
  for (bool changed = !apart.empty(); changed;) {
    changed = false;
    for (const Node& node : nodes) {
      const bool all = std::all_of(node.parameters.begin(), node.parameters.end(),
                                   [&](const auto& each) { return apart.count(each.name) > 0; });
      for (const ParameterSpec& parameter : node.parameters) {
        if (!all && apart.erase(parameter.name) > 0) changed = true;
      }
    }
  }
  return apart;
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
  const std::set<std::string> apart = FindApart(model, layers);
  const auto place = [&](const ParameterSpec& parameter, int tie, int64_t& count) {
    places[parameter.name] = {.weight = count, .tie = tie};
    count += Padded(parameter.size());
  };
  // Those of single layers, as far as they are frozen or not.
  const auto place_all = [&](bool frozen) {
    for (int l = layers.first; l < layers.end(); ++l) {
      for (const ParameterSpec& parameter : model.layers[l].parameters) {
        if (parameter.frozen != frozen || places.count(parameter.name) > 0) continue;
        place(parameter, -1, apart.count(parameter.name) > 0 ? frozen_count_ : weight_count_);
      }
    }
  };
  std::vector<int> uses_here;  // by tie
  for (const Tie& tie : model.ties) {
    const auto [begin, end] =
        std::pair(std::lower_bound(tie.uses.begin(), tie.uses.end(), layers.first),
                  std::lower_bound(tie.uses.begin(), tie.uses.end(), layers.end()));
    uses_here.push_back(static_cast<int>(end - begin));
    TiedParameters& tied = tied_.emplace_back();
    if (begin == end || tie.frozen()) continue;
    tied.first = tied.last = weight_count_;
    for (const ParameterSpec& parameter : tie.parameters) {
      place(parameter, static_cast<int>(&tie - model.ties.data()), weight_count_);
    }
    tied.count = weight_count_ - tied.first;
  }
  place_all(/*frozen=*/false);
  trained_count_ = weight_count_;
  place_all(/*frozen=*/true);
  gradient_count_ = weight_count_;
  for (size_t t = 0; t < tied_.size(); ++t) {
    TiedParameters& tied = tied_[t];
    const bool crosses = uses_here[t] < static_cast<int>(model.ties[t].uses.size());
    for (int use = 1; tied.count > 0 && use < uses_here[t]; ++use) {
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
    std::vector<bool>& aparts = apart_.emplace_back();
    for (const ParameterSpec& parameter : model.layers[l].parameters) {
      Place& here = places[parameter.name];
      offsets.push_back(here.weight);
      aparts.push_back(apart.count(parameter.name) > 0);
      const int use = here.uses++;
      if (parameter.frozen) {
        gradients.push_back(aparts.back() ? 0 : here.weight);
        if (use > 0) continue;
        (aparts.back() ? apart_slices_ : kept_slices_).push_back(SliceOf(parameter, here.weight));
        continue;
      }
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
      slices.push_back(SliceOf(parameter, here.weight));
      owners.push_back(here.tie >= 0 ? model.ties[here.tie].owner() : l);
    }
  }
}

}  // namespace penstock
