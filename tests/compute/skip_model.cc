#include "tests/compute/skip_model.h"

#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "model/graph_builder.h"

namespace penstock {
namespace {

constexpr int64_t kTime = 7, kWidth = 12, kFeatures = 5, kVocabulary = 29;

// Each node in a layer of its own.
void AddLayer(GraphBuilder& builder, std::string name, NodeSpec spec) {
  builder.BeginLayer(std::move(name));
  builder.Add(std::move(spec));
}

NodeSpec Linear(int64_t outputs, std::vector<std::string> inputs = {}) {
  return {.op = "linear", .attributes = {{"outputs", outputs}}, .inputs = std::move(inputs)};
}

NodeSpec Of(std::string op, std::vector<std::string> inputs) {
  return {.op = std::move(op), .inputs = std::move(inputs)};
}

}  // namespace

ModelGraph SkipModel(const SkipModelOptions& options) {
  GraphBuilder builder("layers");
  builder.AddPort({"tokens", {DType::kI32, {kTime}}, kVocabulary});
  builder.AddPort({"previous", {DType::kI32, {kTime}}, kVocabulary});
  builder.AddPort({"features", {DType::kF32, {kTime, kFeatures}}});
  builder.AddPort({"targets", {DType::kI32, {kTime}}, kVocabulary});
  // One table for two ports, and for the logits if they are tied.
  NodeSpec table = {
      .name = "table",
      .op = "embedding",
      .attributes = {{"vocabulary", kVocabulary}, {"width", kWidth}, {"deviation", 0.5}},
      .inputs = {"tokens"}};
  builder.BeginLayer("embedding");
  builder.Add(table);
  table.name = "before";
  table.inputs = {"previous"};
  table.weights_of = "table";
  builder.Add(table);
  builder.Add(Of("add", {"table", "before"}));
  AddLayer(builder, "a", Linear(kWidth));
  AddLayer(builder, "b", Of("relu", {"a"}));
  AddLayer(builder, "c", Of("add", {"b", "embedding"}));
  AddLayer(builder, "d", Of("concat", {"c", "a", "embedding"}));
  AddLayer(builder, "e", Linear(kWidth));
  // The second tower begins with a value that nothing is trained for.
  AddLayer(builder, "squares", Of("mul", {"features", "features"}));
  builder.BeginLayer("side");
  NodeSpec of_squares = Linear(kWidth, {"squares"});
  of_squares.name = "of_squares";
  builder.Add(of_squares);
  NodeSpec of_features = Linear(kWidth, {"features"});
  of_features.name = "of_features";
  of_features.weights_of = "of_squares";
  builder.Add(of_features);
  builder.Add(Of("add", {"of_squares", "of_features"}));
  AddLayer(builder, "dropped",
           {.op = "dropout", .attributes = {{"probability", options.dropout}}, .inputs = {"e"}});
  AddLayer(builder, "sum", Of("add", {"dropped", "c", "side", "c"}));
  AddLayer(builder, "flat",
           {.op = "reshape", .attributes = {{"dims", std::vector<int64_t>{kTime * kWidth}}}});
  AddLayer(builder, "rows",
           {.op = "reshape", .attributes = {{"dims", std::vector<int64_t>{kTime, kWidth}}}});
  AddLayer(builder, "norm", {.op = "layer_norm", .attributes = {{"width", kWidth}}});
  AddLayer(builder, "gate", Of("mul", {"norm", "a"}));
  AddLayer(builder, "joined", Of("add", {"gate", "rows"}));
  builder.BeginLayer("head");
  NodeSpec logits = Linear(kVocabulary);
  logits.name = "logits";
  logits.attributes.Set("bias", false);
  if (options.tied) logits.weights_of = "table";
  builder.Add(std::move(logits));
  builder.Add({.name = "loss", .op = "cross_entropy", .inputs = {"logits", "targets"}});
  absl::StatusOr<ModelGraph> graph = std::move(builder).Build();
  PENSTOCK_CHECK(graph.ok());
  return *std::move(graph);
}

}  // namespace penstock
