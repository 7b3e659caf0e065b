#include "job/model_graph.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "base/glob.h"
#include "base/put_path.h"
#include "base/status.h"
#include "checkpoint/weights_digest.h"
#include "google/protobuf/util/json_util.h"
#include "job/keys/check_fields.h"
#include "job/keys/suggest.h"
#include "job/model_families.h"
#include "job/parameter_groups.h"
#include "model/documents.h"
#include "model/graph_builder.h"
#include "model/layer_order.h"
#include "model/lora.h"
#include "model/pytorch_init.h"

namespace penstock {
namespace {

constexpr char kPyTorchInit[] = "pytorch";

absl::StatusOr<Port> PortOf(const v1::ModelPort& message) {
  const std::optional<DType> dtype = DTypeNamed(message.dtype());
  if (!dtype.has_value() || *dtype == DType::kBf16) {
    return absl::InvalidArgumentError(absl::StrCat(message.name(), ": dtype is \"", message.dtype(),
                                                   "\"; expected f32, i32 or u8"));
  }
  return Port{.name = message.name(),
              .type = {*dtype, {message.dims().begin(), message.dims().end()}},
              .ids = message.ids()};
}

absl::StatusOr<AttributeValue> ValueOf(const v1::ModelAttribute& message) {
  switch (message.value_case()) {
    case v1::ModelAttribute::kFlag:
      return message.flag();
    case v1::ModelAttribute::kInteger:
      return message.integer();
    case v1::ModelAttribute::kNumber:
      return message.number();
    case v1::ModelAttribute::kWord:
      return message.word();
    case v1::ModelAttribute::kIntegers: {
      const auto& values = message.integers().values();
      return std::vector<int64_t>(values.begin(), values.end());
    }
    case v1::ModelAttribute::kNumbers: {
      const auto& values = message.numbers().values();
      return std::vector<double>(values.begin(), values.end());
    }
    case v1::ModelAttribute::VALUE_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(absl::StrCat(message.name(), ": has no value"));
}

void SetValue(const AttributeValue& value, v1::ModelAttribute& message) {
  struct Setter {
    v1::ModelAttribute& message;
    void operator()(bool flag) const { message.set_flag(flag); }
    void operator()(int64_t integer) const { message.set_integer(integer); }
    void operator()(double number) const { message.set_number(number); }
    void operator()(const std::string& word) const { message.set_word(word); }
    void operator()(const std::vector<int64_t>& values) const {
      message.mutable_integers()->mutable_values()->Assign(values.begin(), values.end());
    }
    void operator()(const std::vector<double>& values) const {
      message.mutable_numbers()->mutable_values()->Assign(values.begin(), values.end());
    }
  };
  std::visit(Setter{message}, value);
}

// Errors: InvalidArgument with the nearest name.
absl::Status CheckOp(const std::string& name) {
  if (FindOp(name).ok()) return absl::OkStatus();
  std::vector<std::string> names;
  for (const Op* op : AllOps()) names.emplace_back(op->name);
  const std::string nearest = NearestName(name, names);
  return absl::InvalidArgumentError(
      absl::StrCat("unknown op \"", name, "\"; ",
                   nearest.empty() ? absl::StrCat("known are ", absl::StrJoin(names, ", "))
                                   : absl::StrCat("did you mean ", nearest, "?")));
}

absl::StatusOr<NodeSpec> NodeOf(const v1::ModelNode& message) {
  PENSTOCK_RETURN_IF_ERROR(CheckOp(message.op()));
  NodeSpec node = {.name = message.name(),
                   .op = message.op(),
                   .inputs = {message.inputs().begin(), message.inputs().end()},
                   .weights_of = message.weights_of()};
  if (message.has_parameter_prefix()) node.parameter_prefix = message.parameter_prefix();
  for (const v1::ModelAttribute& attribute : message.attributes()) {
    PENSTOCK_ASSIGN_OR_RETURN(AttributeValue value, ValueOf(attribute));
    if (node.attributes.has(attribute.name())) {
      return absl::InvalidArgumentError(absl::StrCat(attribute.name(), ": is there twice"));
    }
    node.attributes.Set(attribute.name(), std::move(value));
  }
  return node;
}

absl::Status CheckTarget(const std::string& key, const std::string& pattern,
                         const std::vector<std::string>& maps, const ModelGraph& model) {
  const auto matches = [&](const std::string& name) { return MatchesGlob(pattern, name); };
  if (std::any_of(maps.begin(), maps.end(), matches)) return absl::OkStatus();
  for (const Node& node : model.nodes) {
    for (const ParameterSpec& parameter : node.parameters) {
      if (!matches(std::string(absl::StripSuffix(parameter.name, ".weight")))) continue;
      return InvalidKey(
          key, absl::StrCat("is \"", pattern, "\", which matches ", parameter.name, " of the op ",
                            node.op->name, ", but only linear maps have adapters; the nearest are ",
                            absl::StrJoin(NearestNames(pattern, maps), ", ")));
    }
  }
  return InvalidKey(key,
                    absl::StrCat("is \"", pattern, "\", which matches no linear map",
                                 maps.empty() ? ", since the model has none" : "; the nearest are ",
                                 absl::StrJoin(NearestNames(pattern, maps), ", ")));
}

absl::StatusOr<ModelGraph> AddAdapters(const v1::LoraSpec& spec, const ModelGraph& model) {
  constexpr char kKey[] = "model.lora.targets";
  if (spec.targets().empty()) {
    return InvalidKey(kKey,
                      "has none; expected patterns of linear maps' names, such as [\"*.c_attn\"]");
  }
  const std::vector<std::string> maps = LinearMaps(model);
  for (int i = 0; i < spec.targets_size(); ++i) {
    PENSTOCK_RETURN_IF_ERROR(CheckTarget(kKey, spec.targets(i), maps, model));
  }
  LoraConfig config = {.dropout = spec.dropout(),
                       .targets = {spec.targets().begin(), spec.targets().end()}};
  if (spec.has_rank()) config.rank = spec.rank();
  if (spec.has_alpha()) config.alpha = spec.alpha();
  absl::StatusOr<ModelGraph> adapted = AddLora(model, config);
  return adapted.ok() ? adapted : InvalidKey("model.lora", adapted.status().message());
}

v1::ModelNode ToProto(const ModelGraph& graph, const Node& node) {
  v1::ModelNode message;
  message.set_name(node.name);
  message.set_op(std::string(node.op->name));
  for (const auto& [name, value] : node.attributes.entries()) {
    v1::ModelAttribute& attribute = *message.add_attributes();
    attribute.set_name(name);
    SetValue(value, attribute);
  }
  for (const int input : node.inputs) message.add_inputs(graph.NameOf(input));
  message.set_weights_of(node.weights_of);
  if (node.parameter_prefix != absl::StrCat(node.name, ".")) {
    message.set_parameter_prefix(node.parameter_prefix);
  }
  return message;
}

// Sets an attribute of a loss over classes, which the job says by `key`.
absl::StatusOr<ModelGraph> SetOfLoss(absl::string_view key, const std::string& attribute,
                                     AttributeValue value, ModelGraph model) {
  Node& loss = model.nodes.back();
  const auto attributes = loss.op->attributes;
  const bool has_it = std::any_of(attributes.begin(), attributes.end(),
                                  [&](const AttributeSpec& a) { return a.name == attribute; });
  if (!has_it) {
    return InvalidKey(key,
                      absl::StrCat("is ", ToString(value), ", but ", loss.name, " (", loss.op->name,
                                   ") is no loss over classes; leave the key out"));
  }
  loss.attributes.Set(attribute, std::move(value));
  return model;
}

}  // namespace

GptConfig GptConfigOf(const v1::GptSpec& gpt) {
  return {.layers = gpt.layers(),
          .width = gpt.width(),
          .heads = gpt.heads(),
          .context = gpt.context(),
          .vocabulary = gpt.vocabulary(),
          .dropout = gpt.dropout(),
          .tied_head = gpt.tied_head(),
          .label_smoothing = gpt.label_smoothing()};
}

absl::StatusOr<ModelGraph> BuildModel(const v1::ModelSpec& spec) {
  absl::StatusOr<ModelGraph> model =
      spec.has_graph() ? BuildGraph(spec.graph()) : BuildFamily(spec);
  if (!model.ok() && spec.has_graph()) return Annotate(model.status(), "model.graph");
  if (model.ok() && spec.has_lora()) model = AddAdapters(spec.lora(), *model);
  if (model.ok() && spec.has_ignored_target()) {
    model = SetOfLoss("model.ignored_target", "ignore", int64_t{spec.ignored_target()},
                      *std::move(model));
  }
  if (model.ok() && spec.has_label_smoothing()) {
    model = SetOfLoss("model.label_smoothing", "label_smoothing", spec.label_smoothing(),
                      *std::move(model));
  }
  if (model.ok() && spec.separate_documents()) {
    model = SeparateDocuments(*model);
    if (!model.ok()) return InvalidKey("model.separate_documents", model.status().message());
  }
  if (model.ok() && spec.init() == kPyTorchInit) InitialiseAsPyTorch(*model);
  if (model.ok() && spec.untie()) Untie(*model);
  return model;
}

absl::StatusOr<ModelGraph> BuildModel(const v1::JobSpec& spec) {
  PENSTOCK_ASSIGN_OR_RETURN(ModelGraph model, BuildModel(spec.model()));
  const auto& layers = spec.pipeline().layer_order();
  if (!layers.empty()) {
    const std::vector<std::string> names(layers.begin(), layers.end());
    absl::StatusOr<ModelGraph> ordered = InLayerOrder(model, names);
    if (!ordered.ok()) return InvalidKey("pipeline.layer_order", ordered.status().message());
    model = *std::move(ordered);
  }
  PENSTOCK_RETURN_IF_ERROR(ApplyGroupsOf(spec, model));
  return model;
}

absl::StatusOr<ModelGraph> BuildGraph(const v1::ModelGraph& message) {
  GraphBuilder builder(kLayersArchitecture);
  for (const v1::ModelPort& port : message.ports()) {
    PENSTOCK_ASSIGN_OR_RETURN(Port built, PortOf(port));
    builder.AddPort(std::move(built));
  }
  for (const v1::ModelLayer& layer : message.layers()) {
    if (layer.nodes().empty()) {
      return absl::InvalidArgumentError(absl::StrCat(layer.name(), ": is a layer without nodes"));
    }
    builder.BeginLayer(layer.name());
    for (const v1::ModelNode& node : layer.nodes()) {
      absl::StatusOr<NodeSpec> spec = NodeOf(node);
      if (!spec.ok()) {
        return Annotate(spec.status(), node.name().empty() ? layer.name() : node.name());
      }
      builder.Add(*std::move(spec));
      PENSTOCK_RETURN_IF_ERROR(builder.status());
    }
  }
  return std::move(builder).Build();
}

v1::ModelGraph ToProto(const ModelGraph& graph) {
  v1::ModelGraph message;
  for (const Port& port : graph.ports) {
    v1::ModelPort& to = *message.add_ports();
    to.set_name(port.name);
    to.set_dtype(Name(port.type.dtype));
    to.mutable_dims()->Assign(port.type.dims.begin(), port.type.dims.end());
    to.set_ids(port.ids);
  }
  for (const LayerSpec& layer : graph.layers) {
    v1::ModelLayer& to = *message.add_layers();
    to.set_name(layer.name);
    for (int n = layer.first_node; n < layer.end_node(); ++n) {
      *to.add_nodes() = ToProto(graph, graph.nodes[n]);
    }
  }
  return message;
}

std::string IdentityOfPretrained(const v1::ModelSpec& spec) {
  if (!spec.has_pretrained()) return "";
  const auto& digests = spec.pretrained().layer_sha256();
  if (digests.empty()) {
    const std::string& directory = spec.pretrained().directory();
    return IsPutPath(directory) ? directory : "of unknown digest";  // the path has a digest
  }
  return CombineLayerDigests(std::vector<std::string>(digests.begin(), digests.end()));
}

StoredModel StoredModelOf(const v1::ModelSpec& spec) {
  if (spec.has_gpt() && !spec.has_lora() && !spec.has_ignored_target()) {
    GptConfig gpt = GptConfigOf(spec.gpt());
    gpt.untie = spec.untie();
    if (spec.has_label_smoothing()) gpt.label_smoothing = spec.label_smoothing();
    return gpt;
  }
  absl::StatusOr<ModelGraph> graph = BuildModel(spec);
  PENSTOCK_CHECK(graph.ok());
  return *std::move(graph);
}

std::string FamilyText(const v1::ModelSpec& spec) {
  // Of other GPTs their numbers say all.
  const bool is_described =
      spec.has_gpt() && (spec.has_pretrained() || spec.has_lora() || spec.has_ignored_target());
  if (!is_described && !spec.has_llama() && !spec.has_bert()) return "";
  v1::ModelSpec family = spec;
  if (family.has_pretrained()) family.mutable_pretrained()->clear_layer_sha256();
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string text;
  PENSTOCK_CHECK(google::protobuf::util::MessageToJsonString(family, &text, options).ok());
  return text;
}

absl::StatusOr<v1::ModelSpec> FamilyOfText(const std::string& text) {
  v1::ModelSpec family;
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;  // of a later version
  const auto parsed = google::protobuf::util::JsonStringToMessage(text, &family, options);
  if (parsed.ok()) return family;
  return absl::DataLossError(
      absl::StrCat("its family is no ModelSpec: ", std::string(parsed.message())));
}

}  // namespace penstock
