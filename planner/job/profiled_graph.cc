#include "planner/job/profiled_graph.h"

#include <utility>

#include "base/status.h"
#include "job/profile/model_profile.h"

namespace penstock {

namespace {

double StashBytes(const v1::SizeProfile& size) {
  int64_t bytes = 0;
  for (const v1::NodeMemory& node : size.nodes()) bytes += node.stash_bytes();
  return static_cast<double>(bytes);
}

}  // namespace

absl::StatusOr<ProfiledGraph> GraphOfProfile(const v1::ModelProfile& profile, int64_t samples) {
  PENSTOCK_ASSIGN_OR_RETURN(const v1::DeviceTimes times, DeviceTimesOf(profile, samples));
  std::vector<LayerNode> nodes;
  ProfiledGraph profiled;
  for (int i = 0; i < profile.layers_size(); ++i) {
    const v1::ProfiledLayer& layer = profile.layers(i);
    const v1::ShapeProfile& shape = ShapeOf(profile, layer);
    const v1::PassTimes& passes = times.layers(i).times();
    // The bytes of an output are in proportion to the samples.
    const v1::SizeProfile& largest = *shape.sizes().rbegin();
    const double share = static_cast<double>(samples) / static_cast<double>(largest.samples());
    nodes.push_back(
        {.id = layer.layer(),
         .description = layer.shape(),
         .forward_s = passes.forward_ms() * 1e-3,
         .backward_s = (passes.backward_input_ms() + passes.backward_weight_ms()) * 1e-3,
         .activation_bytes = static_cast<double>(largest.output_bytes()) * share,
         .parameter_bytes = static_cast<double>(shape.gradient_bytes())});
    profiled.memory.push_back(
        {.weight_bytes = static_cast<double>(shape.weight_bytes()),
         .state_bytes = static_cast<double>(shape.gradient_bytes() + shape.optimizer_bytes()),
         .stash_bytes = StashBytes(largest) * share});
  }
  profiled.graph = ChainGraph(std::move(nodes));
  return profiled;
}

}  // namespace penstock
