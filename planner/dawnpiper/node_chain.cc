#include "planner/dawnpiper/node_chain.h"

#include <utility>

#include "planner/graph/cuts.h"

namespace penstock {

GraphChain ChainOfGraph(const LayerGraph& graph, const std::vector<LayerMemory>& memory) {
  const SortedGraph sorted = SortGraph(graph);
  GraphChain chain = {.node_of = sorted.node_of};
  std::vector<uint64_t> prefix(sorted.size() / 64 + 1);
  for (int position = 0; position < sorted.size(); ++position) {
    SetBit(prefix.data(), position);
    const int node = sorted.node_of[position];
    chain.nodes.push_back({.forward_s = graph.nodes[node].forward_s,
                           .backward_s = graph.nodes[node].backward_s,
                           .weight_bytes = memory[node].weight_bytes,
                           .state_bytes = memory[node].state_bytes,
                           .saved_bytes = memory[node].stash_bytes,
                           .boundary_bytes = LiveBytes(sorted, prefix.data())});
  }
  return chain;
}

}  // namespace penstock
