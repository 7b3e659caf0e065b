#include "planner/graph/cuts.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/check.h"

namespace penstock {

SortedGraph SortGraph(const LayerGraph& graph) {
  absl::StatusOr<std::vector<int>> order = TopologicalOrder(graph);
  PENSTOCK_CHECK(order.ok());
  SortedGraph sorted{.node_of = *std::move(order)};
  const int nodes = sorted.size();
  std::vector<int> position_of(nodes);
  for (int position = 0; position < nodes; ++position) {
    position_of[sorted.node_of[position]] = position;
  }
  const Neighbours neighbours = NeighboursOf(graph);
  for (const int node : sorted.node_of) {
    sorted.work_s.push_back(graph.nodes[node].work_s());
    sorted.activation_bytes.push_back(graph.nodes[node].activation_bytes);
    sorted.parameter_bytes.push_back(graph.nodes[node].parameter_bytes);
    sorted.producers.emplace_back();
    for (const int producer : neighbours.producers[node]) {
      sorted.producers.back().push_back(position_of[producer]);
    }
    sorted.consumers.emplace_back();
    for (const int consumer : neighbours.consumers[node]) {
      sorted.consumers.back().push_back(position_of[consumer]);
    }
  }
  sorted.first_source = position_of[SourcesOf(graph).front()];
  return sorted;
}

double LiveBytes(const SortedGraph& graph, const uint64_t* set) {
  double bytes = 0;
  for (int position = 0; position < graph.size(); ++position) {
    if (!HasBit(set, position)) continue;
    const std::vector<int>& consumers = graph.consumers[position];
    const bool crosses = std::any_of(consumers.begin(), consumers.end(),
                                     [&](int consumer) { return !HasBit(set, consumer); });
    if (crosses) bytes += graph.activation_bytes[position];
  }
  return bytes;
}

CutFamily::CutFamily(const SortedGraph& graph, const NodeSets& sets,
                     const std::vector<double>& live_bytes, bool complete)
    : words_(sets.words()), complete_(complete), node_of_(graph.node_of) {
  // Sums over positions in one order never fall when a layer is added, rounding included, so that
  // sorting by work, then by size, puts every cut behind those inside it.
  std::vector<double> work_s(sets.size());
  std::vector<double> parameter_bytes(sets.size());
  std::vector<int> layers(sets.size());
  for (size_t set = 0; set < sets.size(); ++set) {
    for (int position = 0; position < graph.size(); ++position) {
      if (!HasBit(sets[set], position)) continue;
      work_s[set] += graph.work_s[position];
      parameter_bytes[set] += graph.parameter_bytes[position];
      ++layers[set];
    }
  }
  std::vector<size_t> sorted(sets.size());
  std::iota(sorted.begin(), sorted.end(), size_t{0});
  std::sort(sorted.begin(), sorted.end(), [&](size_t a, size_t b) {
    if (work_s[a] != work_s[b]) return work_s[a] < work_s[b];
    if (layers[a] != layers[b]) return layers[a] < layers[b];
    return std::lexicographical_compare(sets[a], sets[a] + words_, sets[b], sets[b] + words_);
  });
  const auto same = [&](size_t a, size_t b) {
    return std::equal(sets[a], sets[a] + words_, sets[b]);
  };
  sorted.erase(std::unique(sorted.begin(), sorted.end(), same), sorted.end());

  for (const size_t set : sorted) {
    Append(sets[set],
           {work_s[set], work_s[set], parameter_bytes[set], parameter_bytes[set], live_bytes[set]});
  }
  PENSTOCK_CHECK(!sorted.empty() && layers[sorted.front()] == 0 &&
                 layers[sorted.back()] == graph.size());
}

void CutFamily::Append(const uint64_t* set, const Slice& costs) {
  work_s_.push_back(costs.least_work_s);
  most_work_s_.push_back(costs.most_work_s);
  parameter_bytes_.push_back(costs.least_parameter_bytes);
  most_parameter_bytes_.push_back(costs.most_parameter_bytes);
  live_bytes_.push_back(costs.least_live_bytes);
  bits_.insert(bits_.end(), set, set + words_);
  int gap = 0;
  while (gap < words_ && set[gap] == ~uint64_t{0}) ++gap;
  first_gap_.push_back(gap);
  int end = words_;
  while (end > 0 && set[end - 1] == 0) --end;
  end_.push_back(end);
}

CutFamily CutFamily::OfSlices(const std::vector<Slice>& slices) {
  CutFamily family;
  for (const Slice& slice : slices) family.Append(nullptr, slice);
  return family;
}

CutFamily CutFamily::Subfamily(const std::vector<int>& cuts) const {
  CutFamily family;
  family.words_ = words_;
  family.node_of_ = node_of_;
  for (const int cut : cuts) {
    family.Append(bits_.data() + static_cast<size_t>(cut) * words_,
                  {work_s_[cut], most_work_s_[cut], parameter_bytes_[cut],
                   most_parameter_bytes_[cut], live_bytes_[cut]});
  }
  return family;
}

std::vector<int> CutFamily::NodesBetween(int inner, int outer) const {
  std::vector<int> nodes;
  for (int word = 0; word < words_; ++word) {
    uint64_t left = bits_[static_cast<size_t>(outer) * words_ + word] &
                    ~bits_[static_cast<size_t>(inner) * words_ + word];
    for (; left != 0; left &= left - 1)
      nodes.push_back(node_of_[word * 64 + std::countr_zero(left)]);
  }
  return nodes;
}

CutFamily WithCuts(const SortedGraph& graph, const CutFamily& family, const NodeSets& more) {
  NodeSets sets = more;
  for (int cut = 0; cut < family.size(); ++cut) sets.Add(family.set(cut));
  std::vector<double> live_bytes(sets.size());
  for (size_t set = 0; set < sets.size(); ++set) live_bytes[set] = LiveBytes(graph, sets[set]);
  return CutFamily(graph, sets, live_bytes, family.complete());
}

}  // namespace penstock
