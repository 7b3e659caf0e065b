#include "compute/pass_plan.h"

#include <algorithm>

#include "base/check.h"

namespace penstock {
namespace {

using Kind = PassStep::Kind;
using Steps = std::vector<PassStep>;

bool Contains(InputSet set, size_t input) { return (set >> input & 1) != 0; }

class Planner {
 public:
  Planner(const ModelGraph& model, LayerRange layers, int64_t samples,
          const std::vector<TapeNeeds>& needs, DType crossing, StageEnds ends)
      : model_(model),
        layers_(layers),
        samples_(samples),
        needs_(needs),
        crossing_(crossing),
        has_cuts_(ends == StageEnds::kCuts),
        received_(has_cuts_ ? crossing : DType::kF32) {
    plan_.first_node = model.layers[layers.first].first_node;
    plan_.node_count = model.layers[layers.end() - 1].end_node() - plan_.first_node;
    PENSTOCK_CHECK(static_cast<int>(needs.size()) == plan_.node_count);
    plan_.nodes.resize(plan_.node_count);
    values_.resize(model.values(), -1);
    gradients_.resize(model.values());
    FindRounded();
  }

  PassPlan Plan() && {
    const Steps forward = Forward();
    const Steps backward_input = BackwardInput();
    const Steps backward_weight = BackwardWeight();
    // A forward whose output is not wanted again takes no bundle for it.
    Steps recompute(forward.begin(), forward.begin() + static_cast<int64_t>(bundle_begin_));
    // What was carried to F is there.
    std::erase_if(recompute, [&](const PassStep& step) { return IsState(step.slot); });

    std::vector<Steps> kept = {forward, backward_input, backward_weight};
    GiveAfterLastUse(kept, plan_.output);
    plan_.forward = std::move(kept[0]);
    plan_.backward_input = std::move(kept[1]);
    plan_.backward_weight = std::move(kept[2]);
    kept = {recompute, backward_input, backward_weight};
    GiveAfterLastUse(kept, -1);
    plan_.recompute = std::move(kept[0]);
    PENSTOCK_CHECK(kept[1].size() == plan_.backward_input.size());
    kept = {forward};
    GiveAfterLastUse(kept, plan_.output);
    plan_.evaluate = kept[0];
    plan_.forward_only = std::move(kept[0]);
    std::erase_if(plan_.forward_only, [&](const PassStep& step) {
      return step.kind == Kind::kGive && (step.slot == plan_.input || IsState(step.slot));
    });
    return std::move(plan_);
  }

 private:
  // Where the gradient of a value is, as far as it is added up.
  struct Gradient {
    int slot = -1;
    // Others read the same memory: another node, or W of the stage that sent it. A larger tensor was copied together
    // for us.
    bool shared = false;
    bool rounded = false;  // to what bf16 has
    bool view = false;     // of a larger tensor
  };

  int AddSlot(DType dtype, const Shape& shape) {
    plan_.slots.push_back({dtype, shape});
    return static_cast<int>(plan_.slots.size()) - 1;
  }
  int AddValueSlot(int value) {
    const ValueType& type = model_.TypeOf(value);
    const bool is_loss = !model_.is_port(value) && model_.nodes[model_.NodeOf(value)].op->is_loss();
    return AddSlot(type.dtype, is_loss ? Shape{1} : ShapeOf(type, samples_));
  }
  // -1 for nothing.
  int TakeBlock(int64_t size_bytes, Steps& steps) {
    if (size_bytes == 0) return -1;
    const int slot = AddSlot(DType::kU8, {size_bytes});
    steps.push_back({.kind = Kind::kTake, .slot = slot});
    return slot;
  }
  // Blocks for what is carried to a node, and what fills them.
  void TakeStates(int n, Steps& steps) {
    const std::vector<BufferSpec>& buffers = NodeAt(n).buffers;
    for (size_t b = 0; b < buffers.size(); ++b) {
      if (buffers[b].kind != BufferSpec::Kind::kCarried || buffers[b].in_place) continue;
      const int slot = AddSlot(DType::kF32, {samples_, buffers[b].size()});
      plan_.nodes[n].states[b] = slot;
      states_.push_back(slot);
      steps.push_back({.kind = Kind::kTake, .slot = slot});
      steps.push_back(
          {.kind = Kind::kCarry, .slot = slot, .node = n, .buffer = static_cast<int>(b)});
    }
  }
  bool IsState(int slot) const {
    return std::find(states_.begin(), states_.end(), slot) != states_.end();
  }
  const Node& NodeAt(int local) const { return model_.nodes[plan_.first_node + local]; }

