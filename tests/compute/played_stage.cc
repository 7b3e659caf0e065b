#include "tests/compute/played_stage.h"

#include <gtest/gtest.h>

#include <utility>

#include "base/check.h"
#include "compute/buffer_pool.h"

namespace penstock {

Terms::Terms(const PlannedModel& model, DType crossing)
    : model_(model), is_rounded_(model.graph.values(), false) {
  if (crossing != DType::kBf16) return;
  const ModelGraph& graph = model.graph;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    for (const int input : graph.nodes[n].inputs) {
      if (graph.is_port(input)) continue;
      if (graph.LayerOfNode(graph.NodeOf(input)) != graph.LayerOfNode(static_cast<int>(n))) {
        is_rounded_[input] = true;
      }
    }
  }
}

int Terms::Rounded(int term) {
  if (IsRounded(term)) return term;
  const int rounded = Number({kRounded, term, 0});
  rounded_.insert(rounded);
  return rounded;
}

int Terms::Value(int value) {
  const ModelGraph& graph = model_.graph;
  const bool passes = !graph.is_port(value) && model_.needs[graph.NodeOf(value)].passes_input;
  const int made = passes ? Value(graph.nodes[graph.NodeOf(value)].inputs[0]) : Made(value);
  return is_rounded_[value] ? Rounded(made) : made;
}

int Terms::Gradient(int value, int first_node) {
  const ModelGraph& graph = model_.graph;
  const auto known = gradients_.find({value, first_node});
  if (known != gradients_.end()) return known->second;
  int sum = -1;
  for (int n = static_cast<int>(graph.nodes.size()) - 1; n >= first_node; --n) {
    const Node& node = graph.nodes[n];
    for (int i = static_cast<int>(node.inputs.size()) - 1; i >= 0; --i) {
      if (node.inputs[i] != value) continue;
      const int more = model_.PassesGradient(n, i) ? FullGradient(graph.ValueOf(n)) : Written(n, i);
      sum = sum < 0 ? more : Sum(sum, more);
      if (is_rounded_[value]) sum = Rounded(sum);
    }
  }
  PENSTOCK_CHECK(sum >= 0);
  gradients_[{value, first_node}] = sum;
  return sum;
}

PlayedMemory::Place PlayedMemory::Take(int64_t size_bytes) {
  const int64_t bytes = size_bytes == 0 ? 0 : BufferPool::BlockBytes(size_bytes);
  blocks_.push_back({.bytes = bytes, .holders = 1});
  bytes_ += bytes;
  bytes_peak_ = std::max(bytes_peak_, bytes_);
  return {static_cast<int>(blocks_.size()) - 1, 0};
}

PlayedMemory::Place PlayedMemory::Share(const Place& from, int64_t offset) {
  ++blocks_[from.block].holders;
  return {from.block, from.offset + offset};
}

void PlayedMemory::Give(Place& place) {
  PENSTOCK_CHECK(place);
  Block& block = blocks_[place.block];
  if (--block.holders == 0) {
    bytes_ -= block.bytes;
    block.contents.clear();
  }
  place = {};
}

void PlayedMemory::Write(const Place& place, int64_t size_bytes, int term) {
  Block& block = blocks_[place.block];
  EXPECT_LE(place.offset + size_bytes, block.bytes) << "written behind the end";
  std::erase_if(block.contents, [&](const auto& entry) {
    return entry.first < place.offset + size_bytes &&
           place.offset < entry.first + entry.second.size_bytes;
  });
  block.contents[place.offset] = {size_bytes, term};
}

int PlayedMemory::Read(const Place& place, int64_t size_bytes) const {
  const Block& block = blocks_[place.block];
  const auto found = block.contents.find(place.offset);
  if (found == block.contents.end() || found->second.size_bytes != size_bytes) return -1;
  return found->second.term;
}

PlayedStage::PlayedStage(PlayedMemory& memory, Terms& terms, const PlannedModel& model,
                         LayerRange layers, int64_t samples, DType crossing)
    : memory_(memory),
      terms_(terms),
      model_(model),
      layers_(layers),
      samples_(samples),
      crossing_(crossing),
      plan_(MakePassPlan(model.graph, layers, samples, model.NeedsOf(layers), crossing)),
      slots_(plan_.slots.size()) {}

