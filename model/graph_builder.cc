#include "model/graph_builder.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/check.h"
#include "base/status.h"

namespace penstock {
namespace {

// A node's place among its layer's drawing nodes goes above the layer's number.
constexpr int kLayerBits = 20;

// Names stand in files, tables and messages.
absl::Status CheckName(absl::string_view name) {
  bool good = !name.empty() && static_cast<int64_t>(name.size()) <= kModelNameCharactersMax;
  for (const char c : name) good = good && (absl::ascii_isalnum(c) || absl::StrContains("_.-/", c));
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("\"", absl::CHexEscape(name.substr(0, kModelNameCharactersMax)),
                   "\" is no name; expected 1 to ", kModelNameCharactersMax,
                   " characters of a-z, A-Z, 0-9, _, ., - and /"));
}

// A layer's name also stands in the names of a checkpoint's files (checkpoint/layout.h).
absl::Status CheckLayerName(absl::string_view name) {
  PENSTOCK_RETURN_IF_ERROR(CheckName(name));
  if (!absl::StrContains(name, '/')) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name,
                   ": is a layer, which has a file of its name in checkpoints; expected a "
                   "name without /, such as ",
                   absl::StrReplaceAll(name, {{"/", "."}})));
}

// The size of a tensor with these sides, counted in a double because it may not fit an integer.
absl::Status CheckSize(absl::string_view what, const std::vector<int64_t>& dims, int64_t max) {
  double elements = 1.0;
  for (const int64_t dim : dims) {
    if (dim < 1) {
      return absl::InvalidArgumentError(absl::StrCat("is ", what, " [", absl::StrJoin(dims, ", "),
                                                     "]; expected dimensions of at least 1"));
    }
    elements *= static_cast<double>(dim);
  }
  if (static_cast<int64_t>(dims.size()) > kValueDimensionsMax) {
    return absl::InvalidArgumentError(absl::StrCat("is ", what, " with ", dims.size(),
                                                   " dimensions; at most ", kValueDimensionsMax,
                                                   " are possible"));
  }
  if (elements <= static_cast<double>(max)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("is %s [%s], %.3g elements; at most %.3g are possible", std::string(what),
                      absl::StrJoin(dims, ", "), elements, static_cast<double>(max)));
}

absl::Status CheckSizes(const OpResult& result) {
  PENSTOCK_RETURN_IF_ERROR(
      CheckSize(Name(result.output.dtype), result.output.dims, kValueElementsMax));
  for (const ParameterSpec& parameter : result.parameters) {
    PENSTOCK_RETURN_IF_ERROR(CheckSize(parameter.name, parameter.shape, kModelParametersMax));
  }
  return absl::OkStatus();
}

absl::Status CheckInputCount(const Op& op, size_t inputs) {
  const auto count = static_cast<int>(inputs);
  if (count >= op.inputs_min && count <= op.inputs_max) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      op.name, " reads ", count, count == 1 ? " value" : " values", "; expected ", op.inputs_min,
      op.inputs_max == op.inputs_min ? "" : absl::StrCat(" to ", op.inputs_max)));
}

