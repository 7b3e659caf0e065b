// PlayedStage: walks the steps of a plan without kernels, on memory that knows what lies in it.
//
// Every read is compared with what the model's definition says must be there: values by name, gradients as sums in the
// order of the readers, from the last to the first; where values cross in bf16, rounded so that cuts change no bit. What
// is read too late, overwritten, added in another order, taken or given twice fails the test. Tensors go from stage to
// stage by reference, as between stages of one process.
//
// Thread-compatible.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "compute/pass_plan.h"
#include "tests/compute/random_graph.h"

namespace penstock {

// What lies in memory, as terms: equal numbers stand for equal bits.
class Terms {
 public:
  // `crossing`: as in MakePassPlan.
  Terms(const PlannedModel& model, DType crossing);

  // What kernels make, and what their readers see.
  int Made(int value) { return Number({kValues, value, 0}); }
  int Value(int value);
  int Rounded(int term);
  bool IsRounded(int term) const { return rounded_.count(term) > 0; }
  // What passes of `node` leave for one another.
  enum class Block : uint8_t { kStash, kKept, kWeightStash };
  int BlockOf(int node, Block block) { return Number({kBlocks, node, static_cast<int>(block)}); }
  int Carried(int node, int buffer) { return Number({kCarried, node, buffer}); }
  // What the kernels of `node` write for an input.
  int Written(int node, int input) { return Number({kWritten, node, input}); }
  int Sum(int a, int b) { return Number({kSum, std::min(a, b), std::max(a, b)}); }
  // The gradient of a value as far as it comes from the nodes from `first_node` on. REQUIRES: there is some.
  int Gradient(int value, int first_node);
  int FullGradient(int value) { return Gradient(value, 0); }

 private:
  enum Kind : int { kValues, kBlocks, kCarried, kWritten, kSum, kRounded };
  int Number(std::tuple<int, int, int> name) {
    return numbers_.emplace(name, static_cast<int>(numbers_.size())).first->second;
  }

  const PlannedModel& model_;
  std::vector<bool> is_rounded_;  // by value
  std::map<std::tuple<int, int, int>, int> numbers_;
  std::set<int> rounded_;  // terms
  std::map<std::pair<int, int>, int> gradients_;
};

// Memory of all stages: counted blocks, and the terms in them.
class PlayedMemory {
 public:
  struct Place {
    int block = -1;
    int64_t offset = 0;  // bytes
    explicit operator bool() const { return block >= 0; }
  };

  Place Take(int64_t size_bytes);
  Place Share(const Place& from, int64_t offset);
  void Give(Place& place);
  void Write(const Place& place, int64_t size_bytes, int term);
  // -1: nothing whole.
  int Read(const Place& place, int64_t size_bytes) const;
  int holders(const Place& place) const { return blocks_[place.block].holders; }

  int64_t bytes() const { return bytes_; }
  int64_t bytes_peak() const { return bytes_peak_; }

 private:
  struct Written {
    int64_t size_bytes = 0;
    int term = -1;
  };
  struct Block {
    int64_t bytes = 0;  // as a pool counts
    int holders = 0;
    std::map<int64_t, Written> contents;  // by offset
  };
  std::vector<Block> blocks_;
  int64_t bytes_ = 0;
  int64_t bytes_peak_ = 0;
};

class PlayedStage {
 public:
  using Place = PlayedMemory::Place;
  enum class Keeps : uint8_t { kForBackward, kInput, kNothing };

  // REQUIRES: the others outlive it.
  PlayedStage(PlayedMemory& memory, Terms& terms, const PlannedModel& model, LayerRange layers,
              int64_t samples, DType crossing = DType::kF32);

  const PassPlan& plan() const { return plan_; }
  // A tensor from the stage before, or behind; none where none comes.
  Place Input();
  Place GradOutput();

  // What they are given is the stage's, what they return the caller's.
  Place Forward(Place input, Keeps keeps);
  void Recompute();
  Place BackwardInput(Place grad_output);
  void BackwardWeight();
  // Slots that hold memory now.
  std::vector<int> Held() const;

 private:
  enum class Pass : uint8_t { kF, kI, kW };

  Place Received(const Bundle& bundle, int slot, bool is_gradient);
  void ExpectBundle(const Bundle& bundle, const Place& whole, bool is_gradient);
  Place PlayForward(const std::vector<PassStep>& steps, int result);
  Place Play(Pass pass, const std::vector<PassStep>& steps, int result);
  void PlayStep(const PassStep& step);
  void RunNode(Pass pass, int node);
  void RunForward(int node);
  void RunBackwardInput(int node);
  void RunBackwardWeight(int node);

  const Node& NodeAt(int local) const { return model_.graph.nodes[plan_.first_node + local]; }
  const TapeNeeds& NeedsAt(int local) const { return model_.needs[plan_.first_node + local]; }
  int64_t PartBytes(int value) const;
  int64_t PartOffset(const Bundle::Part& part) const;
  int64_t SizeOf(int slot) const { return plan_.slots[slot].size_bytes(); }
  void Write(int slot, int term);
  void ExpectRead(int slot, int term, const char* what);
  void ExpectInputs(int node, InputSet read);
  void ExpectBlock(int node, int slot, Terms::Block block, int64_t size_bytes);
  int TermOfBlock(int node, Terms::Block block) {
    return terms_.BlockOf(plan_.first_node + node, block);
  }

  PlayedMemory& memory_;
  Terms& terms_;
  const PlannedModel& model_;
  const LayerRange layers_;
  const int64_t samples_;
  const DType crossing_;
  const PassPlan plan_;
  std::vector<Place> slots_;
  std::vector<int> ran_;  // nodes, in this pass
};

}  // namespace penstock
