#include "planner/graph/antichain_states.h"

#include <algorithm>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"

namespace penstock {
namespace {

using Set = std::vector<uint64_t>;

class States {
 public:
  explicit States(const SortedGraph& graph)
      : graph_(graph), words_((graph.size() + 63) / 64), ancestors_(graph.size(), Set(words_)) {
    for (int position = 0; position < graph.size(); ++position) {
      for (const int producer : graph.producers[position]) {
        Unite(ancestors_[producer], ancestors_[position]);
        SetBit(ancestors_[position].data(), producer);
      }
    }
    for (int position = 0; position < graph.size(); ++position) {
      augmentation_.push_back(Augmentation(position));
    }
  }

  absl::StatusOr<CutFamily> Enumerate(int64_t states_max) const {
    NodeSets sets(graph_.size());
    std::vector<double> live_bytes;
    const auto add = [&](const Set& set) {
      sets.Add(set);
      live_bytes.push_back(Bytes(set));
    };
    add(Set(words_));
    absl::flat_hash_set<Set> seen;
    Set start(words_);
    SetBit(start.data(), graph_.first_source);
    std::vector<Set> left = {start};
    seen.insert(start);
    while (!left.empty()) {
      const Set state = std::move(left.back());
      left.pop_back();
      add(state);
      for (int position = 0; position < graph_.size(); ++position) {
        if (HasBit(state.data(), position) || !ReadsFrom(state, position)) continue;
        Set next = state;
        Unite(ancestors_[position], next);
        SetBit(next.data(), position);
        if (!seen.insert(next).second) continue;
        if (static_cast<int64_t>(seen.size()) > states_max) {
          return absl::ResourceExhaustedError(
              absl::StrCat("the graph of ", graph_.size(), " layers has more than ", states_max,
                           " antichain states; plan it with PlanStages, which bounds its work"));
        }
        left.push_back(std::move(next));
      }
    }
    Set all(words_);
    for (int position = 0; position < graph_.size(); ++position) SetBit(all.data(), position);
    if (!seen.contains(all)) {
      return absl::FailedPreconditionError(
          "PipeDream's states start at the first source and never reach some layers; plan with "
          "another model, or give the graph one source");
    }
    return CutFamily(graph_, sets, live_bytes, /*complete=*/false);
  }

 private:
  static void Unite(const Set& from, Set& to) {
    for (size_t word = 0; word < to.size(); ++word) to[word] |= from[word];
  }

  bool ReadsFrom(const Set& state, int position) const {
    const std::vector<int>& producers = graph_.producers[position];
    return std::any_of(producers.begin(), producers.end(),
                       [&](int producer) { return HasBit(state.data(), producer); });
  }

  // Returns the layer and those of its ancestors with a reader that is neither the layer nor an ancestor of it.
  Set Augmentation(int layer) const {
    Set augmentation(words_);
    SetBit(augmentation.data(), layer);
    for (int position = 0; position < layer; ++position) {
      if (!HasBit(ancestors_[layer].data(), position)) continue;
      const std::vector<int>& consumers = graph_.consumers[position];
      const bool is_read_elsewhere = std::any_of(
          consumers.begin(), consumers.end(),
          [&](int reader) { return reader != layer && !HasBit(ancestors_[layer].data(), reader); });
      if (is_read_elsewhere) SetBit(augmentation.data(), position);
    }
    return augmentation;
  }

  double Bytes(const Set& state) const {
    Set augmented(words_);
    for (int position = 0; position < graph_.size(); ++position) {
      if (!HasBit(state.data(), position)) continue;
      const std::vector<int>& consumers = graph_.consumers[position];
      const bool is_read_inside = std::any_of(consumers.begin(), consumers.end(), [&](int reader) {
        return HasBit(state.data(), reader);
      });
      if (!is_read_inside) Unite(augmentation_[position], augmented);
    }
    double bytes = 0;
    for (int position = 0; position < graph_.size(); ++position) {
      if (HasBit(augmented.data(), position)) bytes += graph_.activation_bytes[position];
    }
    return bytes;
  }

  const SortedGraph& graph_;
  const int words_;
  std::vector<Set> ancestors_;     // by position, without itself
  std::vector<Set> augmentation_;  // by position
};

}  // namespace

absl::StatusOr<CutFamily> AntichainStates(const SortedGraph& graph, int64_t states_max) {
  return States(graph).Enumerate(states_max);
}

}  // namespace penstock
