#include "planner/graph/layer_graph.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/status.h"

namespace penstock {
namespace {

absl::Status CheckAmount(const LayerNode& node, absl::string_view what, double value, double max) {
  if (std::isfinite(value) && value >= 0 && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "node ", node.id, ": ", what, " must be a number from 0 to ", max, ", got ", value));
}

}  // namespace

absl::Status CheckLayerNode(const LayerNode& node) {
  PENSTOCK_RETURN_IF_ERROR(CheckAmount(node, "forward time", node.forward_s, kLayerSecondsMax));
  PENSTOCK_RETURN_IF_ERROR(CheckAmount(node, "backward time", node.backward_s, kLayerSecondsMax));
  PENSTOCK_RETURN_IF_ERROR(
      CheckAmount(node, "activation size", node.activation_bytes, kLayerBytesMax));
  return CheckAmount(node, "parameter size", node.parameter_bytes, kLayerBytesMax);
}

namespace {

absl::Status CheckNodes(const LayerGraph& graph) {
  if (graph.nodes.empty()) {
    return absl::InvalidArgumentError("the graph has no node; a model has at least one layer");
  }
  if (graph.nodes.size() > kLayerNodesMax) {
    return absl::InvalidArgumentError(absl::StrCat("the graph has ", graph.nodes.size(),
                                                   " nodes, at most ", kLayerNodesMax,
                                                   " are planned; profile coarser layers"));
  }
  absl::flat_hash_set<absl::string_view> ids;
  for (size_t index = 0; index < graph.nodes.size(); ++index) {
    const LayerNode& node = graph.nodes[index];
    if (node.id.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("node number ", index + 1, " has no id"));
    }
    if (!ids.insert(node.id).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("node ", node.id, " is there twice; ids must be unique"));
    }
    PENSTOCK_RETURN_IF_ERROR(CheckLayerNode(node));
  }
  return absl::OkStatus();
}

absl::Status CheckEdges(const LayerGraph& graph) {
  if (graph.edges.size() > kLayerEdgesMax) {
    return absl::InvalidArgumentError(absl::StrCat("the graph has ", graph.edges.size(),
                                                   " edges, at most ", kLayerEdgesMax,
                                                   " are planned; profile coarser layers"));
  }
  const int nodes = static_cast<int>(graph.nodes.size());
  for (const LayerEdge& edge : graph.edges) {
    for (const int end : {edge.from, edge.to}) {
      if (end < 0 || end >= nodes) {
        return absl::InvalidArgumentError(absl::StrCat("the edge ", edge.from, " -> ", edge.to,
                                                       " names node ", end, " of a graph with ",
                                                       nodes, " nodes"));
      }
    }
  }
  return absl::OkStatus();
}

// Returns some cycle among the nodes that have `unread` producers left: each such node has one among them, so going
// from producer to producer must come round.
std::string CycleAmong(const LayerGraph& graph, const Neighbours& neighbours,
                       const std::vector<int>& unread) {
  int node = static_cast<int>(
      std::find_if(unread.begin(), unread.end(), [](int count) { return count > 0; }) -
      unread.begin());
  std::vector<int> path;
  std::vector<bool> seen(graph.nodes.size());
  while (!seen[node]) {
    seen[node] = true;
    path.push_back(node);
    const std::vector<int>& producers = neighbours.producers[node];
    node = *std::find_if(producers.begin(), producers.end(),
                         [&](int producer) { return unread[producer] > 0; });
  }
  std::vector<std::string> names;
  for (auto at = std::find(path.begin(), path.end(), node); at != path.end(); ++at) {
    names.push_back(graph.nodes[*at].id);
  }
  names.push_back(names.front());
  std::reverse(names.begin(), names.end());
  constexpr size_t kNamesMax = 12;
  if (names.size() > kNamesMax) {
    names.erase(names.begin() + kNamesMax / 2, names.end() - kNamesMax / 2);
    names.insert(names.begin() + kNamesMax / 2, "...");
  }
  return absl::StrJoin(names, " -> ");
}

}  // namespace

