#include "model/fuse_branches.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "model/ops/branch.h"
#include "model/ops/list.h"

namespace penstock {
namespace {

// Walks along nodes of which each alone reads what the one before it made.
class Walk {
 public:
  // From `first` to the last node before `end`. `reads`: by value of the model, how often it is read.
  Walk(const ModelGraph& model, const std::vector<int>& reads, int first, int end)
      : model_(model), reads_(reads), at_(first), end_(end) {}

  // Goes to the next node and returns it if it is of `op` and reads nothing else; null: it is not.
  const Node* To(const Op& op) {
    return Follow([&](const Node& next) {
      return next.op == &op && next.inputs == std::vector<int>{value()};
    });
  }
  // The same if it adds `other`, in either order.
  const Node* ToSumWith(int other) {
    return Follow([&](const Node& next) {
      return next.op == &ops::kAdd && (next.inputs == std::vector<int>{other, value()} ||
                                       next.inputs == std::vector<int>{value(), other});
    });
  }

  // Behind the last node that was reached.
  int end() const { return at_ + 1; }

 private:
  int value() const { return model_.ValueOf(at_); }

  template <typename Fits>
  const Node* Follow(Fits fits) {
    if (at_ + 1 == end_ || reads_[value()] != 1 || !fits(model_.nodes[at_ + 1])) return nullptr;
    return &model_.nodes[++at_];
  }

  const ModelGraph& model_;
  const std::vector<int>& reads_;
  int at_;
  const int end_;
};

// The parts of a branch.
struct Parts {
  const Node* norm = nullptr;
  const Node* expansion = nullptr;
  const Node* middle = nullptr;
  const Node* projection = nullptr;
  const Node* dropout = nullptr;  // null: none
  const Node* sum = nullptr;
  int end = 0;  // of the nodes
};

std::optional<Parts> FindParts(const ModelGraph& model, const std::vector<int>& reads, int first,
                               int end) {
  Parts parts = {.norm = &model.nodes[first]};
  if (parts.norm->op != &ops::kLayerNorm) return std::nullopt;
  Walk walk(model, reads, first, end);
  parts.expansion = walk.To(ops::kLinear);
  if (parts.expansion == nullptr) return std::nullopt;
  parts.middle = walk.To(ops::kAttention);
  if (parts.middle == nullptr) parts.middle = walk.To(ops::kGelu);
  if (parts.middle == nullptr) return std::nullopt;
  parts.projection = walk.To(ops::kLinear);
  if (parts.projection == nullptr) return std::nullopt;
  parts.dropout = walk.To(ops::kDropout);
  parts.sum = walk.ToSumWith(parts.norm->inputs.front());
  if (parts.sum == nullptr) return std::nullopt;
  parts.end = walk.end();
  return parts;
}

// Whether the op computes the same. Sizes follow from the shapes of parameters, which are compared later.
bool HaveSettingsOfBranch(const Parts& parts) {
  const Attributes& middle = parts.middle->attributes;
  const bool fits_middle = parts.middle->op == &ops::kAttention
                               ? middle.flag("causal") && middle.integer("window") == 0
                               : middle.word("approximate") == "tanh";
  return fits_middle && parts.norm->attributes.number("epsilon") == ops::kBranchEpsilon &&
         parts.expansion->attributes.word("layout") ==
             parts.projection->attributes.word("layout") &&
         (parts.dropout == nullptr || parts.dropout->attributes.word("kind") == "element");
}

Attributes AttributesOf(const Parts& parts) {
  const Attributes& expansion = parts.expansion->attributes;
  Attributes attributes = {
      {"width", parts.norm->attributes.integer("width")},
      {"dropout", parts.dropout == nullptr ? 0.0 : parts.dropout->attributes.number("probability")},
      {"layout", expansion.word("layout")},
      {"deviation", expansion.number("deviation")},
      {"projection_deviation", parts.projection->attributes.number("deviation")}};
  if (parts.middle->op == &ops::kAttention) {
    attributes.Set("heads", parts.middle->attributes.integer("heads"));
  } else {
    attributes.Set("hidden", expansion.integer("outputs"));
  }
  return attributes;
}

bool HaveEqualShapes(const std::vector<ParameterSpec>& a, const std::vector<ParameterSpec>& b) {
  return std::equal(
      a.begin(), a.end(), b.begin(), b.end(),
      [](const ParameterSpec& x, const ParameterSpec& y) { return x.shape == y.shape; });
}

// The node that stands for the parts; none if the op does not take their sizes.
std::optional<Node> Fused(const ModelGraph& model, const Parts& parts) {
  if (!HaveSettingsOfBranch(parts)) return std::nullopt;
  Node node = {
      .name = parts.sum->name,
      .op = parts.middle->op == &ops::kAttention ? &ops::kAttentionBranch : &ops::kMlpBranch,
      .inputs = parts.norm->inputs,
      .output = parts.sum->output,
      .needs_gradient = parts.sum->needs_gradient,
      .draw = parts.dropout == nullptr ? 0 : parts.dropout->draw};
  absl::StatusOr<Attributes> attributes = Complete(node.op->attributes, AttributesOf(parts));
  if (!attributes.ok()) return std::nullopt;
  node.attributes = *std::move(attributes);
  for (const Node* part : {parts.norm, parts.expansion, parts.projection}) {
    node.parameters.insert(node.parameters.end(), part->parameters.begin(), part->parameters.end());
  }
  const std::vector<ValueType> inputs = model.InputTypes(node);
  const absl::StatusOr<OpResult> result = node.op->infer({node.attributes, inputs});
  const bool fits = result.ok() && result->output == node.output &&
                    HaveEqualShapes(result->parameters, node.parameters);
  if (!fits) return std::nullopt;
  return node;
}

std::vector<int> CountReads(const ModelGraph& model) {
  std::vector<int> reads(model.values(), 0);
  for (const Node& node : model.nodes) {
    for (const int input : node.inputs) ++reads[input];
  }
  return reads;
}

}  // namespace

ModelGraph FuseBranches(const ModelGraph& model) {
  const std::vector<int> reads = CountReads(model);
  ModelGraph fused = model;
  fused.nodes.clear();
  std::vector<int> moved(model.values(), -1);  // by value of `model`: its number in `fused`
  for (int port = 0; port < static_cast<int>(model.ports.size()); ++port) moved[port] = port;
  for (LayerSpec& layer : fused.layers) {
    const int end = layer.end_node();
    int next = layer.first_node;
    layer.first_node = static_cast<int>(fused.nodes.size());
    while (next < end) {
      Node node = model.nodes[next];
      int behind = next + 1;
      if (const std::optional<Parts> parts = FindParts(model, reads, next, end)) {
        if (std::optional<Node> branch = Fused(model, *parts)) {
          node = *std::move(branch);
          behind = parts->end;
        }
      }
      for (int& input : node.inputs) input = moved[input];
      moved[model.ValueOf(behind - 1)] = fused.ValueOf(static_cast<int>(fused.nodes.size()));
      fused.nodes.push_back(std::move(node));
      next = behind;
    }
    layer.node_count = static_cast<int>(fused.nodes.size()) - layer.first_node;
  }
  return fused;
}

}  // namespace penstock