  // Marks the values that cross from layer to layer in bf16.
  void FindRounded() {
    rounded_.resize(model_.values(), false);
    if (crossing_ != DType::kBf16) return;
    for (size_t layer = 0; layer < model_.layers.size(); ++layer) {
      const LayerSpec& spec = model_.layers[layer];
      for (int n = spec.first_node; n < spec.end_node(); ++n) {
        for (const int input : model_.nodes[n].inputs) {
          if (!model_.is_port(input) && model_.NodeOf(input) < spec.first_node)
            rounded_[input] = true;
        }
      }
    }
  }

  // The slot of a bundle that is received, and of its parts: the whole, or views, or memory of their own.
  template <typename SetPart>
  int Unpack(const Bundle& bundle, Steps& steps, SetPart set_part) {
    if (bundle.empty()) return -1;
    const int whole = AddSlot(received_, ShapeOf(model_, bundle, samples_));
    plan_.slots[whole].crosses = true;
    const bool widens = received_ == DType::kBf16;
    if (bundle.parts.size() == 1 && !widens) {
      set_part(bundle.parts.front().value, whole, false);
      return whole;
    }
    for (const Bundle::Part& part : bundle.parts) {
      const int slot = AddValueSlot(part.value);
      if (widens) steps.push_back({.kind = Kind::kTake, .slot = slot});
      steps.push_back({.kind = widens ? Kind::kWiden : Kind::kShare,
                       .slot = slot,
                       .from = whole,
                       .offset = part.offset * SizeOf(received_)});
      set_part(part.value, slot, !widens);
    }
    return whole;
  }

  Steps Forward() {
    Steps steps;
    plan_.input = Unpack(ActivationsAt(model_, layers_.first, samples_), steps,
                         [&](int value, int slot, bool) { values_[value] = slot; });
    FindPorts();
    for (int n = 0; n < plan_.node_count; ++n) {
      const Node& node = NodeAt(n);
      PassPlan::NodeSlots& slots = plan_.nodes[n];
      for (size_t i = 0; i < node.inputs.size(); ++i) slots.inputs[i] = values_[node.inputs[i]];
      slots.stash = TakeBlock(needs_[n].stash_bytes, steps);
      slots.kept = TakeBlock(needs_[n].kept_bytes, steps);
      TakeStates(n, steps);
      slots.output = AddValueSlot(model_.ValueOf(plan_.first_node + n));
      values_[model_.ValueOf(plan_.first_node + n)] = slots.output;
      const bool is_rounded = rounded_[model_.ValueOf(plan_.first_node + n)];
      if (!needs_[n].passes_input) {
        steps.push_back({.kind = Kind::kTake, .slot = slots.output});
        steps.push_back({.kind = Kind::kRun, .node = n});
      } else if (!is_rounded || rounded_[node.inputs[0]]) {
        steps.push_back({.kind = Kind::kShare, .slot = slots.output, .from = slots.inputs[0]});
        continue;
      } else {
        // Others read the input as it is.
        steps.push_back({.kind = Kind::kTake, .slot = slots.output});
        steps.push_back({.kind = Kind::kCopy, .slot = slots.output, .from = slots.inputs[0]});
      }
      if (is_rounded) steps.push_back({.kind = Kind::kRound, .slot = slots.output});
    }
    bundle_begin_ = steps.size();
    const Bundle bundle = ActivationsAt(model_, layers_.end(), samples_);
    if (!has_cuts_ && !bundle.empty()) return steps;
    const bool is_value = bundle.parts.size() == 1 && crossing_ == DType::kF32;
    plan_.output = bundle.empty() || is_value ? plan_.nodes[plan_.node_count - 1].output
                                              : Pack(bundle, values_, steps);
    plan_.slots[plan_.output].crosses = !bundle.empty();
    return steps;
  }

  void FindPorts() {
    for (int n = 0; n < plan_.node_count; ++n) {
      for (const int input : NodeAt(n).inputs) {
        if (model_.is_port(input)) plan_.ports.push_back(input);
      }
    }
    std::sort(plan_.ports.begin(), plan_.ports.end());
    plan_.ports.erase(std::unique(plan_.ports.begin(), plan_.ports.end()), plan_.ports.end());
    for (const int port : plan_.ports) {
      values_[port] = AddValueSlot(port);
      plan_.port_slots.push_back(values_[port]);
    }
  }

  // Copies the parts of a bundle together.
  int Pack(const Bundle& bundle, const std::vector<int>& parts, Steps& steps) {
    const int whole = AddSlot(crossing_, ShapeOf(model_, bundle, samples_));
    steps.push_back({.kind = Kind::kTake, .slot = whole});
    for (const Bundle::Part& part : bundle.parts) {
      steps.push_back({.kind = crossing_ == DType::kBf16 ? Kind::kNarrow : Kind::kCopy,
                       .slot = whole,
                       .from = parts[part.value],
                       .offset = part.offset * SizeOf(crossing_)});
    }
    return whole;
  }

