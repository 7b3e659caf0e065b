// A model's layers in other orders.
#include "model/layer_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "model/bundle.h"
#include "model/families/gpt.h"
#include "model/graph_builder.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Names = std::vector<std::string>;

// Two branches of a stem, one of two layers, of which one has two nodes and draws; a sum; a loss.
ModelGraph Branches() {
  GraphBuilder builder("layers");
  builder.AddPort({"x", {DType::kF32, {6}}});
  builder.AddPort({"wanted", {DType::kF32, {4}}});
  const auto linear = [&](const std::string& name, const std::string& of, int64_t outputs) {
    builder.BeginLayer(name);
    Attributes attributes;
    attributes.Set("outputs", outputs);
    builder.Add(
        {.name = name, .op = "linear", .attributes = std::move(attributes), .inputs = {of}});
  };
  linear("stem", "x", 5);
  linear("left", "stem", 4);
  linear("right_in", "stem", 3);
  linear("right", "right_in", 4);
  Attributes dropout;
  dropout.Set("probability", 0.5);
  builder.Add({.name = "right_dropped", .op = "dropout", .attributes = std::move(dropout)});
  builder.BeginLayer("sum");
  builder.Add({.op = "add", .inputs = {"left", "right_dropped"}});
  builder.BeginLayer("loss");
  builder.Add({.op = "mse", .inputs = {"sum", "wanted"}});
  absl::StatusOr<ModelGraph> model = std::move(builder).Build();
  EXPECT_THAT(model, IsOk());
  return model.value_or(ModelGraph());
}

const Node& NodeNamed(const ModelGraph& model, const std::string& name) {
  return *std::find_if(model.nodes.begin(), model.nodes.end(),
                       [&](const Node& node) { return node.name == name; });
}

Names ValuesAt(const ModelGraph& model, int layer) {
  Names names;
  for (const Bundle::Part& part : ActivationsAt(model, layer, 1).parts) {
    names.push_back(model.NameOf(part.value));
  }
  return names;
}

TEST(LayerOrder, AnotherOrder_HasOtherCutsAndTheSameLayers) {
  const ModelGraph model = Branches();
  const Names order = {"stem", "right_in", "right", "left", "sum", "loss"};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph ordered, InLayerOrder(model, order));
  EXPECT_THAT(LayerOrderOf(ordered), ElementsAreArray(order));
  EXPECT_THAT(ValuesAt(model, 2), ElementsAre("stem", "left"));
  EXPECT_THAT(ValuesAt(model, 3), ElementsAre("left", "right_in"));
  EXPECT_THAT(ValuesAt(ordered, 2), ElementsAre("stem", "right_in"));
  EXPECT_THAT(ValuesAt(ordered, 3), ElementsAre("stem", "right_dropped"));
  for (const LayerSpec& layer : model.layers) {
    const auto same =
        std::find_if(ordered.layers.begin(), ordered.layers.end(),
                     [&](const LayerSpec& other) { return other.name == layer.name; });
    ASSERT_NE(same, ordered.layers.end());
    EXPECT_EQ(same->number, layer.number);
    EXPECT_EQ(same->parameters, layer.parameters);
    EXPECT_EQ(same->node_count, layer.node_count);
    for (int n = 0; n < layer.node_count; ++n) {
      EXPECT_EQ(ordered.nodes[same->first_node + n].name, model.nodes[layer.first_node + n].name);
    }
  }
  for (const Node& node : model.nodes) {
    const Node& same = NodeNamed(ordered, node.name);
    EXPECT_EQ(same.draw, node.draw);
    ASSERT_EQ(same.inputs.size(), node.inputs.size());
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      EXPECT_EQ(ordered.NameOf(same.inputs[i]), model.NameOf(node.inputs[i])) << node.name;
    }
  }
}