PlayedStage::Place PlayedStage::Input() {
  return Received(ActivationsAt(model_.graph, layers_.first, samples_), plan_.input, false);
}

PlayedStage::Place PlayedStage::GradOutput() {
  return Received(GradientsAt(model_.graph, layers_.end(), samples_), plan_.grad_output, true);
}

PlayedStage::Place PlayedStage::Received(const Bundle& bundle, int slot, bool is_gradient) {
  EXPECT_EQ(bundle.elements == 0, slot < 0);
  if (slot < 0) return {};
  EXPECT_EQ(SizeOf(slot), bundle.elements * penstock::SizeOf(crossing_));
  const Place whole = memory_.Take(SizeOf(slot));
  const int behind = model_.graph.layers[layers_.end() - 1].end_node();
  for (const Bundle::Part& part : bundle.parts) {
    const int term = is_gradient ? terms_.Gradient(part.value, behind) : terms_.Value(part.value);
    memory_.Write({whole.block, PartOffset(part)}, PartBytes(part.value), term);
  }
  return whole;
}

int64_t PlayedStage::PartBytes(int value) const {
  return samples_ * model_.graph.TypeOf(value).elements() * penstock::SizeOf(crossing_);
}

int64_t PlayedStage::PartOffset(const Bundle::Part& part) const {
  return part.offset * penstock::SizeOf(crossing_);
}

void PlayedStage::ExpectBundle(const Bundle& bundle, const Place& whole, bool is_gradient) {
  EXPECT_EQ(bundle.elements == 0, !whole);
  if (!whole) return;
  EXPECT_EQ(whole.offset, 0) << "a view is sent";
  for (const Bundle::Part& part : bundle.parts) {
    const int term =
        is_gradient ? terms_.Gradient(part.value, plan_.first_node) : terms_.Value(part.value);
    EXPECT_EQ(memory_.Read({whole.block, PartOffset(part)}, PartBytes(part.value)), term)
        << (is_gradient ? "gradient" : "value") << " of " << model_.graph.NameOf(part.value);
  }
}

PlayedStage::Place PlayedStage::Forward(Place input, Keeps keeps) {
  if (input) slots_[plan_.input] = input;
  const Place output = PlayForward(keeps == Keeps::kForBackward ? plan_.forward
                                   : keeps == Keeps::kInput     ? plan_.forward_only
                                                                : plan_.evaluate,
                                   plan_.output);
  const Bundle bundle = ActivationsAt(model_.graph, layers_.end(), samples_);
  if (!bundle.empty()) {
    ExpectBundle(bundle, output, false);
  } else {
    EXPECT_EQ(memory_.Read(output, SizeOf(plan_.output)), terms_.Made(model_.graph.values() - 1));
  }
  return output;
}

void PlayedStage::Recompute() { PlayForward(plan_.recompute, -1); }

PlayedStage::Place PlayedStage::PlayForward(const std::vector<PassStep>& steps, int result) {
  // The caller holds the ports as long as the pass takes.
  std::vector<Place> ports;
  for (size_t i = 0; i < plan_.ports.size(); ++i) {
    const int slot = plan_.port_slots[i];
    ports.push_back(memory_.Take(SizeOf(slot)));
    memory_.Write(ports.back(), SizeOf(slot), terms_.Value(plan_.ports[i]));
    slots_[slot] = memory_.Share(ports.back(), 0);
  }
  const Place returned = Play(Pass::kF, steps, result);
  for (size_t i = 0; i < ports.size(); ++i) {
    EXPECT_EQ(memory_.Read(ports[i], SizeOf(plan_.port_slots[i])), terms_.Value(plan_.ports[i]))
        << "a port's data changed";
    memory_.Give(ports[i]);
  }
  std::vector<int> expected;
  for (int n = 0; n < plan_.node_count; ++n) {
    if (!NeedsAt(n).passes_input) expected.push_back(n);
  }
  EXPECT_EQ(ran_, expected);
  return returned;
}

PlayedStage::Place PlayedStage::BackwardInput(Place grad_output) {
  if (grad_output) slots_[plan_.grad_output] = grad_output;
  const Place returned = Play(Pass::kI, plan_.backward_input, plan_.grad_input);
  std::vector<int> expected;
  for (int n = plan_.node_count - 1; n >= 0; --n) {
    if (NodeAt(n).needs_gradient) expected.push_back(n);
  }
  EXPECT_EQ(ran_, expected);
  ExpectBundle(GradientsAt(model_.graph, layers_.first, samples_), returned, true);
  return returned;
}