absl::Status CheckLayerGraph(const LayerGraph& graph) {
  PENSTOCK_RETURN_IF_ERROR(CheckNodes(graph));
  PENSTOCK_RETURN_IF_ERROR(CheckEdges(graph));
  return TopologicalOrder(graph).status();
}

Neighbours NeighboursOf(const LayerGraph& graph) {
  const int nodes = static_cast<int>(graph.nodes.size());
  Neighbours neighbours{std::vector<std::vector<int>>(nodes), std::vector<std::vector<int>>(nodes)};
  absl::flat_hash_set<std::pair<int, int>> seen;
  for (const LayerEdge& edge : graph.edges) {
    PENSTOCK_CHECK(edge.from >= 0 && edge.from < nodes && edge.to >= 0 && edge.to < nodes);
    if (!seen.insert({edge.from, edge.to}).second) continue;
    neighbours.producers[edge.to].push_back(edge.from);
    neighbours.consumers[edge.from].push_back(edge.to);
  }
  return neighbours;
}

std::vector<int> SourcesOf(const LayerGraph& graph) {
  std::vector<bool> reads(graph.nodes.size());
  for (const LayerEdge& edge : graph.edges) reads[edge.to] = true;
  std::vector<int> sources;
  for (size_t node = 0; node < reads.size(); ++node) {
    if (!reads[node]) sources.push_back(static_cast<int>(node));
  }
  return sources;
}

std::vector<int> SinksOf(const LayerGraph& graph) {
  std::vector<bool> is_read(graph.nodes.size());
  for (const LayerEdge& edge : graph.edges) is_read[edge.from] = true;
  std::vector<int> sinks;
  for (size_t node = 0; node < is_read.size(); ++node) {
    if (!is_read[node]) sinks.push_back(static_cast<int>(node));
  }
  return sinks;
}

absl::StatusOr<std::vector<int>> TopologicalOrder(const LayerGraph& graph) {
  const Neighbours neighbours = NeighboursOf(graph);
  std::vector<int> unread(graph.nodes.size());
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (size_t node = 0; node < unread.size(); ++node) {
    unread[node] = static_cast<int>(neighbours.producers[node].size());
    if (unread[node] == 0) ready.push(static_cast<int>(node));
  }
  std::vector<int> order;
  order.reserve(graph.nodes.size());
  while (!ready.empty()) {
    const int node = ready.top();
    ready.pop();
    order.push_back(node);
    for (const int consumer : neighbours.consumers[node]) {
      if (--unread[consumer] == 0) ready.push(consumer);
    }
  }
  if (order.size() < graph.nodes.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the graph has a cycle, so no layer of it can run first: ",
                     CycleAmong(graph, neighbours, unread)));
  }
  return order;
}

LayerGraph WithoutNodes(const LayerGraph& graph, const std::vector<bool>& removed) {
  LayerGraph left;
  std::vector<int> new_index(graph.nodes.size(), -1);
  for (size_t node = 0; node < graph.nodes.size(); ++node) {
    if (removed[node]) continue;
    new_index[node] = static_cast<int>(left.nodes.size());
    left.nodes.push_back(graph.nodes[node]);
  }
  for (const LayerEdge& edge : graph.edges) {
    if (removed[edge.from] || removed[edge.to]) continue;
    left.edges.push_back({new_index[edge.from], new_index[edge.to]});
  }
  return left;
}

LayerGraph ChainGraph(std::vector<LayerNode> nodes) {
  LayerGraph graph{std::move(nodes), {}};
  for (int node = 1; node < static_cast<int>(graph.nodes.size()); ++node) {
    graph.edges.push_back({node - 1, node});
  }
  return graph;
}

double TotalWorkS(const LayerGraph& graph) {
  double total = 0;
  for (const LayerNode& node : graph.nodes) total += node.work_s();
  return total;
}

double TotalParameterBytes(const LayerGraph& graph) {
  double total = 0;
  for (const LayerNode& node : graph.nodes) total += node.parameter_bytes;
  return total;
}

}  // namespace penstock
