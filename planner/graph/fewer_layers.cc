#include "planner/graph/fewer_layers.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/graph/ideals.h"

namespace penstock {
namespace {

double BytesOfAll(const LayerGraph& graph) {
  double bytes = 0;
  for (const LayerNode& node : graph.nodes) bytes += node.activation_bytes;
  return bytes;
}

double PartOf(double part, double all) { return all > 0 ? part / all : 0.0; }

void Erase(std::vector<int>& nodes, int node) {
  nodes.erase(std::remove(nodes.begin(), nodes.end(), node), nodes.end());
}

void AddOnce(std::vector<int>& nodes, int node) {
  if (std::find(nodes.begin(), nodes.end(), node) == nodes.end()) nodes.push_back(node);
}

// A graph from which layers are left out, one after the other.
class ShrinkingGraph {
 public:
  explicit ShrinkingGraph(const LayerGraph& graph)
      : work_s_(TotalWorkS(graph)),
        parameter_bytes_(TotalParameterBytes(graph)),
        activation_bytes_(BytesOfAll(graph)),
        graph_(graph),
        neighbours_(NeighboursOf(graph)),
        is_left_out_(graph.nodes.size()) {}

  int64_t size() const { return std::count(is_left_out_.begin(), is_left_out_.end(), false); }
  int edges() const { return static_cast<int>(graph_.edges.size()); }

  // Returns the node whose loss weakens a bound least; -1 if none can go.
  int Least() const {
    if (size() == 1) return -1;
    int least = -1;
    double least_loss = std::numeric_limits<double>::infinity();
    for (int node = 0; node < static_cast<int>(graph_.nodes.size()); ++node) {
      if (is_left_out_[node] || !CanGo(node)) continue;
      const double loss = LossOf(node);
      if (loss >= least_loss) continue;
      least = node;
      least_loss = loss;
    }
    return least;
  }

  void LeaveOut(int node) {
    const double factor = ShrinksTo(node);
    for (const int producer : neighbours_.producers[node]) {
      graph_.nodes[producer].activation_bytes *= factor;
      Erase(neighbours_.consumers[producer], node);
      for (const int consumer : neighbours_.consumers[node]) {
        AddOnce(neighbours_.consumers[producer], consumer);
        AddOnce(neighbours_.producers[consumer], producer);
      }
    }
    for (const int consumer : neighbours_.consumers[node]) {
      Erase(neighbours_.producers[consumer], node);
    }
    is_left_out_[node] = true;
  }

  LayerGraph Rest() const {
    LayerGraph rest = {.nodes = graph_.nodes};
    for (int node = 0; node < static_cast<int>(graph_.nodes.size()); ++node) {
      if (is_left_out_[node]) continue;
      for (const int consumer : neighbours_.consumers[node]) rest.edges.push_back({node, consumer});
    }
    return WithoutNodes(rest, is_left_out_);
  }

 private:
  bool CanGo(int node) const {
    return neighbours_.producers[node].size() <= 1 || neighbours_.consumers[node].size() <= 1;
  }

  // By which factor the outputs that the node reads shrink without it.
  double ShrinksTo(int node) const {
    if (neighbours_.consumers[node].empty()) return 1.0;  // nothing crosses a cut for its sake
    double read = 0;
    for (const int producer : neighbours_.producers[node]) {
      read += graph_.nodes[producer].activation_bytes;
    }
    const double written = graph_.nodes[node].activation_bytes;
    return read > written ? written / read : 1.0;
  }

  double LossOf(int node) const {
    double loss = PartOf(graph_.nodes[node].work_s(), work_s_) +
                  PartOf(graph_.nodes[node].parameter_bytes, parameter_bytes_);
    const double lost = 1 - ShrinksTo(node);
    for (const int producer : neighbours_.producers[node]) {
      // What this node alone reads is best cut behind it, where it has fewer bytes.
      if (neighbours_.consumers[producer].size() == 1) continue;
      loss += PartOf(lost * graph_.nodes[producer].activation_bytes, activation_bytes_);
    }
    return loss;
  }

  const double work_s_, parameter_bytes_, activation_bytes_;  // of the whole graph
  LayerGraph graph_;                                          // whose bytes shrink
  Neighbours neighbours_;
  std::vector<bool> is_left_out_;
};

}  // namespace

LayerGraph WithoutLayer(const LayerGraph& graph, int node) {
  ShrinkingGraph shrinking(graph);
  shrinking.LeaveOut(node);
  return shrinking.Rest();
}

absl::StatusOr<ListedGraph> WithFewerLayers(const LayerGraph& graph, int64_t cuts_max,
                                            TimeBudget& budget) {
  constexpr int kTries = 40;
  ShrinkingGraph shrinking(graph);
  const int64_t at_once = shrinking.size() / kTries + 1;
  for (bool goes_on = true; goes_on;) {
    LayerGraph rest = shrinking.Rest();
    absl::StatusOr<CutFamily> family = EnumerateIdeals(SortGraph(rest), {.ideals_max = cuts_max});
    if (family.ok()) return ListedGraph{std::move(rest), *std::move(family)};
    goes_on = false;
    for (int64_t gone = 0; gone < at_once; ++gone) {
      if (budget.IsSpent(shrinking.size() + shrinking.edges())) {
        return absl::DeadlineExceededError("the time to leave out layers is over");
      }
      const int least = shrinking.Least();
      if (least < 0) break;
      shrinking.LeaveOut(least);
      goes_on = true;
    }
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("more than ", cuts_max, " cuts are left with ", shrinking.size(),
                   " layers, each of which reads several and is read by several"));
}

}  // namespace penstock