void PlayedStage::BackwardWeight() {
  Play(Pass::kW, plan_.backward_weight, -1);
  std::vector<int> expected;
  for (int n = plan_.node_count - 1; n >= 0; --n) {
    if (NodeAt(n).trains()) expected.push_back(n);
  }
  EXPECT_EQ(ran_, expected);
}

std::vector<int> PlayedStage::Held() const {
  std::vector<int> held;
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot]) held.push_back(static_cast<int>(slot));
  }
  return held;
}

PlayedStage::Place PlayedStage::Play(Pass pass, const std::vector<PassStep>& steps, int result) {
  ran_.clear();
  Place returned;
  for (const PassStep& step : steps) {
    if (step.kind == PassStep::Kind::kRun) {
      RunNode(pass, step.node);
    } else if (step.kind == PassStep::Kind::kGive && step.slot == result) {
      std::swap(returned, slots_[step.slot]);
    } else {
      PlayStep(step);
    }
  }
  if (result < 0 || returned) return returned;
  // The stage needs it itself in a later pass.
  EXPECT_TRUE(slots_[result]) << "slot " << result << " is returned but not there";
  return slots_[result] ? memory_.Share(slots_[result], 0) : Place();
}

void PlayedStage::PlayStep(const PassStep& step) {
  Place& place = slots_[step.slot];
  const bool takes = step.kind == PassStep::Kind::kTake || step.kind == PassStep::Kind::kShare;
  ASSERT_EQ(static_cast<bool>(place), !takes)
      << "slot " << step.slot << (takes ? " is taken twice" : " is not there");
  if (step.from >= 0) {
    ASSERT_TRUE(slots_[step.from]) << "slot " << step.from << " is not there";
  }
  const auto read_from = [&] {
    const int term = memory_.Read(slots_[step.from], SizeOf(step.from));
    EXPECT_GE(term, 0) << "slot " << step.from << " holds nothing whole";
    return term;
  };
  switch (step.kind) {
    case PassStep::Kind::kTake:
      place = memory_.Take(SizeOf(step.slot));
      break;
    case PassStep::Kind::kShare:
      place = memory_.Share(slots_[step.from], step.offset);
      break;
    case PassStep::Kind::kCarry:
      Write(step.slot, terms_.Carried(plan_.first_node + step.node, step.buffer));
      break;
    case PassStep::Kind::kNarrow: {
      const int term = read_from();
      EXPECT_TRUE(terms_.IsRounded(term)) << "a cut changes slot " << step.from;
      memory_.Write({place.block, place.offset + step.offset}, SizeOf(step.from) / 2, term);
      break;
    }
    case PassStep::Kind::kWiden: {
      const Place& from = slots_[step.from];
      const int term = memory_.Read({from.block, from.offset + step.offset}, SizeOf(step.slot) / 2);
      EXPECT_GE(term, 0) << "slot " << step.from << " holds no such part";
      Write(step.slot, term);
      break;
    }
    case PassStep::Kind::kRound:
      Write(step.slot, terms_.Rounded(memory_.Read(place, SizeOf(step.slot))));
      break;
    case PassStep::Kind::kCopy:
      memory_.Write({place.block, place.offset + step.offset}, SizeOf(step.from), read_from());
      break;
    case PassStep::Kind::kAdd: {
      EXPECT_EQ(SizeOf(step.slot), SizeOf(step.from));
      const int own = memory_.Read(place, SizeOf(step.slot));
      EXPECT_GE(own, 0) << "slot " << step.slot << " holds nothing whole";
      Write(step.slot, terms_.Sum(own, read_from()));
      break;
    }
    case PassStep::Kind::kGive:
      memory_.Give(place);
      break;
    case PassStep::Kind::kRun:
      break;
  }
}

void PlayedStage::RunNode(Pass pass, int node) {
  ran_.push_back(node);
  if (pass == Pass::kF) {
    RunForward(node);
  } else if (pass == Pass::kI) {
    RunBackwardInput(node);
  } else {
    RunBackwardWeight(node);
  }
}

