// StageMemory: what a stage of a chain takes in time and memory at its place in a 1F1B pipeline, and which of its tensors it
// keeps so that it fits.
//
// At place x of S (from 0) a stage has k = S - x microbatches in flight, or all of a step if these are fewer, and keeps
//
//   v W + state + k input + k kept + r swapped + restored
//
// bytes: v versions of its weights W; its input of each microbatch, from which it can make everything else; each kept
// tensor k times; each swapped one r = min(k, kSwapCopies) times, since one copy is in use while another leaves or comes
// back; and the most bytes of recomputed tensors that are there at once, those of the longest run of neighbours,
// because a run is made from the tensor before it for one microbatch at a time. A stage that recomputes all it has is one run:
// what the runtime does (schedule/recompute.h).
//
// It takes, for a microbatch, the longer of its work with the forwards that are made again, and the copying of its swapped
// tensors, which goes each way beside the work: what the work hides of that is free.
//
// Plain values and pure functions.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/types/span.h"
#include "planner/dawnpiper/node_chain.h"
#include "planner/graph/placement.h"

namespace penstock {

inline constexpr int kSwapCopies = 2;

// The worker and the share of the pipeline at one place.
struct StagePlace {
  double speed = 1.0;
  double memory_bytes = std::numeric_limits<double>::infinity();
  int in_flight = 1;
  double versions = 1.0;
};

// Returns the places of a 1F1B pipeline of equal workers, with at most `in_flight_max` microbatches in flight.
std::vector<StagePlace> PlacesOf1F1B(int stages, const MemoryRule& rule, double memory_bytes);

enum class TensorUse : uint8_t { kKept, kRecomputed, kSwapped };

enum class TensorChoice : uint8_t {
  kNone,        // everything is kept
  kWholeStage,  // everything, or nothing but the input, is kept: what a job can say today
  kPerTensor,   // each by itself
};

struct MemoryModel {
  std::vector<StagePlace> places;  // by stage
  TensorChoice choice = TensorChoice::kPerTensor;
  double host_bytes_per_second =
      0;  // of copies to the host's memory, each way; 0: nothing is swapped
  std::vector<double>
      link_bytes_per_second;  // by stage but the last: to the next one; empty: links take no time
};

struct StageCharge1F1B {
  double seconds = std::numeric_limits<double>::infinity();  // infinite: it does not fit
  double memory_bytes = 0;
  std::vector<TensorUse> tensors;  // by node of the stage

  bool fits() const { return seconds < std::numeric_limits<double>::infinity(); }
  int Count(TensorUse use) const;
};

// Charges stages of one chain, which it copies sums of. `chain` must outlive it.
class StageMemory {
 public:
  // REQUIRES: the chain has a node; each place's numbers are positive.
  StageMemory(const NodeChain& chain, MemoryModel model);

  const MemoryModel& model() const { return model_; }
  int nodes() const { return static_cast<int>(chain_.size()); }
  int stages() const { return static_cast<int>(model_.places.size()); }

  // All below are of the nodes from `first` up to, not including, `end`.

  double WorkS(int first, int end) const { return work_s_[end] - work_s_[first]; }
  // Returns whether a stage may end in front of node `cut`.
  bool MayCut(int cut) const { return chain_[cut - 1].may_end_stage; }
  // Returns the seconds of the link behind stage `place` if it ends at `cut`.
  double LinkS(int cut, int place) const;
  // Returns what the stage needs if it keeps everything. `in_flight` and `versions` may be means over several places.
  double BytesOfAllKept(int first, int end, double in_flight, double versions) const;
  double BytesOfAllKept(int first, int end, int place) const;

  // Charges given uses, by node of the stage; it fits if it has the memory.
  StageCharge1F1B Charge(int first, int end, int place, std::vector<TensorUse> tensors) const;
  // Chooses uses with which the stage fits, by their cost for each byte that they free.
  StageCharge1F1B Choose(int first, int end, int place) const;

 private:
  struct Order;

  StageCharge1F1B ChoosePerTensor(int first, int end, int place) const;
  std::vector<TensorUse> FreeBytes(int first, int end, int place, const Order& order,
                                   double run_bytes_max, bool swaps_first) const;
  void KeepWhatFits(int first, int end, int place, StageCharge1F1B& charge) const;
  double InputBytes(int first) const { return first == 0 ? 0 : chain_[first - 1].boundary_bytes; }

  const NodeChain& chain_;
  const MemoryModel model_;
  // Sums by node over those before it.
  std::vector<double> work_s_;
  std::vector<double> forward_s_;
  std::vector<double> weight_bytes_;
  std::vector<double> state_bytes_;
  std::vector<double> saved_bytes_;
};

}  // namespace penstock
