#include "tests/compute/random_graph.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/random.h"

namespace penstock {
namespace {

constinit const Op kAnyOp = {.name = "any", .inputs_max = kNodeInputsMax};
constinit const Op kAnyLoss = {.name = "any_loss",
                               .inputs_max = kNodeInputsMax,
                               .loss = [](const OpArguments&) { return LossTraits(); }};

constexpr uint64_t kModelNumbers = 31, kStageNumbers = 32;  // purposes of random numbers

class ModelMaker {
 public:
  explicit ModelMaker(uint64_t seed) : random_(seed, kModelNumbers) {}

  PlannedModel Make() && {
    const uint64_t ports = 1 + random_.Below(3);
    for (uint64_t port = 0; port < ports; ++port) {
      AddUnread(model_.AddPort(Dims(), Chance(0.5) ? DType::kF32 : DType::kI32));
    }
    const uint64_t nodes = 2 + random_.Below(20);
    for (uint64_t node = 0; node < nodes; ++node) AddNode();
    // A loss reads what nobody else does, and maybe more.
    while (unread_.size() > kNodeInputsMax) AddNode();
    std::vector<int> inputs = unread_;
    if (inputs.size() < kNodeInputsMax) inputs.push_back(AnyValue());
    TapeNeeds needs = AnyNeeds(inputs, {}, /*trained=*/false);
    needs.passes_gradient = kNoInputs;
    model_.AddLoss(inputs, needs);
    JoinLayers();
    return std::move(model_);
  }

 private:
  bool Chance(double probability) { return random_.Uniform() < probability; }
  std::vector<int64_t> Dims() {
    const std::vector<int64_t> kDims[] = {{24}, {6, 4}, {2, 3, 4}, {5}};
    return kDims[random_.Below(4)];
  }
  int64_t BlockBytes() {
    constexpr int64_t kBytes[] = {0, 0, 64, 1000, 5000};
    return kBytes[random_.Below(5)];
  }
  void AddUnread(int value) { unread_.push_back(value); }
  int AnyValue() { return static_cast<int>(random_.Below(model_.graph.values())); }
  int AnyInput() {
    return !unread_.empty() && Chance(0.6) ? unread_[random_.Below(unread_.size())] : AnyValue();
  }
  bool IsFloat(int value) const { return model_.graph.TypeOf(value).dtype == DType::kF32; }

  void AddNode() {
    // Many readers of many values, so that they do not run out of places to be read.
    const uint64_t count = 1 + random_.Below(unread_.size() > 8 ? 8 : 3);
    std::vector<int> inputs;
    for (uint64_t i = 0; i < count; ++i) inputs.push_back(AnyInput());
    for (const int input : inputs) std::erase(unread_, input);
    const ValueType first = model_.graph.TypeOf(inputs.front());
    if (inputs.size() == 1 && IsFloat(inputs.front()) && Chance(0.3)) {
      TapeNeeds needs;
      needs.passes_input = true;
      needs.passes_gradient = 1;
      AddUnread(model_.Add(inputs, {first.elements()}, /*has_parameters=*/false, needs));
      return;
    }
    const std::vector<int64_t> dims = Dims();
    const bool trained = Chance(0.4);
    AddUnread(model_.Add(inputs, dims, trained, AnyNeeds(inputs, dims, trained)));
    if (trained && Chance(0.3)) model_.FreezeLast();
    for (uint64_t states = Chance(0.2) ? 1 + random_.Below(2) : 0; states > 0; --states) {
      model_.graph.nodes.back().buffers.push_back(
          {.name = "state", .shape = {7}, .kind = BufferSpec::Kind::kCarried});
    }
  }

