#include "planner/graph/ideals.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"

namespace penstock {
namespace {

using Set = std::vector<uint64_t>;

// Puts every cut of one layer more than `set` into `next`.
void Extend(const SortedGraph& graph, const uint64_t* set, int words,
            absl::flat_hash_set<Set>& next) {
  int first_gap = 0;
  while (first_gap < words && set[first_gap] == ~uint64_t{0}) ++first_gap;
  for (int position = first_gap * 64; position < graph.size(); ++position) {
    if (HasBit(set, position)) continue;
    const std::vector<int>& producers = graph.producers[position];
    if (!std::all_of(producers.begin(), producers.end(),
                     [&](int producer) { return HasBit(set, producer); })) {
      continue;
    }
    Set extended(set, set + words);
    SetBit(extended.data(), position);
    next.insert(std::move(extended));
  }
}

}  // namespace

absl::StatusOr<CutFamily> EnumerateIdeals(const SortedGraph& graph, const IdealLimits& limits) {
  NodeSets sets(graph.size());
  std::vector<double> live_bytes;
  bool complete = true;

  std::vector<Set> level = {Set(sets.words())};  // all kept cuts of one number of layers
  std::vector<double> level_bytes = {0};
  for (int layers = 0; layers <= graph.size(); ++layers) {
    if (static_cast<int64_t>(sets.size() + level.size()) > limits.ideals_max) {
      return absl::ResourceExhaustedError(absl::StrCat("the graph of ", graph.size(),
                                                       " layers has more than ", limits.ideals_max,
                                                       " cuts; keep fewer of each size"));
    }
    for (const Set& set : level) sets.Add(set);
    live_bytes.insert(live_bytes.end(), level_bytes.begin(), level_bytes.end());

    absl::flat_hash_set<Set> next;
    for (const Set& set : level) Extend(graph, set.data(), sets.words(), next);
    // The level is sorted, so that nothing depends on the order of a hash table.
    level.assign(next.begin(), next.end());
    std::sort(level.begin(), level.end());
    level_bytes.resize(level.size());
    for (size_t at = 0; at < level.size(); ++at) {
      level_bytes[at] = LiveBytes(graph, level[at].data());
    }
    if (level.size() <= static_cast<size_t>(limits.per_size_max)) continue;
    complete = false;
    std::vector<size_t> best(level.size());
    std::iota(best.begin(), best.end(), size_t{0});
    std::stable_sort(best.begin(), best.end(),
                     [&](size_t a, size_t b) { return level_bytes[a] < level_bytes[b]; });
    best.resize(limits.per_size_max);
    std::vector<Set> kept;
    std::vector<double> kept_bytes;
    for (const size_t at : best) {
      kept.push_back(std::move(level[at]));
      kept_bytes.push_back(level_bytes[at]);
    }
    level = std::move(kept);
    level_bytes = std::move(kept_bytes);
  }
  return CutFamily(graph, sets, live_bytes, complete);
}

}  // namespace penstock