// Errors: always, for weights_of that names a node without such a parameter.
absl::Status NoneShaped(const ParameterSpec& parameter, const Node& other) {
  std::vector<std::string> there;
  for (const ParameterSpec& candidate : other.parameters) {
    there.push_back(absl::StrCat(candidate.name, " [", absl::StrJoin(candidate.shape, ", "), "]"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("weights_of: ", other.name, " has no parameter shaped as ", parameter.name, " [",
                   absl::StrJoin(parameter.shape, ", "), "]; it has ",
                   there.empty() ? "none" : absl::StrJoin(there, ", ")));
}

// Errors: always, for weights_of that names a node whose parameter of this name has another shape.
absl::Status OtherShape(const ParameterSpec& parameter, const ParameterSpec& of_other,
                        const Node& other) {
  const auto has_shape = [&](const ParameterSpec& p) { return p.shape == parameter.shape; };
  if (std::none_of(other.parameters.begin(), other.parameters.end(), has_shape)) {
    return NoneShaped(parameter, other);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("weights_of: ", parameter.name, " is [", absl::StrJoin(parameter.shape, ", "),
                   "], but ", of_other.name, " [", absl::StrJoin(of_other.shape, ", "),
                   "]; ops of one kind share parameters of one name, so give both the same sizes"));
}

}  // namespace

GraphBuilder::GraphBuilder(std::string architecture) {
  graph_.architecture = std::move(architecture);
}

void GraphBuilder::AddPort(Port port) {
  PENSTOCK_CHECK(graph_.nodes.empty());
  if (!status_.ok()) return;
  status_ = CheckPort(port);
  if (!status_.ok()) return;
  values_.emplace(port.name, static_cast<int>(graph_.ports.size()));
  graph_.ports.push_back(std::move(port));
}

absl::Status GraphBuilder::CheckPort(const Port& port) const {
  PENSTOCK_RETURN_IF_ERROR(CheckName(port.name));
  if (values_.count(port.name) > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(port.name, ": there are two inputs of this name; give each its own"));
  }
  if (static_cast<int64_t>(graph_.ports.size()) >= kModelPortsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(port.name, ": the model has more than ", kModelPortsMax, " inputs"));
  }
  PENSTOCK_RETURN_IF_ERROR(
      Annotate(CheckSize(Name(port.type.dtype), port.type.dims, kValueElementsMax), port.name));
  const bool good_ids = port.ids == 0 || (port.type.dtype == DType::kI32 && port.ids > 0 &&
                                          port.ids <= std::numeric_limits<int32_t>::max());
  if (good_ids) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      port.name, ": ids is ", port.ids, " with ", port.type.ToString(),
      "; expected a whole number from 1 to ", std::numeric_limits<int32_t>::max(), " with i32"));
}

void GraphBuilder::BeginLayer(std::string name) {
  if (!status_.ok()) return;
  PENSTOCK_CHECK(graph_.layers.empty() || graph_.layers.back().node_count > 0);
  status_ = CheckLayerName(name);
  if (!layers_.insert(name).second) {
    status_.Update(absl::InvalidArgumentError(
        absl::StrCat(name, ": there are two layers of this name; give each its own")));
  }
  graph_.layers.push_back({.name = std::move(name),
                           .number = graph_.size(),
                           .first_node = static_cast<int>(graph_.nodes.size())});
  draws_in_layer_ = 0;
}

void GraphBuilder::Add(NodeSpec spec) {
  if (!status_.ok()) return;
  if (spec.name.empty()) spec.name = graph_.layers.back().name;
  const std::string name = spec.name;
  status_ = Annotate(TryAdd(std::move(spec)), name);
}

const ValueType* GraphBuilder::TypeOf(const std::string& name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? nullptr : &graph_.TypeOf(found->second);
}

absl::Status GraphBuilder::TryAdd(NodeSpec spec) {
  PENSTOCK_CHECK(!graph_.layers.empty());
  PENSTOCK_RETURN_IF_ERROR(CheckName(spec.name));
  if (static_cast<int64_t>(graph_.nodes.size()) >= kModelNodesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("is one more than the ", kModelNodesMax, " ops that a model may have"));
  }
  Node node;
  node.name = spec.name;
  PENSTOCK_ASSIGN_OR_RETURN(node.op, FindOp(spec.op));
  PENSTOCK_ASSIGN_OR_RETURN(node.attributes, Complete(node.op->attributes, spec.attributes));
  PENSTOCK_ASSIGN_OR_RETURN(node.inputs, FindInputs(spec));
  PENSTOCK_RETURN_IF_ERROR(CheckInputCount(*node.op, node.inputs.size()));
  const std::vector<ValueType> inputs = graph_.InputTypes(node);
  const OpArguments arguments = {node.attributes, inputs};
  PENSTOCK_ASSIGN_OR_RETURN(OpResult result, node.op->infer(arguments));
  PENSTOCK_RETURN_IF_ERROR(CheckSizes(result));
  PENSTOCK_RETURN_IF_ERROR(LimitIds(node, arguments));
  node.output = std::move(result.output);
  node.parameters = std::move(result.parameters);
  node.buffers = std::move(result.buffers);
  if (values_.count(node.name) > 0) {
    return absl::InvalidArgumentError("there are two values of this name; give each its own");
  }
  PENSTOCK_RETURN_IF_ERROR(NameParameters(spec, node));
  PENSTOCK_RETURN_IF_ERROR(TakeNames(spec, node));
  PENSTOCK_RETURN_IF_ERROR(ShareParameters(node));
  PENSTOCK_RETURN_IF_ERROR(CheckParameterShapes(node));
  LayerSpec& layer = graph_.layers.back();
  const bool reads_trained = std::any_of(node.inputs.begin(), node.inputs.end(),
                                         [&](int value) { return graph_.NeedsGradient(value); });
  node.needs_gradient = reads_trained || !node.parameters.empty();
  if (node.op->draws) {
    node.draw = static_cast<uint32_t>(graph_.layers.size() - 1) | draws_in_layer_++ << kLayerBits;
  }
  values_.emplace(node.name, graph_.ValueOf(static_cast<int>(graph_.nodes.size())));
  layer.parameters.insert(layer.parameters.end(), node.parameters.begin(), node.parameters.end());
  ++layer.node_count;
  graph_.nodes.push_back(std::move(node));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int>> GraphBuilder::FindInputs(const NodeSpec& spec) const {
  std::vector<int> inputs;
  if (spec.inputs.empty()) {
    if (graph_.nodes.empty()) {
      return absl::InvalidArgumentError("is the first and so has to name what it reads");
    }
    return std::vector<int>{graph_.values() - 1};
  }
  for (const std::string& name : spec.inputs) {
    const auto found = values_.find(name);
    if (found == values_.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "reads \"", name, "\", which is no input of the model and no layer before this one"));
    }
    inputs.push_back(found->second);
  }
  return inputs;
}

