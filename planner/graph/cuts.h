// CutFamily: the places where a layer graph may be cut into stages.
//
// A cut is a set of layers closed downwards: with a layer, all that it reads from. The layers inside
// run on earlier stages, those outside on later ones; two cuts, one inside the other, bound a stage.
// The output of every layer inside that has a reader outside crosses the cut, once each, however far behind the reader
// is: a tensor that skips stages is forwarded by them and charged on every cut it crosses.
//
// Cuts of a chain are its prefixes. A graph with branches has more, often too many to list (planner/graph/ideals.h), so
// a family may hold only some of them.
//
// Plain values; thread-compatible.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "planner/graph/layer_graph.h"

namespace penstock {

// A layer graph renumbered by a topological order: position p reads positions below p only.
struct SortedGraph {
  std::vector<int> node_of;  // by position: the index in the layer graph
  std::vector<double> work_s;
  std::vector<double> activation_bytes;
  std::vector<double> parameter_bytes;
  std::vector<std::vector<int>> producers;
  std::vector<std::vector<int>> consumers;
  int first_source = 0;  // the position of the layer graph's first source

  int size() const { return static_cast<int>(node_of.size()); }
};
// REQUIRES: CheckLayerGraph(graph) is OK.
SortedGraph SortGraph(const LayerGraph& graph);

// Holds many sets of positions of one graph, as bits.
class NodeSets {
 public:
  explicit NodeSets(int positions) : words_((positions + 63) / 64) {}

  int words() const { return words_; }
  size_t size() const { return bits_.size() / words_; }
  const uint64_t* operator[](size_t set) const { return bits_.data() + set * words_; }
  void Add(const uint64_t* set) { bits_.insert(bits_.end(), set, set + words_); }
  void Add(const std::vector<uint64_t>& set) { Add(set.data()); }
  void Clear() { bits_.clear(); }

 private:
  int words_;
  std::vector<uint64_t> bits_;
};

inline bool HasBit(const uint64_t* set, int position) {
  return (set[position / 64] >> (position % 64)) & 1;
}
inline void SetBit(uint64_t* set, int position) {
  set[position / 64] |= uint64_t{1} << (position % 64);
}

// Returns the bytes that cross the cut `set`, by the rule above.
double LiveBytes(const SortedGraph& graph, const uint64_t* set);

class CutFamily {
 public:
  // Takes cuts and the bytes that cross each; repeated cuts count once. `complete` says that no cut of the graph is
  // missing. REQUIRES: the empty set and the set of all positions are among them.
  CutFamily(const SortedGraph& graph, const NodeSets& sets, const std::vector<double>& live_bytes,
            bool complete);

  // Cuts are numbered so that a cut comes behind those inside it: 0 is the empty one, size() - 1 that
  // of all layers. Work and parameters are those inside; work never falls with the number.
  int size() const { return static_cast<int>(work_s_.size()); }
  double work_s(int cut) const { return work_s_[cut]; }
  double parameter_bytes(int cut) const { return parameter_bytes_[cut]; }
  double live_bytes(int cut) const { return live_bytes_[cut]; }
  bool complete() const { return complete_; }

  // These two return the costs of the stage between two cuts. REQUIRES: Inside(from, to).
  double StageWorkS(int from, int to) const {
    return std::max(0.0, work_s_[to] - most_work_s_[from]);
  }
  double StageParameterBytes(int from, int to) const {
    return std::max(0.0, parameter_bytes_[to] - most_parameter_bytes_[from]);
  }
  double most_work_s(int cut) const { return most_work_s_[cut]; }

  // Returns whether every layer inside `inner` is inside `outer`. REQUIRES: inner < outer.
  bool Inside(int inner, int outer) const {
    // Nothing can be missing before the outer set's first gap, and nothing is asked for behind the inner set's end;
    // that leaves a word or two.
    const uint64_t* a = bits_.data() + static_cast<size_t>(inner) * words_;
    const uint64_t* b = bits_.data() + static_cast<size_t>(outer) * words_;
    for (int word = first_gap_[outer]; word < end_[inner]; ++word) {
      if ((a[word] & ~b[word]) != 0) return false;
    }
    return true;
  }

  // Describes the cuts in a slice of work: their least and most work and parameters, and the least bytes that cross any
  // of them. Every slice counts as inside every later one, so a stage between two costs no more than between any two
  // cuts in them. REQUIRES: work ascends; the first slice is that of the empty cut alone, the last that of the whole
  // graph.
  struct Slice {
    double least_work_s = 0;
    double most_work_s = 0;
    double least_parameter_bytes = 0;
    double most_parameter_bytes = 0;
    double least_live_bytes = 0;
  };
  static CutFamily OfSlices(const std::vector<Slice>& slices);

  // Returns the family of the named cuts alone. REQUIRES: `cuts` ascends from 0 to size() - 1.
  CutFamily Subfamily(const std::vector<int>& cuts) const;

  // Returns the layers inside, as bits by position. It is not for slices.
  const uint64_t* set(int cut) const { return bits_.data() + static_cast<size_t>(cut) * words_; }

  // Returns the layers between two cuts, as indices into the layer graph, in topological order. REQUIRES: Inside(inner,
  // outer).
  std::vector<int> NodesBetween(int inner, int outer) const;

 private:
  CutFamily() = default;
  void Append(const uint64_t* set, const Slice& costs);

  int words_ = 0;
  bool complete_ = false;
  std::vector<int> node_of_;
  std::vector<double> work_s_;
  std::vector<double> most_work_s_;  // the same, but for slices
  std::vector<double> parameter_bytes_;
  std::vector<double> most_parameter_bytes_;
  std::vector<double> live_bytes_;
  std::vector<uint64_t> bits_;
  std::vector<int> first_gap_;  // by cut: the first word with a layer outside
  std::vector<int> end_;        // by cut: one past the last word with a layer inside
};

// Returns the cuts of a family and `more`. REQUIRES: `more` holds cuts of the same graph; the family's live bytes are
// true ones.
CutFamily WithCuts(const SortedGraph& graph, const CutFamily& family, const NodeSets& more);

}  // namespace penstock
