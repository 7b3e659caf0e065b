#include "services/cli/model_output.h"

#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "model/bundle.h"
#include "model/render_graph.h"
#include "services/cli/table.h"
#include "services/cli/text.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

// Behind a layer, for one sample in f32: what a stage that ends there sends on.
int64_t LiveBytesBehind(const ModelGraph& model, int layer) {
  return ActivationsAt(model, layer + 1, 1).elements * SizeOf(DType::kF32);
}

const ValueType& OutputOf(const ModelGraph& model, const LayerSpec& layer) {
  return model.nodes[layer.end_node() - 1].output;
}

// Visits each parameter that is equal to another at the start.
void ForUntied(const ModelGraph& model, absl::FunctionRef<void(const ParameterSpec&)> visit) {
  for (const LayerSpec& layer : model.layers) {
    for (const ParameterSpec& parameter : layer.parameters) {
      if (!parameter.initial_as.empty()) visit(parameter);
    }
  }
}

// Which weights are shared, or were: a line each.
std::string SharingText(const ModelGraph& model) {
  std::string text;
  const auto name = [&](std::string* out, int layer) {
    absl::StrAppend(out, model.layers[layer].name);
  };
  for (const Tie& tie : model.ties) {
    for (const ParameterSpec& parameter : tie.parameters) {
      absl::StrAppend(&text, parameter.name, " is shared by ", absl::StrJoin(tie.uses, ", ", name),
                      ".\n");
    }
  }
  ForUntied(model, [&](const ParameterSpec& parameter) {
    absl::StrAppend(&text, parameter.name, " was tied to ", parameter.initial_as,
                    " and is a copy of its own, equal at the start (model.untie).\n");
  });
  return text;
}

Json SharingJson(const ModelGraph& model) {
  Json shared = Json::array(), untied = Json::array();
  for (const Tie& tie : model.ties) {
    std::vector<std::string> layers;
    for (const int layer : tie.uses) layers.push_back(model.layers[layer].name);
    for (const ParameterSpec& parameter : tie.parameters) {
      shared.push_back({{"parameter", parameter.name}, {"layers", layers}});
    }
  }
  ForUntied(model, [&](const ParameterSpec& parameter) {
    untied.push_back({{"parameter", parameter.name}, {"copy_of", parameter.initial_as}});
  });
  return {{"shared", std::move(shared)}, {"untied", std::move(untied)}};
}

Json TypeJson(const ValueType& type) { return {{"dtype", Name(type.dtype)}, {"dims", type.dims}}; }

Json FlopsJson(const LayerCost& cost) {
  return {{"forward", cost.forward_flops},
          {"backward_input", cost.backward_input_flops},
          {"backward_weight", cost.backward_weight_flops}};
}

Json NodeJson(const ModelGraph& model, const Node& node) {
  Json attributes = Json::object();
  for (const auto& [name, value] : node.attributes.entries()) {
    std::visit([&, key = name](const auto& v) { attributes[key] = v; }, value);
  }
  std::vector<std::string> inputs;
  for (const int input : node.inputs) inputs.push_back(model.NameOf(input));
  int64_t parameters = 0;
  for (const ParameterSpec& parameter : node.parameters) parameters += parameter.size();
  return {{"node", node.name},
          {"op", std::string(node.op->name)},
          {"attributes", std::move(attributes)},
          {"inputs", inputs},
          {"output", TypeJson(node.output)},
          {"parameters", parameters}};
}

Json LayerJson(const ModelGraph& model, int index) {
  const LayerSpec& layer = model.layers[index];
  Json nodes = Json::array();
  for (int n = layer.first_node; n < layer.end_node(); ++n) {
    nodes.push_back(NodeJson(model, model.nodes[n]));
  }
  return {{"layer", layer.name},
          {"nodes", std::move(nodes)},
          {"output", TypeJson(OutputOf(model, layer))},
          {"parameters", layer.parameter_count()},
          {"flops", FlopsJson(EstimateCost(model, layer))},
          {"live_bytes", LiveBytesBehind(model, index)}};
}

}  // namespace

std::string ModelText(const ModelGraph& model) {
  constexpr auto kRight = Table::Align::kRight;
  Table table({{"LAYER"},
               {"OPS"},
               {"OUTPUT"},
               {"PARAMETERS", kRight},
               {"FLOPS", kRight},
               {"LIVE", kRight}});
  for (int i = 0; i < model.size(); ++i) {
    const LayerSpec& layer = model.layers[i];
    table.AddRow({layer.name, OpsOf(model, layer), OutputOf(model, layer).ToString(),
                  absl::StrCat(layer.parameter_count()),
                  FormatCount(EstimateCost(model, layer).forward_flops),
                  FormatBytes(LiveBytesBehind(model, i))});
  }
  table.AddRow({"total", "", "", absl::StrCat(model.parameter_count()),
                FormatCount(EstimateCost(model).forward_flops), ""});
  const std::string inputs =
      absl::StrJoin(model.ports, ", ", [](std::string* out, const Port& port) {
        absl::StrAppend(out, port.name, " ", port.type.ToString(),
                        port.ids > 0 ? absl::StrCat(" below ", port.ids) : "");
      });
  return absl::StrCat(
      table.Render(), "\nThe model reads ", inputs,
      ".\nFLOPS (of a forward) and LIVE (values that cross a cut behind the layer, in "
      "f32) are those of one sample.\nThe total counts parameters that layers share "
      "once.\n",
      SharingText(model));
}

Json ModelJson(const ModelGraph& model) {
  Json inputs = Json::array(), layers = Json::array();
  for (const Port& port : model.ports) {
    Json input = {{"input", port.name}};
    input.update(TypeJson(port.type));
    input["ids"] = port.ids;
    inputs.push_back(std::move(input));
  }
  for (int i = 0; i < model.size(); ++i) layers.push_back(LayerJson(model, i));
  Json json = {{"architecture", model.architecture},
               {"inputs", std::move(inputs)},
               {"layers", std::move(layers)},
               {"parameters", model.parameter_count()},
               {"flops", FlopsJson(EstimateCost(model))}};
  json.update(SharingJson(model));
  return json;
}

}  // namespace penstock
