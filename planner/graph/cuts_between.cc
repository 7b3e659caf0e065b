#include "planner/graph/cuts_between.h"

#include <algorithm>
#include <vector>

#include "planner/graph/cut_programme.h"

namespace penstock {
namespace {

// Holds the layers between two cuts as a graph of their own. Layers before them that are read here stand at its
// beginning, without work; one layer at its end stands for all behind.
class Between {
 public:
  Between(const SortedGraph& graph, const uint64_t* inner, const uint64_t* outer)
      : graph_(graph), inner_(inner), outer_(outer), index_of_(graph.size(), -1) {
    for (int position = 0; position < graph.size(); ++position) {
      if (HasBit(inner, position) && IsReadBehind(position)) Add(position);
    }
    before_ = between_.size();
    for (int position = 0; position < graph.size(); ++position) {
      if (!HasBit(inner, position) && HasBit(outer, position)) Add(position);
    }
    AddLayerBehind();
  }

  const SortedGraph& between() const { return between_; }

  // A layer before is always inside the cut and costs its bytes as long as something outside reads it. Charges are
  // relative to that cost when it counts as outside, with all its readers.
  CutCharges Charges(double weight) const {
    CutCharges charges{between_.parameter_bytes, between_.activation_bytes};
    for (double& bytes : charges.inside) bytes *= weight;
    for (int index = 0; index < before_; ++index) {
      charges.inside[index] = -between_.activation_bytes[index];
    }
    return charges;
  }

  // Returns the cut of the whole graph for `cut`.
  std::vector<uint64_t> Whole(const uint64_t* cut) const {
    std::vector<uint64_t> whole(inner_, inner_ + (graph_.size() + 63) / 64);
    for (int index = before_; index + 1 < between_.size(); ++index) {
      if (HasBit(cut, index)) SetBit(whole.data(), between_.node_of[index]);
    }
    return whole;
  }

 private:
  bool IsReadBehind(int position) const {
    const std::vector<int>& consumers = graph_.consumers[position];
    return std::any_of(consumers.begin(), consumers.end(),
                       [&](int consumer) { return !HasBit(inner_, consumer); });
  }

  void Add(int position) {
    const int index = between_.size();
    const bool is_before = HasBit(inner_, position);
    index_of_[position] = index;
    between_.node_of.push_back(position);
    between_.work_s.push_back(is_before ? 0 : graph_.work_s[position]);
    between_.activation_bytes.push_back(graph_.activation_bytes[position]);
    between_.parameter_bytes.push_back(is_before ? 0 : graph_.parameter_bytes[position]);
    between_.producers.emplace_back();
    between_.consumers.emplace_back();
    if (is_before) return;
    for (const int producer : graph_.producers[position]) Connect(index_of_[producer], index);
  }

  // Adds a layer that reads all that is read behind and all that nothing else reads, so that it comes last.
  void AddLayerBehind() {
    const int last = between_.size();
    between_.node_of.push_back(-1);
    between_.work_s.push_back(0);
    between_.activation_bytes.push_back(0);
    between_.parameter_bytes.push_back(0);
    between_.producers.emplace_back();
    between_.consumers.emplace_back();
    for (int index = 0; index < last; ++index) {
      const std::vector<int>& consumers = graph_.consumers[between_.node_of[index]];
      const bool is_read = std::any_of(consumers.begin(), consumers.end(),
                                       [&](int consumer) { return !HasBit(outer_, consumer); });
      if (!is_read && !between_.consumers[index].empty()) continue;
      if (!is_read) between_.activation_bytes[index] = 0;
      Connect(index, last);
    }
  }

  void Connect(int producer, int consumer) {
    between_.producers[consumer].push_back(producer);
    between_.consumers[producer].push_back(consumer);
  }

  const SortedGraph& graph_;
  const uint64_t* inner_;
  const uint64_t* outer_;
  std::vector<int> index_of_;  // by position of the graph; -1: not here
  SortedGraph between_;
  int before_ = 0;
};

}  // namespace

std::optional<NodeSets> LightCutsBetween(const SortedGraph& graph, const uint64_t* inner,
                                         const uint64_t* outer, int units, double weight,
                                         TimeBudget& budget) {
  const Between between(graph, inner, outer);
  CutProgramme programme(between.between(), units, budget);
  const std::optional<NodeSets> light = programme.LightCuts(between.Charges(weight));
  if (!light.has_value()) return std::nullopt;
  NodeSets cuts(graph.size());
  for (size_t cut = 0; cut < light->size(); ++cut) cuts.Add(between.Whole((*light)[cut]));
  return cuts;
}

}  // namespace penstock