void PlayedStage::RunForward(int n) {
  const PassPlan::NodeSlots& slots = plan_.nodes[n];
  ExpectInputs(n, kAllInputs);
  for (size_t b = 0; b < NodeAt(n).buffers.size(); ++b) {
    ExpectRead(slots.states[b], terms_.Carried(plan_.first_node + n, static_cast<int>(b)), "state");
  }
  if (slots.stash >= 0) Write(slots.stash, TermOfBlock(n, Terms::Block::kStash));
  if (slots.kept >= 0) Write(slots.kept, TermOfBlock(n, Terms::Block::kKept));
  Write(slots.output, terms_.Made(model_.graph.ValueOf(plan_.first_node + n)));
}

void PlayedStage::RunBackwardInput(int n) {
  const PassPlan::NodeSlots& slots = plan_.nodes[n];
  const TapeNeeds& needs = NeedsAt(n);
  const int output = model_.graph.ValueOf(plan_.first_node + n);
  const bool is_loss = NodeAt(n).op->is_loss();
  EXPECT_EQ(slots.grad_output < 0, is_loss);
  if (!is_loss)
    ExpectRead(slots.grad_output, terms_.FullGradient(output), "gradient of the output");
  ExpectInputs(n, needs.inputs_for_input);
  if (needs.output_for_input) ExpectRead(slots.output, terms_.Value(output), "output");
  ExpectBlock(n, slots.stash, Terms::Block::kStash, needs.stash_bytes);
  ExpectBlock(n, slots.kept, Terms::Block::kKept, needs.kept_bytes);
  if (needs.weight_stash_bytes > 0) {
    Write(slots.weight_stash, TermOfBlock(n, Terms::Block::kWeightStash));
  }
  for (size_t i = 0; i < NodeAt(n).inputs.size(); ++i) {
    const bool writes = model_.graph.NeedsGradient(NodeAt(n).inputs[i]) &&
                        !model_.PassesGradient(plan_.first_node + n, i);
    const int slot = slots.grad_inputs[i];
    EXPECT_EQ(slot >= 0, writes) << "gradient of input " << i << " of " << NodeAt(n).name;
    if (slot >= 0) Write(slot, terms_.Written(plan_.first_node + n, static_cast<int>(i)));
  }
}

void PlayedStage::RunBackwardWeight(int n) {
  const PassPlan::NodeSlots& slots = plan_.nodes[n];
  const TapeNeeds& needs = NeedsAt(n);
  ExpectInputs(n, needs.inputs_for_weight);
  ExpectBlock(n, slots.kept, Terms::Block::kKept, needs.kept_bytes);
  ExpectBlock(n, slots.weight_stash, Terms::Block::kWeightStash, needs.weight_stash_bytes);
  if (needs.grad_output_for_weight) {
    const int output = model_.graph.ValueOf(plan_.first_node + n);
    ExpectRead(slots.grad_output, terms_.FullGradient(output), "gradient of the output, in W,");
  }
}

void PlayedStage::Write(int slot, int term) {
  ASSERT_GE(slot, 0);
  ASSERT_TRUE(slots_[slot]) << "slot " << slot << " is written but not there";
  memory_.Write(slots_[slot], SizeOf(slot), term);
}

void PlayedStage::ExpectRead(int slot, int term, const char* what) {
  ASSERT_GE(slot, 0) << what;
  ASSERT_TRUE(slots_[slot]) << what << " is read but not there";
  EXPECT_EQ(memory_.Read(slots_[slot], SizeOf(slot)), term) << what << " is not what is there";
}

void PlayedStage::ExpectInputs(int n, InputSet read) {
  for (size_t i = 0; i < NodeAt(n).inputs.size(); ++i) {
    if ((read >> i & 1) == 0) continue;
    SCOPED_TRACE(testing::Message() << NodeAt(n).name << ", input " << i);
    ExpectRead(plan_.nodes[n].inputs[i], terms_.Value(NodeAt(n).inputs[i]), "input");
  }
}

void PlayedStage::ExpectBlock(int n, int slot, Terms::Block block, int64_t size_bytes) {
  EXPECT_EQ(slot >= 0, size_bytes > 0);
  if (slot >= 0) ExpectRead(slot, TermOfBlock(n, block), "block");
}

}  // namespace penstock
