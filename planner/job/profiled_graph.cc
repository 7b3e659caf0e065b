#include "planner/job/profiled_graph.h"

#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "job/profile/model_profile.h"

namespace penstock {

namespace {

double StashBytes(const v1::SizeProfile& size) {
  int64_t bytes = 0;
  for (const v1::NodeMemory& node : size.nodes()) bytes += node.stash_bytes();
  return static_cast<double>(bytes);
}

// Adds who reads what.
void AddValues(const v1::ModelProfile& profile, int64_t samples, ProfiledGraph& profiled) {
  LayerGraph& graph = profiled.graph;
  std::map<std::string, int> places;
  for (int i = 0; i < profile.layers_size(); ++i) places[profile.layers(i).layer()] = i;
  for (int i = 0; i < profile.layers_size(); ++i) {
    const v1::ProfiledLayer& layer = profile.layers(i);
    for (const v1::ProfiledValue& value : layer.values()) {
      const auto bytes = static_cast<double>(value.sample_bytes() * samples);
      graph.nodes[i].activation_bytes += bytes;
      int from = i;
      if (layer.values_size() > 1) {
        from = static_cast<int>(graph.nodes.size());
        graph.nodes.push_back({.id = absl::StrCat(layer.layer(), " #", from - profiled.layers),
                               .description = "value",
                               .activation_bytes = bytes});
        profiled.memory.emplace_back();
        graph.edges.push_back({i, from});
      }
      for (const std::string& reader : value.readers()) {
        graph.edges.push_back({from, places.at(reader)});
      }
    }
  }
}

}  // namespace

absl::StatusOr<ProfiledGraph> GraphOfProfile(const v1::ModelProfile& profile, int64_t samples) {
  PENSTOCK_ASSIGN_OR_RETURN(const v1::DeviceTimes times, DeviceTimesOf(profile, samples));
  ProfiledGraph profiled = {.layers = profile.layers_size()};
  for (int i = 0; i < profile.layers_size(); ++i) {
    const v1::ProfiledLayer& layer = profile.layers(i);
    const v1::ShapeProfile& shape = ShapeOf(profile, layer);
    const v1::PassTimes& passes = times.layers(i).times();
    // The bytes that a microbatch leaves are in proportion to the samples.
    const v1::SizeProfile& largest = *shape.sizes().rbegin();
    const double share = static_cast<double>(samples) / static_cast<double>(largest.samples());
    profiled.graph.nodes.push_back(
        {.id = layer.layer(),
         .description = layer.shape(),
         .forward_s = passes.forward_ms() * 1e-3,
         .backward_s = (passes.backward_input_ms() + passes.backward_weight_ms()) * 1e-3,
         .parameter_bytes = static_cast<double>(shape.gradient_bytes())});
    profiled.memory.push_back(
        {.weight_bytes = static_cast<double>(shape.weight_bytes()),
         .state_bytes = static_cast<double>(shape.gradient_bytes() + shape.optimizer_bytes()),
         .stash_bytes = StashBytes(largest) * share});
  }
  AddValues(profile, samples, profiled);
  return profiled;
}

}  // namespace penstock