absl::Status GraphBuilder::NameParameters(const NodeSpec& spec, Node& node) {
  const std::string prefix = spec.parameter_prefix.value_or(absl::StrCat(node.name, "."));
  if (!prefix.empty()) PENSTOCK_RETURN_IF_ERROR(CheckName(prefix));
  node.parameter_prefix = prefix;
  node.weights_of = spec.weights_of;
  for (ParameterSpec& parameter : node.parameters) parameter.name = prefix + parameter.name;
  for (BufferSpec& buffer : node.buffers) buffer.name = prefix + buffer.name;
  return absl::OkStatus();
}

absl::Status GraphBuilder::TakeNames(const NodeSpec& spec, const Node& node) {
  for (const ParameterSpec& parameter : node.parameters) {
    const auto [taker, is_free] = takers_.emplace(parameter.name, node.name);
    if (is_free || spec.parameter_prefix.has_value()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("would have the parameter ", parameter.name, ", which ", taker->second,
                     " before it has, too; give one of the two another name or, if they are to "
                     "share it, set weights_of: ",
                     taker->second));
  }
  for (const BufferSpec& buffer : node.buffers) {
    const auto [taker, is_free] = takers_.emplace(buffer.name, node.name);
    if (is_free) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("would have the state ", buffer.name, ", which ", taker->second,
                     " before it has, too; give one of the two another name"));
  }
  return absl::OkStatus();
}

absl::Status GraphBuilder::ShareParameters(Node& node) const {
  if (node.weights_of.empty()) return absl::OkStatus();
  const auto found = values_.find(node.weights_of);
  if (found == values_.end() || graph_.is_port(found->second)) {
    return absl::InvalidArgumentError(absl::StrCat("weights_of names \"", node.weights_of,
                                                   "\", which is no layer before this one"));
  }
  const Node& other = graph_.nodes[graph_.NodeOf(found->second)];
  return *other.op == *node.op ? ShareByName(other, node) : ShareByShape(other, node);
}

absl::Status GraphBuilder::ShareByName(const Node& other, Node& node) const {
  const std::vector<ValueType> inputs = graph_.InputTypes(other);
  // The node was checked when it was added. Its parameters may have the names of a third one's by now.
  const OpResult own = *other.op->infer({other.attributes, inputs});
  for (ParameterSpec& parameter : node.parameters) {
    const auto name = absl::string_view(parameter.name).substr(node.parameter_prefix.size());
    const auto same =
        std::find_if(own.parameters.begin(), own.parameters.end(),
                     [&](const ParameterSpec& candidate) { return candidate.name == name; });
    const ParameterSpec* const shared =
        same == own.parameters.end() ? nullptr : &other.parameters[same - own.parameters.begin()];
    if (shared != nullptr && shared->shape == parameter.shape) {
      parameter = *shared;
    } else if (&parameter == &node.parameters.front()) {
      return shared == nullptr ? NoneShaped(parameter, other)
                               : OtherShape(parameter, *shared, other);
    }  // else its own, as a bias that the other one is without, or of a matrix that is read transposed
  }
  return absl::OkStatus();
}

