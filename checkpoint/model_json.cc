#include "checkpoint/model_json.h"

#include <utility>

#include "checkpoint/strict_json.h"
#include "model/graph_builder.h"

namespace penstock {
namespace {

using Json = nlohmann::json;

// What builds before shared weights could be untied do not know, and say nothing of.
void SetUntie(bool untie, Json& json) {
  if (untie) json["untie"] = true;
}
bool UntieOf(const Json& json) { return json.contains("untie") && json.at("untie").get<bool>(); }

Json GptToJson(const GptConfig& model) {
  Json json = {{"layers", model.layers},         {"width", model.width},
               {"heads", model.heads},           {"context", model.context},
               {"vocabulary", model.vocabulary}, {"dropout", model.dropout},
               {"tied_head", model.tied_head}};
  SetUntie(model.untie, json);
  if (model.label_smoothing > 0.0) json["label_smoothing"] = model.label_smoothing;
  return json;
}

GptConfig GptFromJson(const Json& gpt) {
  return {.layers = WholeNumber(gpt.at("layers")),
          .width = WholeNumber(gpt.at("width")),
          .heads = WholeNumber(gpt.at("heads")),
          .context = WholeNumber(gpt.at("context")),
          .vocabulary = WholeNumber(gpt.at("vocabulary")),
          .dropout = gpt.at("dropout").get<double>(),
          .tied_head = gpt.at("tied_head").get<bool>(),
          .untie = UntieOf(gpt),
          .label_smoothing = gpt.value("label_smoothing", 0.0)};
}

Json AttributeToJson(const Attributes::Entry& entry) {
  struct Value {
    Json operator()(bool flag) const { return {{"flag", flag}}; }
    Json operator()(int64_t integer) const { return {{"integer", integer}}; }
    Json operator()(double number) const { return {{"number", number}}; }
    Json operator()(const std::string& word) const { return {{"word", word}}; }
    Json operator()(const std::vector<int64_t>& values) const {
      return {{"integers", {{"values", values}}}};
    }
    Json operator()(const std::vector<double>& values) const {
      return {{"numbers", {{"values", values}}}};
    }
  };
  Json json = std::visit(Value(), entry.second);
  json["name"] = entry.first;
  return json;
}

AttributeValue AttributeFromJson(const Json& json) {
  if (json.contains("flag")) return json.at("flag").get<bool>();
  if (json.contains("integer")) return WholeNumber(json.at("integer"));
  if (json.contains("number")) return json.at("number").get<double>();
  if (json.contains("word")) return json.at("word").get<std::string>();
  if (json.contains("numbers")) return json.at("numbers").at("values").get<std::vector<double>>();
  return WholeNumbers(json.at("integers").at("values"));
}

Json PortToJson(const Port& port) {
  return {{"name", port.name},
          {"dtype", Name(port.type.dtype)},
          {"dims", port.type.dims},
          {"ids", port.ids}};
}

Json NodeToJson(const ModelGraph& graph, const Node& node) {
  Json attributes = Json::array();
  for (const Attributes::Entry& entry : node.attributes.entries()) {
    attributes.push_back(AttributeToJson(entry));
  }
  Json inputs = Json::array();
  for (const int input : node.inputs) inputs.push_back(graph.NameOf(input));
  Json json = {{"name", node.name},
               {"op", std::string(node.op->name)},
               {"attributes", std::move(attributes)},
               {"inputs", std::move(inputs)},
               {"parameter_prefix", node.parameter_prefix}};
  if (!node.weights_of.empty()) json["weights_of"] = node.weights_of;
  return json;
}

NodeSpec NodeFromJson(const Json& json) {
  NodeSpec spec = {.name = json.at("name").get<std::string>(),
                   .op = json.at("op").get<std::string>(),
                   .inputs = json.at("inputs").get<std::vector<std::string>>(),
                   .parameter_prefix = json.at("parameter_prefix").get<std::string>()};
  for (const Json& attribute : json.at("attributes")) {
    spec.attributes.Set(attribute.at("name").get<std::string>(), AttributeFromJson(attribute));
  }
  if (json.contains("weights_of")) spec.weights_of = json.at("weights_of").get<std::string>();
  return spec;
}

Json GraphToJson(const ModelGraph& graph) {
  Json ports = Json::array(), layers = Json::array();
  for (const Port& port : graph.ports) ports.push_back(PortToJson(port));
  for (const LayerSpec& layer : graph.layers) {
    Json nodes = Json::array();
    for (int n = layer.first_node; n < layer.end_node(); ++n) {
      nodes.push_back(NodeToJson(graph, graph.nodes[n]));
    }
    layers.push_back({{"name", layer.name}, {"nodes", std::move(nodes)}});
  }
  Json json = {{"ports", std::move(ports)}, {"layers", std::move(layers)}};
  SetUntie(graph.untied, json);
  return json;
}

std::optional<ModelGraph> GraphFromJson(const Json& json) {
  GraphBuilder builder(kLayersArchitecture);
  for (const Json& port : json.at("ports")) {
    const std::optional<DType> dtype = DTypeNamed(port.at("dtype").get<std::string>());
    if (!dtype.has_value()) return std::nullopt;
    builder.AddPort({port.at("name").get<std::string>(),
                     {*dtype, WholeNumbers(port.at("dims"))},
                     WholeNumber(port.at("ids"))});
  }
  for (const Json& layer : json.at("layers")) {
    if (layer.at("nodes").empty()) return std::nullopt;
    builder.BeginLayer(layer.at("name").get<std::string>());
    for (const Json& node : layer.at("nodes")) builder.Add(NodeFromJson(node));
  }
  absl::StatusOr<ModelGraph> graph = std::move(builder).Build();
  if (!graph.ok()) return std::nullopt;
  if (UntieOf(json)) Untie(*graph);
  return *std::move(graph);
}

}  // namespace

Json ModelToJson(const StoredModel& model) {
  if (const auto* gpt = std::get_if<GptConfig>(&model)) return {{"gpt", GptToJson(*gpt)}};
  return {{"graph", GraphToJson(std::get<ModelGraph>(model))}};
}

std::optional<StoredModel> ModelFromJson(const Json& json) {
  if (json.contains("gpt")) return GptFromJson(json.at("gpt"));
  if (!json.contains("graph")) return std::nullopt;
  std::optional<ModelGraph> graph = GraphFromJson(json.at("graph"));
  if (!graph.has_value()) return std::nullopt;
  return *std::move(graph);
}

}  // namespace penstock
