#include "model/decode_step.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "model/ops/branch.h"
#include "model/ops/list.h"

namespace penstock {
namespace {

constexpr char kPlace[] = "place";

// Ops that do the same to every time step.
constexpr const Op* kStepwise[] = {
    &ops::kAdd,       &ops::kMul,       &ops::kDropout, &ops::kEmbedding,
    &ops::kGelu,      &ops::kRelu,      &ops::kSilu,    &ops::kTanh,
    &ops::kSigmoid,   &ops::kLayerNorm, &ops::kRmsNorm, &ops::kLinear,
    &ops::kMlpBranch, &ops::kScale,     &ops::kGptHead, &ops::kCrossEntropy};

class StepMaker {
 public:
  StepMaker(const ModelGraph& model, int64_t steps) : model_(model), step_(model), steps_(steps) {
    step_.nodes.clear();
  }

  absl::StatusOr<ModelGraph> Make() && {
    PENSTOCK_RETURN_IF_ERROR(MakePorts());
    values_.resize(model_.values(), -1);
    for (size_t port = 0; port < model_.ports.size(); ++port) {
      values_[port] = static_cast<int>(port);
    }
    for (LayerSpec& layer : step_.layers) {
      const int first = layer.first_node, end = layer.end_node();
      layer.first_node = static_cast<int>(step_.nodes.size());
      for (int n = first; n < end; ++n) {
        const absl::Status added = AddStepOf(model_.nodes[n]);
        if (!added.ok()) return Annotate(added, model_.nodes[n].name);
        values_[model_.ValueOf(n)] = last();
      }
      layer.node_count = static_cast<int>(step_.nodes.size()) - layer.first_node;
    }
    return std::move(step_);
  }

 private:
  absl::Status MakePorts() {
    const bool fits = model_.ports.size() == 2 && model_.ports[0].type.dtype == DType::kI32 &&
                      model_.ports[0].type.dims.size() == 1 &&
                      model_.ports[1].type == model_.ports[0].type;
    if (!fits) {
      return absl::UnimplementedError("the model does not read tokens and their targets alone");
    }
    time_ = model_.ports[0].type.dims[0];
    for (Port& port : step_.ports) port.type.dims = {steps_};
    step_.ports.push_back({.name = kPlace, .type = {DType::kI32, {steps_}}, .ids = time_});
    return absl::OkStatus();
  }

  int last() const { return step_.ValueOf(static_cast<int>(step_.nodes.size()) - 1); }

  std::vector<int> InputsOf(const Node& node) const {
    std::vector<int> inputs;
    for (const int input : node.inputs) inputs.push_back(values_[input]);
    return inputs;
  }

  // Adds a node with what `like` has but these, and returns its value. Its parameters are given, as many as it has.
  absl::StatusOr<int> Add(const Node& like, const Op& op, const Attributes& given,
                          std::vector<int> inputs, absl::Span<const ParameterSpec> parameters,
                          absl::string_view suffix = "") {
    Node node = like;
    absl::StrAppend(&node.name, suffix);
    node.op = &op;
    PENSTOCK_ASSIGN_OR_RETURN(node.attributes, Complete(op.attributes, given));
    node.inputs = std::move(inputs);
    node.parameters.assign(parameters.begin(), parameters.end());
    const std::vector<ValueType> types = step_.InputTypes(node);
    PENSTOCK_ASSIGN_OR_RETURN(OpResult result, op.infer({node.attributes, types}));
    const bool same = std::equal(
        result.parameters.begin(), result.parameters.end(), parameters.begin(), parameters.end(),
        [](const ParameterSpec& a, const ParameterSpec& b) { return a.shape == b.shape; });
    PENSTOCK_CHECK(same);
    node.output = std::move(result.output);
    node.buffers = std::move(result.buffers);
    for (BufferSpec& buffer : node.buffers) buffer.name = absl::StrCat(node.name, ".", buffer.name);
    step_.nodes.push_back(std::move(node));
    return last();
  }

  absl::Status AddStepOf(const Node& node) {
    if (IsStepwise(*node.op)) {
      return Add(node, *node.op, node.attributes, InputsOf(node), node.parameters).status();
    }
    if (node.op == &ops::kGptEmbedding) return AddEmbeddings(node);
    if (node.op == &ops::kPositions) {
      return AddPositions(node, values_[node.inputs[0]], node.parameters);
    }
    if (node.op == &ops::kRope) {
      return Add(node, ops::kRope, node.attributes, {values_[node.inputs[0]], kStepPlacePort}, {})
          .status();
    }
    if (node.op == &ops::kAttention) return AddAttention(node);
    if (node.op == &ops::kAttentionBranch) return AddAttentionBranch(node);
    if (node.op == &ops::kReshape) return AddReshape(node);
    if (node.op == &ops::kLstm) return AddLstm(node);
    return absl::UnimplementedError(absl::StrCat("nothing is known of how ", node.op->name,
                                                 " goes from one time step to the next"));
  }

  // The place's row of the table, added to `input`.
  absl::Status AddPositions(const Node& node, int input, absl::Span<const ParameterSpec> table) {
    const std::vector<int64_t>& shape = table[0].shape;
    PENSTOCK_ASSIGN_OR_RETURN(
        const int row, Add(node, ops::kEmbedding, {{"vocabulary", shape[0]}, {"width", shape[1]}},
                           {kStepPlacePort}, table, ".row"));
    return Add(node, ops::kAdd, {}, {input, row}, {}).status();
  }