  TapeNeeds AnyNeeds(const std::vector<int>& inputs, const std::vector<int64_t>& dims,
                     bool trained) {
    TapeNeeds needs;
    needs.stash_bytes = BlockBytes();
    needs.kept_bytes = BlockBytes();
    needs.weight_stash_bytes = BlockBytes();
    needs.output_for_input = Chance(0.3);
    needs.grad_output_for_weight = trained && Chance(0.5);
    const int64_t elements = ValueType{DType::kF32, dims}.elements();
    for (size_t i = 0; i < inputs.size(); ++i) {
      const InputSet bit = InputSet{1} << i;
      if (Chance(0.4)) needs.inputs_for_input |= bit;
      if (trained && Chance(0.4)) needs.inputs_for_weight |= bit;
      const ValueType& type = model_.graph.TypeOf(inputs[i]);
      if (IsFloat(inputs[i]) && type.elements() == elements && Chance(0.5)) {
        needs.passes_gradient |= bit;
      }
    }
    return needs;
  }

  void JoinLayers() {
    std::vector<LayerSpec> joined;
    uint64_t left = 0;
    for (LayerSpec& layer : model_.graph.layers) {
      if (left == 0) {
        left = random_.Below(3);
        joined.push_back(std::move(layer));
        continue;
      }
      --left;
      ++joined.back().node_count;
      joined.back().parameters.insert(joined.back().parameters.end(), layer.parameters.begin(),
                                      layer.parameters.end());
    }
    model_.graph.layers = std::move(joined);
  }

  RandomStream random_;
  PlannedModel model_;
  std::vector<int> unread_;
};

}  // namespace

int PlannedModel::AddPort(std::vector<int64_t> dims, DType dtype) {
  PENSTOCK_CHECK(graph.nodes.empty());
  graph.ports.push_back({"port" + std::to_string(graph.ports.size()), {dtype, std::move(dims)}});
  return graph.values() - 1;
}

int PlannedModel::Add(std::vector<int> inputs, std::vector<int64_t> dims, bool has_parameters,
                      const TapeNeeds& of_node) {
  Node node;
  node.name = "node" + std::to_string(graph.nodes.size());
  node.op = &kAnyOp;
  node.output = {DType::kF32, std::move(dims)};
  if (has_parameters) node.parameters.push_back({.name = node.name + ".weight", .shape = {3}});
  node.needs_gradient = has_parameters || std::any_of(inputs.begin(), inputs.end(), [&](int input) {
                          return graph.NeedsGradient(input);
                        });
  node.inputs = std::move(inputs);
  graph.layers.push_back({.name = node.name,
                          .first_node = static_cast<int>(graph.nodes.size()),
                          .node_count = 1,
                          .parameters = node.parameters});
  graph.nodes.push_back(std::move(node));
  needs.push_back(of_node);
  return graph.values() - 1;
}

void PlannedModel::FreezeLast() {
  Node& node = graph.nodes.back();
  for (ParameterSpec& parameter : node.parameters) parameter.frozen = true;
  node.needs_gradient = std::any_of(node.inputs.begin(), node.inputs.end(),
                                    [&](int input) { return graph.NeedsGradient(input); });
}

int PlannedModel::AddLoss(std::vector<int> inputs, const TapeNeeds& of_node) {
  const int value = Add(std::move(inputs), {}, /*has_parameters=*/false, of_node);
  graph.nodes.back().op = &kAnyLoss;
  return value;
}

std::vector<TapeNeeds> PlannedModel::NeedsOf(LayerRange layers) const {
  return {needs.begin() + graph.layers[layers.first].first_node,
          needs.begin() + graph.layers[layers.end() - 1].end_node()};
}

PlannedModel RandomModel(uint64_t seed) { return ModelMaker(seed).Make(); }

std::vector<LayerRange> RandomStages(const ModelGraph& graph, uint64_t seed) {
  RandomStream random(seed, kStageNumbers);
  std::vector<LayerRange> stages;
  for (int first = 0; first < graph.size();) {
    const int count = std::min(1 + static_cast<int>(random.Below(4)), graph.size() - first);
    stages.push_back({first, count});
    first += count;
  }
  return stages;
}

}  // namespace penstock
