#include "job/yaml/layer_list.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "job/keys/suggest.h"
#include "job/model_graph.h"

namespace penstock {
namespace {

absl::Status TakenName(absl::string_view name) {
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": there are two layers or inputs of this name; give each its own"));
}

}  // namespace

// The builder checks node by node; where layers begin is known when all nodes are.
LayerList::LayerList() : builder_(kLayersArchitecture) {}

absl::Status LayerList::AddInput(Port port) {
  if (has_ops_) {
    return absl::InvalidArgumentError(
        absl::StrCat(port.name, ": inputs stand before all ops; move it to the start"));
  }
  const std::string name = port.name;
  builder_.AddPort(std::move(port));
  PENSTOCK_RETURN_IF_ERROR(builder_.status());
  if (values_.empty()) before_ = name;
  values_[name] = name;
  return absl::OkStatus();
}

absl::StatusOr<std::string> LayerList::Add(NodeSpec op) {
  op.name = prefix() + (op.name.empty() ? FreeName(op.op) : op.name);
  const std::string name = op.name;
  if (IsTaken(name)) return TakenName(name);
  if (op.inputs.empty() && !before_.empty()) op.inputs = {before_};
  if (!std::exchange(has_ops_, true)) builder_.BeginLayer("all");
  builder_.Add(std::move(op));
  PENSTOCK_RETURN_IF_ERROR(builder_.status());
  values_[name] = name;
  before_ = name;
  blocks_of_ops_.push_back(in_block_ ? block_ : "");
  return name;
}

absl::StatusOr<std::string> LayerList::Find(absl::string_view name) const {
  std::vector<std::string> known;
  for (size_t depth = scopes_.size() + 1; depth-- > 0;) {
    const std::string scope = depth == 0 ? "" : scopes_[depth - 1] + ".";
    const auto found = values_.find(absl::StrCat(scope, name));
    if (found != values_.end()) return found->second;
    for (auto it = values_.lower_bound(scope); it != values_.end(); ++it) {
      if (it->first.compare(0, scope.size(), scope) != 0) break;
      known.push_back(it->first.substr(scope.size()));
    }
  }
  const std::string nearest = NearestName(name, known);
  return absl::InvalidArgumentError(absl::StrCat(
      "reads \"", name, "\", which is no input of the model and no layer before this one",
      nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?")));
}

absl::Status LayerList::EnterScope(absl::string_view name) {
  const std::string full = absl::StrCat(prefix(), name);
  if (IsTaken(full)) return TakenName(full);
  scopes_.push_back(full);
  return absl::OkStatus();
}

void LayerList::LeaveScope() {
  values_[scopes_.back()] = before_;
  scopes_.pop_back();
}

std::string LayerList::FreeName(absl::string_view base) const {
  std::string name(base);
  for (int number = 2; IsTaken(prefix() + name); ++number) name = absl::StrCat(base, "_", number);
  return name;
}

void LayerList::BeginBlock() {
  in_block_ = true;
  block_ = scopes_.back();
}

void LayerList::EndBlock() { in_block_ = false; }

std::vector<LayerSpec> LayerList::CutIntoLayers(const ModelGraph& graph) const {
  std::vector<LayerSpec> layers;
  bool may_grow = false;  // the layer has no parameters yet, and is no block
  for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n) {
    const std::string& block = blocks_of_ops_[n];
    const bool has_parameters = !graph.nodes[n].parameters.empty();
    const bool begins = layers.empty() ||
                        (block.empty() ? has_parameters && !may_grow : block != layers.back().name);
    if (begins) {
      layers.push_back({.name = block.empty() ? graph.nodes[n].name : block, .first_node = n});
      may_grow = block.empty() && !has_parameters;
    } else if (may_grow && has_parameters) {
      layers.back().name = graph.nodes[n].name;
      may_grow = false;
    }
    ++layers.back().node_count;
  }
  return layers;
}

absl::StatusOr<v1::ModelGraph> LayerList::Build() && {
  PENSTOCK_ASSIGN_OR_RETURN(ModelGraph graph, std::move(builder_).Build());
  graph.layers = CutIntoLayers(graph);
  v1::ModelGraph message = ToProto(graph);
  PENSTOCK_RETURN_IF_ERROR(BuildGraph(message).status());  // with these layers
  return message;
}

}  // namespace penstock