  absl::Status AddEmbeddings(const Node& node) {
    const absl::Span<const ParameterSpec> parameters = node.parameters;
    const std::vector<int64_t>& shape = parameters[0].shape;
    PENSTOCK_ASSIGN_OR_RETURN(
        const int tokens,
        Add(node, ops::kEmbedding, {{"vocabulary", shape[0]}, {"width", shape[1]}}, InputsOf(node),
            parameters.subspan(0, 1), ".tokens"));
    return AddPositions(node, tokens, parameters.subspan(1, 1));
  }

  // `like`: whose attributes count where it has them.
  absl::Status AddCached(const Node& like, int64_t heads, int queries, int keys, int values) {
    const int64_t size = step_.TypeOf(queries).dims[1] / heads;
    Attributes attributes = {{"heads", heads},
                             {"key_value_heads", step_.TypeOf(keys).dims[1] / size},
                             {"context", time_}};
    if (like.attributes.has("window")) {
      attributes.Set("window", like.attributes.integer("window"));
    }
    return Add(like, ops::kCachedAttention, attributes, {queries, keys, values, kStepPlacePort}, {})
        .status();
  }

  // Queries, keys and values that lie side by side in `value`.
  absl::Status AddSplitAttention(const Node& like, int64_t heads, int64_t key_heads, int value) {
    const int64_t size = step_.TypeOf(value).dims[1] / (heads + 2 * key_heads);
    const int64_t width = heads * size, kept = key_heads * size;
    const auto part = [&](int64_t from, int64_t to, const char* name) {
      return Add(like, ops::kSlice, {{"from", from}, {"to", to}}, {value}, {}, name);
    };
    PENSTOCK_ASSIGN_OR_RETURN(const int queries, part(0, width, ".queries"));
    PENSTOCK_ASSIGN_OR_RETURN(const int keys, part(width, width + kept, ".keys"));
    PENSTOCK_ASSIGN_OR_RETURN(const int values, part(width + kept, width + 2 * kept, ".values"));
    return AddCached(like, heads, queries, keys, values);
  }

  absl::Status AddAttention(const Node& node) {
    if (!node.attributes.flag("causal") || node.inputs.size() % 2 == 0) {
      return absl::UnimplementedError("attention sees later time steps, or is bounded by lengths");
    }
    const int64_t heads = node.attributes.integer("heads");
    const std::vector<int> inputs = InputsOf(node);
    if (inputs.size() == 3) return AddCached(node, heads, inputs[0], inputs[1], inputs[2]);
    const bool is_grouped =
        node.attributes.has("key_value_heads") && node.attributes.integer("key_value_heads") > 0;
    return AddSplitAttention(
        node, heads, is_grouped ? node.attributes.integer("key_value_heads") : heads, inputs[0]);
  }

  absl::Status AddAttentionBranch(const Node& node) {
    const absl::Span<const ParameterSpec> parameters = node.parameters;
    const int64_t width = node.attributes.integer("width");
    const int64_t heads = node.attributes.integer("heads");
    const int input = values_[node.inputs[0]];
    const auto linear = [&](int64_t outputs, int value, int first, const char* name) {
      return Add(node, ops::kLinear,
                 {{"outputs", outputs}, {"layout", node.attributes.word("layout")}}, {value},
                 parameters.subspan(first, 2), name);
    };
    PENSTOCK_ASSIGN_OR_RETURN(
        const int norm,
        Add(node, ops::kLayerNorm, {{"width", width}, {"epsilon", ops::kBranchEpsilon}}, {input},
            parameters.subspan(0, 2), ".norm"));
    PENSTOCK_ASSIGN_OR_RETURN(const int expansion, linear(3 * width, norm, 2, ".expansion"));
    PENSTOCK_RETURN_IF_ERROR(AddSplitAttention(node, heads, heads, expansion));
    step_.nodes.back().name += ".attention";
    PENSTOCK_ASSIGN_OR_RETURN(const int projection, linear(width, last(), 4, ".projection"));
    return Add(node, ops::kAdd, {}, {input, projection}, {}).status();
  }

  absl::Status AddReshape(const Node& node) {
    std::vector<int64_t> dims = node.attributes.integers("dims");
    if (model_.TypeOf(node.inputs[0]).dims[0] != time_ || dims[0] != time_) {
      return absl::UnimplementedError("reshape mixes time steps");
    }
    dims[0] = steps_;
    return Add(node, ops::kReshape, {{"dims", std::move(dims)}}, InputsOf(node), {}).status();
  }

  absl::Status AddLstm(const Node& node) {
    Attributes attributes = node.attributes;
    attributes.Set("carried", true);
    const absl::Status added =
        Add(node, ops::kLstm, attributes, InputsOf(node), node.parameters).status();
    return absl::IsInvalidArgument(added)
               ? absl::UnimplementedError(
                     "an LSTM from the end, or one that is bounded by lengths, "
                     "needs steps which are still to come")
               : added;
  }

  const ModelGraph& model_;
  ModelGraph step_;
  const int64_t steps_;
  int64_t time_ = 0;
  std::vector<int> values_;  // by value of the model: that of the step
};

}  // namespace

bool IsStepwise(const Op& op) {
  return std::find(std::begin(kStepwise), std::end(kStepwise), &op) != std::end(kStepwise);
}

absl::StatusOr<ModelGraph> DecodeStepOf(const ModelGraph& model, int64_t steps) {
  return StepMaker(model, steps).Make();
}

}  // namespace penstock
