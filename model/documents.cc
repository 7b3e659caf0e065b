#include "model/documents.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "model/decode_step.h"
#include "model/ops/list.h"

namespace penstock {
namespace {

bool ReadsPositions(const Node& node) {
  return node.op == &ops::kRope || node.op == &ops::kAttention;
}

// Errors: what SeparateDocuments says, without the node's name.
absl::Status CheckKeepsApart(const ModelGraph& model, const Node& node, int64_t time) {
  if (IsStepwise(*node.op)) return absl::OkStatus();
  if (node.op == &ops::kReshape && node.output.dims[0] == time) return absl::OkStatus();
  if (node.op == &ops::kRope && node.inputs.size() == 1) return absl::OkStatus();
  if (node.op == &ops::kAttention) {
    const bool is_free = node.inputs.size() % 2 == 1 && node.attributes.flag("causal") &&
                         model.TypeOf(node.inputs.back()).dims[0] == time;
    if (is_free) return absl::OkStatus();
    return absl::UnimplementedError(
        "attention sees later time steps, or is bounded otherwise, so that it cannot keep "
        "documents apart");
  }
  return absl::UnimplementedError(
      absl::StrCat(node.op->name,
                   " does not know where documents begin; a model of rope, causal attention and "
                   "ops on single time steps does, such as model.llama"));
}

}  // namespace

int FindPositionsPort(const ModelGraph& model) {
  const auto found = std::find_if(model.ports.begin(), model.ports.end(),
                                  [](const Port& port) { return port.name == kPositionsPort; });
  return found == model.ports.end() ? -1 : static_cast<int>(found - model.ports.begin());
}

absl::StatusOr<ModelGraph> SeparateDocuments(const ModelGraph& model) {
  const bool reads_tokens = model.ports.size() == 2 && model.ports[0].type.dims.size() == 1 &&
                            model.ports[0].type.dtype == DType::kI32;
  if (!reads_tokens) {
    return absl::UnimplementedError("the model does not read tokens and their targets alone");
  }
  const int64_t time = model.ports[0].type.dims[0];
  const auto port = static_cast<int>(model.ports.size());
  ModelGraph separate = model;
  separate.ports.push_back({kPositionsPort, {DType::kI32, {time}}, time});
  for (Node& node : separate.nodes) {
    const absl::Status kept = CheckKeepsApart(model, node, time);
    if (!kept.ok()) {
      return absl::Status(kept.code(), absl::StrCat(node.name, ": ", kept.message()));
    }
    for (int& input : node.inputs) input += input < port ? 0 : 1;
    if (ReadsPositions(node)) node.inputs.push_back(port);
  }
  return separate;
}

ModelGraph JoinDocuments(const ModelGraph& model) {
  const int port = FindPositionsPort(model);
  if (port < 0) return model;
  ModelGraph joined = model;
  joined.ports.erase(joined.ports.begin() + port);
  for (Node& node : joined.nodes) {
    std::vector<int>& inputs = node.inputs;
    const bool reads = std::find(inputs.begin(), inputs.end(), port) != inputs.end();
    if (reads && !ReadsPositions(node)) return model;
    inputs.erase(std::remove(inputs.begin(), inputs.end(), port), inputs.end());
    for (int& input : inputs) input -= input > port ? 1 : 0;
  }
  return joined;
}

}  // namespace penstock
