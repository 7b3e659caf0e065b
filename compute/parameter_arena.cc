#include "compute/parameter_arena.h"

#include <map>
#include <set>
#include <string>

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
  const std::set<std::string> tied = model.tied_names();
  // The use of a name on this stage that is nearest to where we are.
  struct Uses {
    int64_t weight = 0;
    int64_t gradient = 0;
  };
  std::map<std::string, Uses> uses;
  const auto place = [&](const ParameterSpec& parameter) {
    uses[parameter.name] = {weight_count_, weight_count_};
    weight_count_ += Padded(parameter.size());
  };
  for (const int end : {0, model.size() - 1}) {
    if (end < layers.first || end >= layers.end()) continue;
    for (const ParameterSpec& parameter : model.layers[end].parameters) {
      if (tied.count(parameter.name) > 0 && uses.count(parameter.name) == 0) place(parameter);
    }
  }
  tied_count_ = weight_count_;
  std::set<std::string> met;
  struct LaterUse {
    size_t layer, parameter;
    int64_t count;
    std::string name;
    bool at_end;  // of the model's last layer
  };
  std::vector<LaterUse> later;
  for (int l = layers.first; l < layers.end(); ++l) {
    const LayerSpec& layer = model.layers[l];
    std::vector<int64_t>& offsets = weights_.emplace_back();
    std::vector<ParameterSlice>& slices = slices_.emplace_back();
    for (const ParameterSpec& parameter : layer.parameters) {
      if (uses.count(parameter.name) == 0) place(parameter);
      const int64_t offset = uses[parameter.name].weight;
      offsets.push_back(offset);
      if (!met.insert(parameter.name).second) {
        later.push_back(
            {weights_.size() - 1, offsets.size() - 1, parameter.size(), parameter.name,
             layers.first == 0 && l == model.size() - 1 && tied.count(parameter.name) > 0});
        continue;
      }
      ParameterSlice& slice = slices.emplace_back(
          ParameterSlice{offset, parameter.size(), parameter.decays, IdentityOf(parameter.name)});
      if (parameter.maps_features) {
        slice.rows = parameter.shape[0];
        slice.columns = parameter.size() / parameter.shape[0];
      }
    }
  }
  gradients_ = weights_;
  gradient_count_ = weight_count_;
  std::vector<Use> inside;
  std::set<std::string> joined;  // the last layer's first use to the first layer's
  for (const LaterUse& use : later) {
    gradients_[use.layer][use.parameter] = gradient_count_;
    Uses& before = uses[use.name];
    if (use.at_end && joined.insert(use.name).second) {
      later_uses_.push_back({gradient_count_, before.weight, use.count});
    } else {
      inside.push_back({gradient_count_, before.gradient, use.count});
    }
    before.gradient = gradient_count_;
    gradient_count_ += Padded(use.count);
  }
  later_uses_.insert(later_uses_.end(), inside.begin(), inside.end());
}

}  // namespace penstock