  Steps BackwardInput() {
    Steps steps;
    const bool is_rounded = crossing_ == DType::kBf16;
    const Bundle behind = GradientsAt(model_, layers_.end(), samples_);
    const auto set_part = [&](int value, int slot, bool view) {
      // The whole of what came is read by W of its sender, too.
      const bool shared = has_cuts_ && received_ == DType::kF32 && !view;
      gradients_[value] = {slot, shared, is_rounded, view};
    };
    plan_.grad_output =
        has_cuts_ && behind.is_signal() ? AddSignal() : Unpack(behind, steps, set_part);
    for (int n = plan_.node_count - 1; n >= 0; --n) {
      if (NodeAt(n).needs_gradient) BackwardInputOf(n, steps);
    }
    const Bundle bundle = GradientsAt(model_, layers_.first, samples_);
    if (has_cuts_ && bundle.is_signal()) {
      plan_.grad_input = AddSignal();
      steps.push_back({.kind = Kind::kTake, .slot = plan_.grad_input});
    } else if (has_cuts_ && !bundle.empty()) {
      ReturnGradients(bundle, steps);
    }
    return steps;
  }

  void BackwardInputOf(int n, Steps& steps) {
    const Node& node = NodeAt(n);
    PassPlan::NodeSlots& slots = plan_.nodes[n];
    Gradient& of_output = gradients_[model_.ValueOf(plan_.first_node + n)];
    PENSTOCK_CHECK(of_output.slot >= 0 || node.op->is_loss());
    slots.grad_output = of_output.slot;
    slots.weight_stash = TakeBlock(needs_[n].weight_stash_bytes, steps);
    const InputSet passes = needs_[n].passes_gradient;
    int wanted = 0, passed = 0;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!model_.NeedsGradient(node.inputs[i])) continue;
      ++wanted;
      slots.grad_inputs[i] = AddValueSlot(node.inputs[i]);
      if (Contains(passes, i)) {
        ++passed;
        steps.push_back(
            {.kind = Kind::kShare, .slot = slots.grad_inputs[i], .from = of_output.slot});
      } else {
        steps.push_back({.kind = Kind::kTake, .slot = slots.grad_inputs[i]});
      }
    }
    PENSTOCK_CHECK(wanted > 0 || node.trains());  // OpKernels rely on it
    steps.push_back({.kind = Kind::kRun, .node = n});
    const bool is_shared =
        of_output.shared || passed > 1 || (needs_[n].grad_output_for_weight && node.trains());
    for (size_t i = node.inputs.size(); i-- > 0;) {
      if (slots.grad_inputs[i] < 0) continue;
      const bool passes_here = Contains(passes, i);
      AddGradient(node.inputs[i],
                  {slots.grad_inputs[i], passes_here && is_shared, passes_here && of_output.rounded,
                   passes_here && of_output.view},
                  steps);
      // Kernels are not asked to write what is shared.
      if (passes_here) slots.grad_inputs[i] = -1;
    }
  }

  void AddGradient(int value, Gradient more, Steps& steps) {
    Gradient& sum = gradients_[value];
    if (sum.slot < 0) {
      sum = more;
    } else {
      if (more.shared && !sum.shared) std::swap(sum, more);
      if (more.shared) more = CopyOf(value, more, steps);
      steps.push_back({.kind = Kind::kAdd, .slot = more.slot, .from = sum.slot});
      sum = more;
      sum.rounded = false;
    }
    if (!rounded_[value] || sum.rounded) return;
    if (sum.shared) sum = CopyOf(value, sum, steps);
    steps.push_back({.kind = Kind::kRound, .slot = sum.slot});
    sum.rounded = true;
  }

  int AddSignal() {
    const int slot = AddSlot(crossing_, {1});
    plan_.slots[slot].crosses = true;
    return slot;
  }

  Gradient CopyOf(int value, const Gradient& gradient, Steps& steps) {
    const int slot = AddValueSlot(value);
    steps.push_back({.kind = Kind::kTake, .slot = slot});
    steps.push_back({.kind = Kind::kCopy, .slot = slot, .from = gradient.slot});
    return {.slot = slot, .rounded = gradient.rounded};
  }

  void ReturnGradients(const Bundle& bundle, Steps& steps) {
    const Gradient& first = gradients_[bundle.parts.front().value];
    if (bundle.parts.size() == 1 && !first.view && crossing_ == DType::kF32) {
      plan_.grad_input = first.slot;
    } else {
      std::vector<int> parts(model_.values(), -1);
      for (const Bundle::Part& part : bundle.parts) {
        parts[part.value] = gradients_[part.value].slot;
      }
      plan_.grad_input = Pack(bundle, parts, steps);
    }
    plan_.slots[plan_.grad_input].crosses = true;
  }