TEST(LayerOrder, BackInTheDescribedOrder_IsTheModel) {
  const ModelGraph model = Branches();
  EXPECT_THAT(LayerOrderOf(model), IsEmpty());
  const Names order = {"stem", "right_in", "left", "right", "sum", "loss"};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph ordered, InLayerOrder(model, order));
  EXPECT_NE(ordered, model);
  // An order of an order is one of the model.
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const ModelGraph again,
      InLayerOrder(ordered, Names{"stem", "left", "right_in", "right", "sum", "loss"}));
  EXPECT_EQ(again, model);
}

TEST(LayerOrder, WrongOrders_AreRefusedByTheLayersName) {
  const ModelGraph model = Branches();
  const auto expect_refused = [&](const Names& order, const std::string& why) {
    EXPECT_THAT(InLayerOrder(model, order),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why)));
  };
  expect_refused({"stem", "left", "right", "right_in", "sum", "loss"},
                 "has right before right_in, whose output it reads");
  expect_refused({"stem", "left", "right_in", "right", "loss", "sum"}, "has loss before sum");
  expect_refused({"stem", "left", "right_in", "right", "sum"}, "lacks loss; expected all 6 layers");
  expect_refused({"stem", "left", "left", "right_in", "right", "sum", "loss"}, "names left twice");
  expect_refused({"stem", "right_dropped"}, "names \"right_dropped\", which is no layer");
}

TEST(LayerOrder, OfATiedModel_KeepsTheOwnerOfWeightsBeforeTheirOtherUses) {
  GraphBuilder builder("layers");
  builder.AddPort({"ids", {DType::kI32, {3}}});
  builder.AddPort({"more", {DType::kF32, {3, 4}}});
  builder.AddPort({"targets", {DType::kI32, {3}}});
  Attributes table;
  table.Set("vocabulary", int64_t{7});
  table.Set("width", int64_t{4});
  builder.BeginLayer("table");
  builder.Add({.op = "embedding", .attributes = table, .inputs = {"ids"}});
  builder.BeginLayer("other");
  builder.Add({.op = "tanh", .inputs = {"more"}});
  builder.BeginLayer("sum");
  builder.Add({.op = "add", .inputs = {"table", "other"}});
  builder.BeginLayer("head");
  Attributes linear;
  linear.Set("outputs", int64_t{7});
  linear.Set("bias", false);
  builder.Add({.name = "logits", .op = "linear", .attributes = linear, .weights_of = "table"});
  builder.Add({.name = "loss", .op = "cross_entropy", .inputs = {"logits", "targets"}});
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph model, std::move(builder).Build());
  ASSERT_TRUE(model.tied());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph ordered,
                                InLayerOrder(model, Names{"other", "table", "sum", "head"}));
  EXPECT_EQ(ordered.ties.front().uses, (std::vector<int>{1, 3}));
  EXPECT_THAT(InLayerOrder(ordered, Names{"table", "other", "sum", "head"}), IsOkAndHolds(model));
}

// A layer that reads no other's output could come first, were it not for the weight that it shares.
TEST(LayerOrder, ThatPutsAUseBeforeTheOwner_IsRefused) {
  GraphBuilder builder("layers");
  builder.AddPort({"left", {DType::kF32, {4}}});
  builder.AddPort({"right", {DType::kF32, {4}}});
  builder.AddPort({"wanted", {DType::kF32, {4}}});
  Attributes linear;
  linear.Set("outputs", int64_t{4});
  builder.BeginLayer("a");
  builder.Add({.name = "a", .op = "linear", .attributes = linear, .inputs = {"left"}});
  builder.BeginLayer("b");
  builder.Add(
      {.name = "b", .op = "linear", .attributes = linear, .inputs = {"right"}, .weights_of = "a"});
  builder.BeginLayer("end");
  builder.Add({.name = "sum", .op = "add", .inputs = {"a", "b"}});
  builder.Add({.name = "loss", .op = "mse", .inputs = {"sum", "wanted"}});
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph model, std::move(builder).Build());
  EXPECT_THAT(InLayerOrder(model, Names{"b", "a", "end"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("has b before a, whose a.weight it shares; put it behind")));
}

}  // namespace
}  // namespace penstock
