#include "planner/dawnpiper/stage_memory.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "planner/graph/limits.h"

namespace penstock {
namespace {

// Recomputed runs are tried with these shares of the stage's saved bytes: 1, 1/2, 1/4, ...
constexpr int kRunSizes = 9;

// Joins recomputed neighbours into runs, as tensors are added in any order.
class RestoredRuns {
 public:
  explicit RestoredRuns(int nodes) : other_end_(nodes, -1), bytes_(nodes, 0) {}

  // Returns the bytes of the run that `node` would be in.
  double BytesWith(int node, double bytes) const {
    double sum = bytes;
    if (Has(node - 1)) sum += bytes_[node - 1];
    if (Has(node + 1)) sum += bytes_[node + 1];
    return sum;
  }
  void Add(int node, double bytes) {
    const double sum = BytesWith(node, bytes);
    const int first = Has(node - 1) ? other_end_[node - 1] : node;
    const int last = Has(node + 1) ? other_end_[node + 1] : node;
    other_end_[node] = node;
    other_end_[first] = last;
    other_end_[last] = first;
    bytes_[first] = bytes_[last] = sum;
    most_ = std::max(most_, sum);
  }
  double most() const { return most_; }

 private:
  bool Has(int node) const {
    return node >= 0 && node < static_cast<int>(other_end_.size()) && other_end_[node] >= 0;
  }