  Steps BackwardWeight() const {
    Steps steps;
    for (int n = plan_.node_count - 1; n >= 0; --n) {
      if (NodeAt(n).trains()) steps.push_back({.kind = Kind::kRun, .node = n});
    }
    return steps;
  }

  // Calls use(slot) for what a step reads or writes. `pass`: 0 F, 1 I, 2 W.
  template <typename Use>
  void ForSlots(const PassStep& step, int pass, Use use) const {
    if (step.slot >= 0) use(step.slot);
    if (step.from >= 0) use(step.from);
    if (step.kind != Kind::kRun) return;
    const PassPlan::NodeSlots& slots = plan_.nodes[step.node];
    const TapeNeeds& needs = needs_[step.node];
    const InputSet read = pass == 0   ? kAllInputs
                          : pass == 1 ? needs.inputs_for_input
                                      : needs.inputs_for_weight;
    for (size_t i = 0; i < slots.inputs.size(); ++i) {
      if (Contains(read, i) && slots.inputs[i] >= 0) use(slots.inputs[i]);
    }
    const auto use_if = [&](bool condition, int slot) {
      if (condition && slot >= 0) use(slot);
    };
    use_if(pass == 0 || (pass == 1 && needs.output_for_input), slots.output);
    for (const int slot : slots.states) use_if(pass == 0, slot);
    use_if(pass < 2, slots.stash);
    use_if(true, slots.kept);
    use_if(pass > 0, slots.weight_stash);
    use_if(pass == 1 || (pass == 2 && needs.grad_output_for_weight), slots.grad_output);
    if (pass != 1) return;
    for (const int slot : slots.grad_inputs) use_if(true, slot);
  }

  // `returned`: what the first pass returns.
  void GiveAfterLastUse(std::vector<Steps>& passes, int returned) const {
    // After the first `steps` steps of a pass.
    struct Place {
      int pass = -1;
      size_t steps = 0;
    };
    std::vector<Place> last(plan_.slots.size());
    // What is received goes back even if nobody reads it.
    if (plan_.input >= 0) last[plan_.input] = {0, 0};
    if (plan_.grad_output >= 0) last[plan_.grad_output] = {1, 0};
    for (int pass = 0; pass < static_cast<int>(passes.size()); ++pass) {
      for (size_t step = 0; step < passes[pass].size(); ++step) {
        ForSlots(passes[pass][step], pass, [&](int slot) { last[slot] = {pass, step + 1}; });
      }
      const int result = pass == 0 ? returned : pass == 1 ? plan_.grad_input : -1;
      if (result >= 0) last[result] = {pass, passes[pass].size()};
    }
    for (int pass = 0; pass < static_cast<int>(passes.size()); ++pass) {
      std::vector<std::vector<int>> given(passes[pass].size() + 1);
      for (size_t slot = 0; slot < last.size(); ++slot) {
        if (last[slot].pass == pass) given[last[slot].steps].push_back(static_cast<int>(slot));
      }
      Steps steps;
      for (size_t done = 0; done <= passes[pass].size(); ++done) {
        if (done > 0) steps.push_back(passes[pass][done - 1]);
        for (const int slot : given[done]) steps.push_back({.kind = Kind::kGive, .slot = slot});
      }
      passes[pass] = std::move(steps);
    }
  }

  const ModelGraph& model_;
  const LayerRange layers_;
  const int64_t samples_;
  const std::vector<TapeNeeds>& needs_;
  const DType crossing_;
  const bool has_cuts_;   // else other layers of the stage are at both ends
  const DType received_;  // what comes from before and from behind
  PassPlan plan_;
  std::vector<int> values_;          // slots, by value of the model
  std::vector<Gradient> gradients_;  // by value of the model
  std::vector<bool> rounded_;        // by value of the model
  std::vector<int> states_;          // slots of what is carried
  size_t bundle_begin_ = 0;          // the first step of F that makes its output
};

}  // namespace

Shape ShapeOf(const ValueType& type, int64_t samples) {
  Shape shape;
  if (type.dims.size() + 1 > shape.dims.size()) return {samples * type.elements()};
  shape.rank = static_cast<int>(type.dims.size()) + 1;
  shape.dims[0] = samples;
  std::copy(type.dims.begin(), type.dims.end(), shape.dims.begin() + 1);
  return shape;
}

Shape ShapeOf(const ModelGraph& model, const Bundle& bundle, int64_t samples) {
  if (bundle.parts.size() != 1) return {bundle.elements};
  return ShapeOf(model.TypeOf(bundle.parts.front().value), samples);
}

PassPlan MakePassPlan(const ModelGraph& model, LayerRange layers, int64_t samples,
                      const std::vector<TapeNeeds>& needs, DType crossing, StageEnds ends) {
  return Planner(model, layers, samples, needs, crossing, ends).Plan();
}

}  // namespace penstock
