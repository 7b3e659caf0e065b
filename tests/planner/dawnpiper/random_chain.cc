#include "tests/planner/dawnpiper/random_chain.h"

#include <algorithm>
#include <limits>

namespace penstock {

NodeChain RandomNodes(RandomStream& random, int nodes) {
  NodeChain chain;
  for (int node = 0; node < nodes; ++node) {
    const double forward_s = 1.0 + static_cast<double>(random.Below(20));
    chain.push_back({.forward_s = forward_s,
                     .backward_s = forward_s * (1.0 + random.Uniform()),
                     .weight_bytes = static_cast<double>(random.Below(10)),
                     .saved_bytes = static_cast<double>(random.Below(30)),
                     .boundary_bytes = static_cast<double>(random.Below(8))});
    chain.back().state_bytes = 2 * chain.back().weight_bytes;
  }
  return chain;
}

MemoryModel RandomModel(RandomStream& random, const NodeChain& chain, int stages, double tight) {
  MemoryModel model = {.places = PlacesOf1F1B(stages, {.versions = KeptVersions::kOne},
                                              std::numeric_limits<double>::infinity())};
  const StageMemory memory(chain, model);
  const int nodes = static_cast<int>(chain.size());
  double fullest = 0;
  for (int place = 0; place < stages; ++place) {
    fullest = std::max(fullest, memory.BytesOfAllKept(nodes * place / stages,
                                                      nodes * (place + 1) / stages, place));
  }
  for (StagePlace& place : model.places) place.memory_bytes = fullest * (1.0 - 0.8 * tight);
  // As much as a stage saves in the time of a mean node, give or take a factor of two.
  model.host_bytes_per_second = 0.5 + 2.0 * random.Uniform();
  return model;
}

}  // namespace penstock