  std::vector<int> other_end_;  // right at the ends of a run; -1: not recomputed
  std::vector<double> bytes_;   // likewise, of the run
  double most_ = 0;
};

}  // namespace

std::vector<StagePlace> PlacesOf1F1B(int stages, const MemoryRule& rule, double memory_bytes) {
  std::vector<StagePlace> places;
  for (int place = 0; place < stages; ++place) {
    const int in_flight = std::min(stages - place, rule.in_flight_max);
    double versions = 1;
    if (rule.versions == KeptVersions::kInFlight) versions = in_flight;
    if (rule.versions == KeptVersions::kTwo) versions = std::min(2, in_flight);
    places.push_back({.memory_bytes = memory_bytes, .in_flight = in_flight, .versions = versions});
  }
  return places;
}

int StageCharge1F1B::Count(TensorUse use) const {
  return static_cast<int>(std::count(tensors.begin(), tensors.end(), use));
}

StageMemory::StageMemory(const NodeChain& chain, MemoryModel model)
    : chain_(chain), model_(std::move(model)) {
  const auto sums = [&](auto value) {
    std::vector<double> list = {0};
    for (const ChainNode& node : chain) list.push_back(list.back() + value(node));
    return list;
  };
  work_s_ = sums([](const ChainNode& node) { return node.work_s(); });
  forward_s_ = sums([](const ChainNode& node) { return node.forward_s; });
  weight_bytes_ = sums([](const ChainNode& node) { return node.weight_bytes; });
  state_bytes_ = sums([](const ChainNode& node) { return node.state_bytes; });
  saved_bytes_ = sums([](const ChainNode& node) { return node.saved_bytes; });
}

double StageMemory::LinkS(int cut, int place) const {
  if (model_.link_bytes_per_second.empty()) return 0;
  return chain_[cut - 1].boundary_bytes / model_.link_bytes_per_second[place];
}

double StageMemory::BytesOfAllKept(int first, int end, double in_flight, double versions) const {
  return versions * (weight_bytes_[end] - weight_bytes_[first]) + state_bytes_[end] -
         state_bytes_[first] +
         in_flight * (InputBytes(first) + saved_bytes_[end] - saved_bytes_[first]);
}

double StageMemory::BytesOfAllKept(int first, int end, int place) const {
  const StagePlace& at = model_.places[place];
  return BytesOfAllKept(first, end, at.in_flight, at.versions);
}

StageCharge1F1B StageMemory::Charge(int first, int end, int place,
                                    std::vector<TensorUse> tensors) const {
  const StagePlace& at = model_.places[place];
  double work_s = WorkS(first, end);
  double swapped_bytes = 0;
  double run_bytes = 0;
  double restored_bytes = 0;
  double bytes = BytesOfAllKept(first, end, place);
  for (int node = first; node < end; ++node) {
    const double saved = chain_[node].saved_bytes;
    const TensorUse use = tensors[node - first];
    run_bytes = use == TensorUse::kRecomputed ? run_bytes + saved : 0;
    restored_bytes = std::max(restored_bytes, run_bytes);
    if (use == TensorUse::kRecomputed) {
      work_s += chain_[node].forward_s;
      bytes -= at.in_flight * saved;
    } else if (use == TensorUse::kSwapped) {
      swapped_bytes += saved;
      bytes -= (at.in_flight - std::min(at.in_flight, kSwapCopies)) * saved;
    }
  }
  StageCharge1F1B charge = {.memory_bytes = bytes + restored_bytes, .tensors = std::move(tensors)};
  if (charge.memory_bytes > at.memory_bytes) return charge;
  charge.seconds = work_s / at.speed;
  if (swapped_bytes > 0) {
    charge.seconds = std::max(charge.seconds, swapped_bytes / model_.host_bytes_per_second);
  }
  return charge;
}

StageCharge1F1B StageMemory::Choose(int first, int end, int place) const {
  const int nodes = end - first;
  StageCharge1F1B kept = Charge(first, end, place, std::vector<TensorUse>(nodes));
  if (kept.fits() || model_.choice == TensorChoice::kNone) return kept;
  StageCharge1F1B best =
      Charge(first, end, place, std::vector<TensorUse>(nodes, TensorUse::kRecomputed));
  if (model_.choice == TensorChoice::kWholeStage) return best;
  StageCharge1F1B other = ChoosePerTensor(first, end, place);
  return other.seconds < best.seconds ? other : best;
}

// The nodes with a saved tensor, whose recomputing costs least for each byte first.
struct StageMemory::Order {
  std::vector<int> nodes;
};

StageCharge1F1B StageMemory::ChoosePerTensor(int first, int end, int place) const {
  Order order;
  for (int node = first; node < end; ++node) {
    if (chain_[node].saved_bytes > 0) order.nodes.push_back(node);
  }
  std::stable_sort(order.nodes.begin(), order.nodes.end(), [&](int a, int b) {
    return chain_[a].forward_s * chain_[b].saved_bytes <
           chain_[b].forward_s * chain_[a].saved_bytes;
  });
  StageCharge1F1B best;
  const double saved = saved_bytes_[end] - saved_bytes_[first];
  for (int size = 0; size <= kRunSizes; ++size) {
    // The last size is none: only swaps.
    const double run_bytes_max = size == kRunSizes ? 0 : saved / (1 << size) * (1 + kMargin);
    for (const bool swaps_first : {true, false}) {
      if (swaps_first && model_.host_bytes_per_second == 0) continue;
      StageCharge1F1B charge = Charge(
          first, end, place, FreeBytes(first, end, place, order, run_bytes_max, swaps_first));
      if (!charge.fits()) continue;
      KeepWhatFits(first, end, place, charge);
      if (charge.seconds < best.seconds) best = std::move(charge);
    }
  }
  return best;
}

// Takes the cheapest uses until the stage fits: swaps that its work hides, if these come first, of the tensors that are
// dearest to recompute; then what costs least for each byte that it frees.
std::vector<TensorUse> StageMemory::FreeBytes(int first, int end, int place, const Order& order,
                                              double run_bytes_max, bool swaps_first) const {
  const StagePlace& at = model_.places[place];
  std::vector<TensorUse> uses(end - first);
  RestoredRuns runs(end - first);
  double bytes = BytesOfAllKept(first, end, place);
  const auto lacks = [&] { return bytes + runs.most() > at.memory_bytes; };
  const int copies_freed = at.in_flight - std::min(at.in_flight, kSwapCopies);
  const bool swaps = model_.host_bytes_per_second > 0 && copies_freed > 0;
  const auto swap = [&](int node) {
    uses[node - first] = TensorUse::kSwapped;
    bytes -= copies_freed * chain_[node].saved_bytes;
  };
  double hidden_bytes = WorkS(first, end) / at.speed * model_.host_bytes_per_second;
  for (size_t i = order.nodes.size(); swaps && swaps_first && i-- > 0 && lacks();) {
    const int node = order.nodes[i];
    if (chain_[node].saved_bytes > hidden_bytes) continue;
    hidden_bytes -= chain_[node].saved_bytes;
    swap(node);
  }
  for (size_t i = 0; i < order.nodes.size() && lacks(); ++i) {
    const int node = order.nodes[i];
    const ChainNode& of = chain_[node];
    if (uses[node - first] != TensorUse::kKept) continue;
    const bool may_recompute = runs.BytesWith(node - first, of.saved_bytes) <= run_bytes_max;
    const double recompute_s = of.forward_s / at.speed / (at.in_flight * of.saved_bytes);
    const double swap_s = swaps ? 1 / (model_.host_bytes_per_second * copies_freed) : kInfinity;
    if (may_recompute && (recompute_s <= swap_s || !swaps)) {
      uses[node - first] = TensorUse::kRecomputed;
      bytes -= at.in_flight * of.saved_bytes;
      runs.Add(node - first, of.saved_bytes);
    } else if (swaps) {
      swap(node);
    }
  }
  return uses;
}

// Keeps again what was freed too much, the dearest first. A look costs a walk through the stage, so tensors are left alone that
// have no room unless a longer run breaks in two.
void StageMemory::KeepWhatFits(int first, int end, int place, StageCharge1F1B& charge) const {
  std::vector<int> nodes;
  for (int node = first; node < end; ++node) {
    if (charge.tensors[node - first] == TensorUse::kRecomputed) nodes.push_back(node);
  }
  std::stable_sort(nodes.begin(), nodes.end(),
                   [&](int a, int b) { return chain_[a].forward_s > chain_[b].forward_s; });
  const StagePlace& at = model_.places[place];
  for (const int node : nodes) {
    const double more_bytes = (at.in_flight - 1) * chain_[node].saved_bytes;
    if (charge.memory_bytes + more_bytes > at.memory_bytes) continue;
    std::vector<TensorUse> uses = charge.tensors;
    uses[node - first] = TensorUse::kKept;
    StageCharge1F1B other = Charge(first, end, place, std::move(uses));
    if (other.fits() && other.seconds <= charge.seconds) charge = std::move(other);
  }
}

}  // namespace penstock