absl::Status GraphBuilder::ShareByShape(const Node& other, Node& node) {
  // In order, each once: a gain and a bias have one shape.
  std::vector<ParameterSpec> candidates = other.parameters;
  for (ParameterSpec& parameter : node.parameters) {
    const auto same = std::find_if(
        candidates.begin(), candidates.end(),
        [&](const ParameterSpec& candidate) { return candidate.shape == parameter.shape; });
    if (same == candidates.end()) {
      // As the bias of an output that shares a table.
      if (&parameter != &node.parameters.front()) continue;
      return NoneShaped(parameter, other);
    }
    parameter = std::move(*same);
    candidates.erase(same);
  }
  return absl::OkStatus();
}

absl::Status GraphBuilder::CheckParameterShapes(const Node& node) {
  for (const ParameterSpec& parameter : node.parameters) {
    const FirstUse& first =
        first_uses_.emplace(parameter.name, FirstUse{parameter.shape, node.name}).first->second;
    if (first.shape == parameter.shape) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("parameter ", parameter.name, " is [", absl::StrJoin(parameter.shape, ", "),
                     "], but [", absl::StrJoin(first.shape, ", "), "] in ", first.node,
                     ", which comes before; give it another name"));
  }
  return absl::OkStatus();
}

absl::Status GraphBuilder::LimitIds(const Node& node, const OpArguments& arguments) {
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.op->ids == nullptr || arguments.inputs[i].dtype != DType::kI32) continue;
    const int64_t allowed = node.op->ids(arguments, static_cast<int>(i));
    if (allowed == 0) continue;
    const int value = node.inputs[i];
    if (!graph_.is_port(value)) {
      return absl::InvalidArgumentError(
          absl::StrCat("reads ", graph_.NameOf(value), " as numbers from 0 to ", allowed - 1,
                       ", which only an input of the model can promise"));
    }
    Port& port = graph_.ports[value];
    if (port.ids == 0) port.ids = allowed;
    if (port.ids <= allowed) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "reads ", port.name, " as numbers from 0 to ", allowed - 1, ", but they go to ",
        port.ids - 1, "; make its ids at most ", allowed, ", or its table larger"));
  }
  return absl::OkStatus();
}

absl::Status GraphBuilder::CheckReaders() const {
  std::vector<bool> is_read(graph_.values(), false);
  for (const Node& node : graph_.nodes) {
    for (const int input : node.inputs) is_read[input] = true;
  }
  for (int value = 0; value + 1 < graph_.values(); ++value) {
    if (is_read[value]) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        graph_.NameOf(value), ": no layer reads it; leave it out, or name it in `of`"));
  }
  return absl::OkStatus();
}

absl::Status GraphBuilder::CheckParameterCount() const {
  std::set<std::string> counted;
  double parameters = 0.0;
  for (const LayerSpec& layer : graph_.layers) {
    for (const ParameterSpec& parameter : layer.parameters) {
      if (!counted.insert(parameter.name).second) continue;
      parameters += static_cast<double>(parameter.size());
    }
  }
  if (parameters <= static_cast<double>(kModelParametersMax)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("the model has %.3g parameters; at most %.3g are possible", parameters,
                      static_cast<double>(kModelParametersMax)));
}

absl::StatusOr<ModelGraph> GraphBuilder::Build() && {
  PENSTOCK_RETURN_IF_ERROR(status_);
  if (graph_.nodes.empty() || !graph_.nodes.back().op->is_loss()) {
    return absl::InvalidArgumentError(
        "the last layer computes no loss; end the model with one (cross_entropy, mse)");
  }
  const auto losses = std::count_if(graph_.nodes.begin(), graph_.nodes.end(),
                                    [](const Node& node) { return node.op->is_loss(); });
  if (losses != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("the model has ", losses, " losses; expected one, at its end"));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckReaders());
  PENSTOCK_RETURN_IF_ERROR(CheckParameterCount());
  graph_.ties = FindTies(graph_.layers);
  return std::move(graph_);
}

}  // namespace penstock
