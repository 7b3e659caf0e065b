#include "model/graph_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int64_t kSteps = 8, kFeatures = 4, kIds = 11;

ValueType Activation() { return {DType::kF32, {kSteps, kFeatures}}; }

NodeSpec Embedding() {
  return {.op = "gpt_embedding",
          .attributes = {{"vocabulary", kIds}, {"context", kSteps}, {"width", kFeatures}},
          .inputs = {"tokens"}};
}
NodeSpec Norm(std::string name = "") {
  return {.name = std::move(name), .op = "layer_norm", .attributes = {{"width", kFeatures}}};
}
NodeSpec Head(std::vector<std::string> inputs) {
  return {.op = "gpt_head",
          .attributes = {{"vocabulary", kIds}, {"width", kFeatures}},
          .inputs = std::move(inputs)};
}

// Two ports and an embedding, to which tests add.
GraphBuilder Started() {
  GraphBuilder builder("layers");
  builder.AddPort({"tokens", {DType::kI32, {kSteps}}, kIds});
  builder.AddPort({"targets", {DType::kI32, {kSteps}}, kIds});
  builder.BeginLayer("embedding");
  builder.Add(Embedding());
  return builder;
}
absl::StatusOr<ModelGraph> Ended(GraphBuilder builder, const std::string& read) {
  builder.BeginLayer("head");
  builder.Add(Head({read, "targets"}));
  return std::move(builder).Build();
}

std::vector<std::string> NamesOf(const std::vector<ParameterSpec>& parameters) {
  std::vector<std::string> names;
  for (const ParameterSpec& parameter : parameters) names.push_back(parameter.name);
  return names;
}

TEST(GraphBuilder, NodeWithoutInputs_ReadsTheOneBefore) {
  GraphBuilder builder = Started();
  builder.BeginLayer("norm");
  builder.Add(Norm());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph graph, Ended(std::move(builder), "norm"));
  ASSERT_EQ(graph.nodes.size(), 3u);
  EXPECT_THAT(graph.nodes[0].inputs, ElementsAre(0));
  EXPECT_THAT(graph.nodes[1].inputs, ElementsAre(graph.ValueOf(0)));
  EXPECT_THAT(graph.nodes[2].inputs, ElementsAre(graph.ValueOf(1), 1));
  EXPECT_EQ(graph.nodes[1].output, Activation());
  EXPECT_EQ(graph.size(), 3);
  EXPECT_EQ(graph.layers[1].name, "norm");
}

TEST(GraphBuilder, LayerOfSeveralNodes_HasTheParametersOfAll) {
  GraphBuilder builder = Started();
  builder.BeginLayer("norms");
  builder.Add(Norm("first"));
  builder.Add(Norm("second"));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph graph, Ended(std::move(builder), "second"));
  EXPECT_EQ(graph.layers[1].first_node, 1);
  EXPECT_EQ(graph.layers[1].node_count, 2);
  EXPECT_THAT(NamesOf(graph.layers[1].parameters),
              ElementsAre("first.weight", "first.bias", "second.weight", "second.bias"));
  EXPECT_EQ(graph.LayerOfNode(2), 1);
  EXPECT_EQ(graph.LayerOfNode(3), 2);
}

TEST(GraphBuilder, ParameterPrefix_StandsInThePlaceOfTheNodesName) {
  GraphBuilder builder = Started();
  builder.BeginLayer("norm");
  NodeSpec norm = Norm();
  norm.parameter_prefix = "ln_f.";
  builder.Add(norm);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph graph, Ended(std::move(builder), "norm"));
  EXPECT_THAT(NamesOf(graph.nodes[1].parameters), ElementsAre("ln_f.weight", "ln_f.bias"));
}

// A layer's name stands in the names of files, a parameter's inside one.
TEST(GraphBuilder, NamesOfNodesAndParameters_MayHaveSlashes) {
  GraphBuilder builder = Started();
  builder.BeginLayer("norm");
  builder.Add(Norm("up/norm"));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph graph, Ended(std::move(builder), "up/norm"));
  EXPECT_THAT(NamesOf(graph.layers[1].parameters), ElementsAre("up/norm.weight", "up/norm.bias"));
}

// A norm's gain and bias have one shape: each is to find its own.
TEST(GraphBuilder, WeightsOf_SharesTheParametersOfAnEarlierNode) {
  GraphBuilder builder = Started();
  builder.BeginLayer("norms");
  builder.Add(Norm("one"));
  NodeSpec norm = Norm("two");
  norm.weights_of = "one";
  builder.Add(norm);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph graph, Ended(std::move(builder), "two"));
  EXPECT_THAT(NamesOf(graph.nodes[2].parameters), ElementsAre("one.weight", "one.bias"));
  EXPECT_EQ(graph.nodes[2].parameters, graph.nodes[1].parameters);
  EXPECT_FALSE(graph.tied()) << "no other layer uses them";
  // A shared tensor counts once.
  EXPECT_EQ(graph.parameter_count(),
            (kIds + kSteps) * kFeatures + 2 * kFeatures + kIds * kFeatures);
}

TEST(GraphBuilder, HeadWithTheWeightsOfTheEmbedding_IsTied) {
  GraphBuilder builder = Started();
  builder.BeginLayer("head");
  NodeSpec head = Head({"embedding", "targets"});
  head.weights_of = "embedding";
  builder.Add(head);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph graph, std::move(builder).Build());
  ASSERT_EQ(graph.ties.size(), 1u);
  EXPECT_THAT(NamesOf(graph.ties[0].parameters), ElementsAre("embedding.wte.weight"));
  EXPECT_THAT(graph.ties[0].uses, ElementsAre(0, 1));
}

// The input of the second LSTM is as wide as the state of the first, so that the first one's two matrices could be mistaken
// for each other.
TEST(GraphBuilder, WeightsOf_OfOneOp_GoesByName) {
  const auto lstm = [](std::string name, std::string of, std::string weights_of) {
    return NodeSpec{.name = std::move(name),
                    .op = "lstm",
                    .attributes = {{"hidden", int64_t{6}}},
                    .inputs = {std::move(of)},
                    .weights_of = std::move(weights_of)};
  };
  GraphBuilder other_width = Started();
  other_width.BeginLayer("lstms");
  other_width.Add(lstm("a", "embedding", ""));
  other_width.Add(lstm("b", "a", "a"));
  EXPECT_THAT(other_width.status(),
              StatusIs(kInvalid, AllOf(StartsWith("b: weights_of: b.weight_ih_l0 is [24, 6]"),
                                       HasSubstr("but a.weight_ih_l0 [24, 4]"))));
  GraphBuilder same_width = Started();
  same_width.BeginLayer("lstms");
  same_width.Add(lstm("a", "embedding", ""));
  same_width.Add(lstm("b", "embedding", "a"));
  same_width.Add(lstm("c", "embedding", "b"));
  EXPECT_THAT(same_width.status(), IsOk());
  same_width.Add({.name = "sum", .op = "add", .inputs = {"a", "b", "c"}});
  same_width.Add({.name = "narrow",
                  .op = "linear",
                  .attributes = {{"outputs", kFeatures}},
                  .inputs = {"sum"}});
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph graph, Ended(std::move(same_width), "narrow"));
  EXPECT_THAT(NamesOf(graph.nodes[3].parameters),
              ElementsAre("a.weight_ih_l0", "a.weight_hh_l0", "a.bias_ih_l0", "a.bias_hh_l0"));
}

// The second half of an autoencoder: the matrix [6, 4] is read the other way, and the bias of 4 is its own.
TEST(GraphBuilder, WeightsOfAnotherLayout_AreReadTransposed) {
  NodeSpec linear = {.name = "encoded", .op = "linear", .attributes = {{"outputs", int64_t{6}}}};
  GraphBuilder builder = Started();
  builder.BeginLayer("maps");
  builder.Add(linear);
  linear.name = "decoded";
  linear.weights_of = "encoded";
  linear.attributes = {{"outputs", kFeatures}};
  linear.attributes.Set("layout", std::string("inputs_first"));
  builder.Add(linear);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph graph, Ended(std::move(builder), "decoded"));
  EXPECT_THAT(NamesOf(graph.nodes[2].parameters), ElementsAre("encoded.weight", "decoded.bias"));
}

// The bias that the other one is without.
TEST(GraphBuilder, WeightsOf_OfOneOp_LeavesWhatTheOtherLacks) {
  NodeSpec linear = {
      .name = "one", .op = "linear", .attributes = {{"outputs", kFeatures}, {"bias", false}}};
  GraphBuilder builder = Started();
  builder.BeginLayer("maps");
  builder.Add(linear);
  linear.name = "two";
  linear.weights_of = "one";
  linear.attributes.Set("bias", true);
  builder.Add(linear);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph graph, Ended(std::move(builder), "two"));
  EXPECT_THAT(NamesOf(graph.nodes[2].parameters), ElementsAre("one.weight", "two.bias"));
}

NodeSpec NormWithWeightsOf(std::string name, std::string other) {
  NodeSpec norm = Norm(std::move(name));
  norm.weights_of = std::move(other);
  return norm;
}

// Norms of two kinds: "a" in three layers, of which one uses it twice, and "b" in two. The head shares the table.
ModelGraph WithTies() {
  GraphBuilder builder = Started();
  builder.BeginLayer("a");
  builder.Add(Norm());
  builder.BeginLayer("b");
  builder.Add(Norm());
  builder.BeginLayer("more");
  builder.Add(NormWithWeightsOf("a2", "a"));
  builder.Add(NormWithWeightsOf("a3", "a2"));
  builder.Add(NormWithWeightsOf("b2", "b"));
  builder.BeginLayer("last_norm");
  builder.Add(NormWithWeightsOf("", "a"));
  builder.BeginLayer("head");
  NodeSpec head = Head({"last_norm", "targets"});
  head.weights_of = "embedding";
  builder.Add(head);
  return *std::move(builder).Build();
}

TEST(GraphBuilder, Ties_HaveTheParametersThatTheSameLayersUse) {
  const ModelGraph graph = WithTies();
  ASSERT_EQ(graph.ties.size(), 3u);
  EXPECT_THAT(graph.ties[0].uses, ElementsAre(0, 5));
  EXPECT_THAT(NamesOf(graph.ties[0].parameters), ElementsAre("embedding.wte.weight"));
  EXPECT_THAT(graph.ties[1].uses, ElementsAre(1, 3, 3, 4));
  EXPECT_THAT(NamesOf(graph.ties[1].parameters), ElementsAre("a.weight", "a.bias"));
  EXPECT_THAT(graph.ties[2].uses, ElementsAre(2, 3));
  const std::map<std::string, int> elsewhere = {
      {"a.weight", 1}, {"a.bias", 1}, {"b.weight", 2}, {"b.bias", 2}};
  EXPECT_EQ(graph.OwnersElsewhere(3), elsewhere);
  EXPECT_TRUE(graph.OwnersElsewhere(1).empty()) << "they are its own";
  EXPECT_EQ(graph.parameter_count(), (kIds + kSteps) * kFeatures + 2 * 2 * kFeatures);
}

TEST(Untie, GivesEveryUseAParameterNamedAfterItsNodeWithTheSameInitialValues) {
  ModelGraph graph = WithTies();
  Untie(graph);
  EXPECT_TRUE(graph.untied);
  EXPECT_FALSE(graph.tied());
  EXPECT_EQ(graph.parameter_count(), (2 * kIds + kSteps) * kFeatures + 6 * 2 * kFeatures);
  EXPECT_THAT(NamesOf(graph.layers[1].parameters), ElementsAre("a.weight", "a.bias"));
  EXPECT_TRUE(graph.layers[1].parameters[0].initial_as.empty());
  EXPECT_THAT(NamesOf(graph.layers[3].parameters),
              ElementsAre("a2.weight", "a2.bias", "a3.weight", "a3.bias", "b2.weight", "b2.bias"));
  EXPECT_EQ(graph.layers[3].parameters[3].initial_as, "a.bias");
  EXPECT_EQ(graph.nodes.back().parameters, graph.layers.back().parameters);
  EXPECT_EQ(graph.layers.back().parameters[0].initial_as, "embedding.wte.weight");
  ModelGraph nothing_shared = *Ended(Started(), "embedding");
  const ModelGraph before = nothing_shared;
  Untie(nothing_shared);
  EXPECT_EQ(nothing_shared, before);
}

TEST(GraphBuilder, DrawingNodes_HaveNumbersOfTheirOwn) {
  GraphBuilder builder = Started();
  const auto branch = [](std::string name) {
    return NodeSpec{.name = std::move(name),
                    .op = "mlp_branch",
                    .attributes = {{"width", kFeatures}, {"hidden", int64_t{16}}}};
  };
  builder.BeginLayer("branches");
  builder.Add(branch("a"));
  builder.Add(Norm("norm"));
  builder.Add(branch("b"));
  builder.BeginLayer("other");
  builder.Add(branch(""));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph graph, Ended(std::move(builder), "other"));
  std::vector<uint32_t> draws;
  for (const Node& node : graph.nodes) {
    if (node.op->draws) draws.push_back(node.draw);
  }
  EXPECT_THAT(draws, ElementsAre(0u, 1u, 1u | 1u << 20, 2u));
}

TEST(GraphBuilder, NeedsGradient_WhereSomethingTrainedIsRead) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph graph, Ended(Started(), "embedding"));
  EXPECT_FALSE(graph.NeedsGradient(0));
  EXPECT_FALSE(graph.NeedsGradient(1));
  EXPECT_TRUE(graph.NeedsGradient(2));
  EXPECT_TRUE(graph.NeedsGradient(3));
}

TEST(GraphBuilder, FirstStage_HasALayerWithParameters) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph trained, Ended(Started(), "embedding"));
  EXPECT_EQ(trained.first_stage_layers_min(), 1);
  EXPECT_EQ(trained.stages_max(), 2);
  GraphBuilder builder("layers");
  builder.AddPort({"x", Activation()});
  builder.AddPort({"y", Activation()});
  for (const char* layer : {"one", "two"}) {
    builder.BeginLayer(layer);
    builder.Add({.op = "relu", .inputs = {layer == std::string("one") ? "x" : "one"}});
  }
  builder.BeginLayer("norm");
  builder.Add(Norm());
  builder.BeginLayer("loss");
  builder.Add({.op = "mse", .inputs = {"norm", "y"}});
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph graph, std::move(builder).Build());
  EXPECT_EQ(graph.first_stage_layers_min(), 3);
  EXPECT_EQ(graph.stages_max(), 2);
}

TEST(GraphBuilder, TypeOf_KnowsPortsAndNodesByName) {
  const GraphBuilder builder = Started();
  ASSERT_NE(builder.TypeOf("embedding"), nullptr);
  EXPECT_EQ(*builder.TypeOf("embedding"), Activation());
  ASSERT_NE(builder.TypeOf("tokens"), nullptr);
  EXPECT_EQ(*builder.TypeOf("tokens"), (ValueType{DType::kI32, {kSteps}}));
  EXPECT_EQ(builder.TypeOf("nothing"), nullptr);
}

// Adds one node in a layer "bad", and says what is wrong with the model.
absl::Status StatusWith(NodeSpec spec) {
  GraphBuilder builder = Started();
  builder.BeginLayer("bad");
  builder.Add(std::move(spec));
  const absl::Status status = builder.status();
  EXPECT_EQ(Ended(std::move(builder), "bad").status(), status) << "the first error is kept";
  return status;
}

TEST(GraphBuilderErrors, UnknownOp_ListsThoseThatThereAre) {
  EXPECT_THAT(
      StatusWith({.op = "layer_nrom"}),
      StatusIs(absl::StatusCode::kNotFound,
               AllOf(StartsWith("bad: "), HasSubstr("layer_nrom"), HasSubstr("layer_norm"))));
}

TEST(GraphBuilderErrors, UnknownInput_IsNamed) {
  NodeSpec norm = Norm();
  norm.inputs = {"embeding"};
  EXPECT_THAT(StatusWith(norm), StatusIs(kInvalid, AllOf(StartsWith("bad: reads \"embeding\""),
                                                         HasSubstr("no layer before this one"))));
}

TEST(GraphBuilderErrors, InputThatComesLater_IsUnknown) {
  NodeSpec norm = Norm();
  norm.inputs = {"head"};
  EXPECT_THAT(StatusWith(norm), StatusIs(kInvalid, StartsWith("bad: reads \"head\"")));
  norm.inputs = {"bad"};
  EXPECT_THAT(StatusWith(norm), StatusIs(kInvalid, StartsWith("bad: reads \"bad\"")));
}

TEST(GraphBuilderErrors, WrongNumberOfInputs_SaysHowManyTheOpReads) {
  NodeSpec norm = Norm();
  norm.inputs = {"embedding", "embedding"};
  EXPECT_THAT(StatusWith(norm),
              StatusIs(kInvalid, HasSubstr("bad: layer_norm reads 2 values; expected 1")));
  EXPECT_THAT(StatusWith(Head({"embedding"})),
              StatusIs(kInvalid, HasSubstr("bad: gpt_head reads 1 value; expected 2")));
}

TEST(GraphBuilderErrors, ShapesThatDoNotFit_AreNamedWithWhatWould) {
  NodeSpec norm = Norm();
  norm.attributes = {{"width", int64_t{5}}};
  EXPECT_THAT(StatusWith(norm),
              StatusIs(kInvalid, AllOf(StartsWith("bad: f32 [8, 4]"), HasSubstr("f32 [..., 5]"))));
  norm = Norm();
  norm.inputs = {"tokens"};
  EXPECT_THAT(StatusWith(norm), StatusIs(kInvalid, StartsWith("bad: i32 [8] does not fit")));
  EXPECT_THAT(StatusWith(Head({"embedding", "embedding"})),
              StatusIs(kInvalid, HasSubstr("f32 [8, 4] and f32 [8, 4] do not fit")));
  NodeSpec embedding = Embedding();
  embedding.attributes.Set("context", int64_t{7});
  EXPECT_THAT(StatusWith(embedding),
              StatusIs(kInvalid, AllOf(HasSubstr("i32 [8]"), HasSubstr("at most 7 time steps"))));
}

TEST(GraphBuilderErrors, WrongAttribute_IsNamedBehindTheNode) {
  NodeSpec norm = Norm();
  norm.attributes = {{"width", 0.5}};
  EXPECT_THAT(StatusWith(norm), StatusIs(kInvalid, StartsWith("bad: width: is 0.5")));
}

TEST(GraphBuilderErrors, WeightsOfNoNode_AreRefused) {
  for (const char* name : {"nothing", "tokens"}) {
    NodeSpec norm = Norm();
    norm.weights_of = name;
    EXPECT_THAT(StatusWith(norm),
                StatusIs(kInvalid, AllOf(StartsWith("bad: weights_of names"), HasSubstr(name))));
  }
}

TEST(GraphBuilderErrors, WeightsOfOtherShapes_AreRefused) {
  NodeSpec norm = Norm();
  norm.weights_of = "embedding";
  EXPECT_THAT(StatusWith(norm),
              StatusIs(kInvalid, AllOf(StartsWith("bad: weights_of: embedding"),
                                       HasSubstr("no parameter shaped as bad.weight [4]"),
                                       HasSubstr("embedding.wte.weight [11, 4]"))));
}

TEST(GraphBuilderErrors, TwoValuesOfOneName_AreRefused) {
  GraphBuilder builder = Started();
  builder.BeginLayer("norm");
  builder.Add(Norm("embedding"));
  EXPECT_THAT(builder.status(),
              StatusIs(kInvalid, HasSubstr("embedding: there are two values of this name")));
  GraphBuilder ports("layers");
  ports.AddPort({"tokens", {DType::kI32, {kSteps}}});
  ports.AddPort({"tokens", {DType::kI32, {kSteps}}});
  EXPECT_THAT(std::move(ports).Build(),
              StatusIs(kInvalid, HasSubstr("tokens: there are two inputs of this name")));
}

// Such parameters would be one tensor.
TEST(GraphBuilderErrors, ParametersOfOneNameAndOtherShapes_AreRefused) {
  GraphBuilder builder("layers");
  builder.AddPort({"tokens", {DType::kI32, {kSteps}}, kIds});
  builder.AddPort({"targets", {DType::kI32, {kSteps}}, kIds});
  builder.BeginLayer("embedding");
  NodeSpec embedding = Embedding();
  embedding.parameter_prefix = "";
  builder.Add(embedding);
  builder.BeginLayer("head");
  NodeSpec head = Head({"embedding", "targets"});
  head.attributes.Set("vocabulary", kIds + 1);
  head.attributes.Set("weight", std::string("tied"));
  head.parameter_prefix = "";
  builder.Add(head);
  EXPECT_THAT(std::move(builder).Build(),
              StatusIs(kInvalid, AllOf(StartsWith("head: "), HasSubstr("wte.weight"),
                                       HasSubstr("[12, 4]"), HasSubstr("[11, 4] in embedding"))));
}

NodeSpec AdditiveAttention(std::string name, std::string weights_of = "") {
  return {.name = std::move(name),
          .op = "additive_attention",
          .attributes = {{"units", int64_t{3}}},
          .inputs = {"embedding", "embedding"},
          .weights_of = std::move(weights_of)};
}
NodeSpec Linear(std::string name, int64_t outputs, std::string weights_of = "") {
  return {.name = std::move(name),
          .op = "linear",
          .attributes = {{"outputs", outputs}, {"bias", false}},
          .inputs = {"embedding"},
          .weights_of = std::move(weights_of)};
}

// "attn.query.weight" of both, of one shape or not: nobody asked for one tensor.
TEST(GraphBuilderErrors, ParametersWhoseNamesHappenToBeEqual_AreRefused) {
  for (const int64_t outputs : {3, 5}) {
    GraphBuilder builder = Started();
    builder.BeginLayer("attention");
    builder.Add(AdditiveAttention("attn"));
    builder.Add(Linear("attn.query", outputs));
    EXPECT_THAT(builder.status(),
                StatusIs(kInvalid, AllOf(StartsWith("attn.query: "),
                                         HasSubstr("attn.query.weight, which attn before it has"),
                                         HasSubstr("give one of the two another name"),
                                         HasSubstr("weights_of: attn"))));
  }
  GraphBuilder other_order = Started();
  other_order.BeginLayer("attention");
  other_order.Add(Linear("attn.query", 3));
  other_order.Add(AdditiveAttention("attn"));
  EXPECT_THAT(
      other_order.status(),
      StatusIs(kInvalid, AllOf(StartsWith("attn: "), HasSubstr("which attn.query before it has"))));
}

// What a node shares has the other's name, until Untie gives it its own.
TEST(GraphBuilderErrors, NameThatANodeWouldHaveUntied_IsTaken) {
  GraphBuilder builder = Started();
  builder.BeginLayer("attention");
  builder.Add(AdditiveAttention("first"));
  builder.Add(AdditiveAttention("attn", "first"));
  EXPECT_THAT(builder.status(), IsOk());
  builder.Add(Linear("attn.query", 3));
  EXPECT_THAT(builder.status(), StatusIs(kInvalid, StartsWith("attn.query: ")));
}

// State is of one node, whatever its parameters are.
TEST(GraphBuilderErrors, BuffersOfOneName_AreRefused) {
  GraphBuilder builder = Started();
  builder.BeginLayer("norms");
  builder.Add({.name = "one", .op = "batch_norm", .parameter_prefix = "norm."});
  EXPECT_THAT(builder.status(), IsOk());
  builder.Add({.name = "two", .op = "batch_norm", .parameter_prefix = "norm."});
  EXPECT_THAT(builder.status(),
              StatusIs(kInvalid, AllOf(StartsWith("two: "),
                                       HasSubstr("norm.running_mean, which one before it has"))));
}

TEST(GraphBuilder, NodesThatSayOnePrefix_ShareTheParametersOfEqualNames) {
  GraphBuilder builder = Started();
  builder.BeginLayer("norms");
  for (const char* name : {"one", "two"}) {
    NodeSpec norm = Norm(name);
    norm.parameter_prefix = "norm.";
    builder.Add(norm);
  }
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph graph, Ended(std::move(builder), "two"));
  EXPECT_EQ(graph.nodes[1].parameters, graph.nodes[2].parameters);
}

TEST(GraphBuilderErrors, FirstNodeWithoutInputs_HasToNameThem) {
  GraphBuilder builder("layers");
  builder.AddPort({"x", Activation()});
  builder.BeginLayer("norm");
  builder.Add(Norm());
  EXPECT_THAT(std::move(builder).Build(),
              StatusIs(kInvalid, HasSubstr("norm: is the first and so has to name what it reads")));
}

TEST(GraphBuilderErrors, PortWithAnEmptyDimension_IsRefused) {
  for (const int64_t size : {0, -1}) {
    GraphBuilder builder("layers");
    builder.AddPort({"image", {DType::kF32, {size, 4}}});
    EXPECT_THAT(std::move(builder).Build(),
                StatusIs(kInvalid, AllOf(StartsWith("image: "), HasSubstr("at least 1"))));
  }
}

TEST(GraphBuilderErrors, ValueThatNobodyReads_IsNamed) {
  GraphBuilder builder = Started();
  builder.BeginLayer("norm");
  builder.Add(Norm());
  EXPECT_THAT(Ended(std::move(builder), "embedding"),
              StatusIs(kInvalid, HasSubstr("norm: no layer reads it")));
  GraphBuilder unread("layers");
  unread.AddPort({"tokens", {DType::kI32, {kSteps}}, kIds});
  unread.AddPort({"image", Activation()});
  unread.AddPort({"targets", {DType::kI32, {kSteps}}, kIds});
  unread.BeginLayer("embedding");
  unread.Add(Embedding());
  EXPECT_THAT(Ended(std::move(unread), "embedding"),
              StatusIs(kInvalid, HasSubstr("image: no layer reads it")));
}

TEST(GraphBuilderErrors, ModelWithoutALossAtItsEnd_IsRefused) {
  EXPECT_THAT(Started().Build(), StatusIs(kInvalid, HasSubstr("the last layer computes no loss")));
  EXPECT_THAT(GraphBuilder("layers").Build(),
              StatusIs(kInvalid, HasSubstr("the last layer computes no loss")));
}

TEST(GraphBuilderErrors, TwoLosses_AreRefused) {
  GraphBuilder builder = Started();
  builder.BeginLayer("loss");
  builder.Add(Head({"embedding", "targets"}));
  EXPECT_THAT(Ended(std::move(builder), "embedding"),
              StatusIs(kInvalid, HasSubstr("the model has 2 losses")));
}

// Kernels look ids up without a check, so the port has to promise them.
TEST(GraphBuilder, PortWithoutIds_HasThoseOfItsReaders) {
  GraphBuilder builder("layers");
  builder.AddPort({"tokens", {DType::kI32, {kSteps}}});
  builder.AddPort({"targets", {DType::kI32, {kSteps}}, kIds - 1});
  builder.BeginLayer("embedding");
  builder.Add(Embedding());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph graph, Ended(std::move(builder), "embedding"));
  EXPECT_EQ(graph.ports[0].ids, kIds);
  EXPECT_EQ(graph.ports[1].ids, kIds - 1);
}

// An ignored number may be no id; but not where something else looks it up.
TEST(GraphBuilder, IgnoredTargets_MayStandInAPortThatTheLossAloneReads) {
  for (const bool others_read : {false, true}) {
    GraphBuilder builder("layers");
    builder.AddPort({"tokens", {DType::kI32, {kSteps}}});
    builder.AddPort({"targets", {DType::kI32, {kSteps}}});
    builder.BeginLayer("embedding");
    builder.Add({.name = "table",
                 .op = "embedding",
                 .attributes = {{"vocabulary", kIds}, {"width", kIds}},
                 .inputs = {"tokens"}});
    builder.BeginLayer("logits");
    builder.Add({.name = "more",
                 .op = "embedding",
                 .attributes = {{"vocabulary", kIds}, {"width", kIds}},
                 .inputs = {others_read ? "targets" : "tokens"}});
    builder.Add({.name = "sum", .op = "add", .inputs = {"table", "more"}});
    builder.BeginLayer("loss");
    builder.Add({.op = "cross_entropy",
                 .attributes = {{"ignore", int64_t{-100}}},
                 .inputs = {"sum", "targets"}});
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph graph, std::move(builder).Build());
    EXPECT_EQ(graph.loss().ignored, -100);
    EXPECT_EQ(graph.NameOf(graph.targets()), "targets");
    EXPECT_EQ(graph.IgnoredIn(0), std::nullopt);
    EXPECT_EQ(graph.IgnoredIn(1), others_read ? std::nullopt : std::optional<int32_t>(-100));
  }
}

TEST(GraphBuilderErrors, IdsThatAReaderHasNoRowFor_AreRefused) {
  GraphBuilder builder("layers");
  builder.AddPort({"tokens", {DType::kI32, {kSteps}}, kIds + 1});
  builder.BeginLayer("embedding");
  builder.Add(Embedding());
  EXPECT_THAT(builder.status(),
              StatusIs(kInvalid, HasSubstr("embedding: reads tokens as numbers from 0 to 10, but "
                                           "they go to 11")));
}

TEST(GraphBuilderErrors, NamesAndSizesBeyondTheLimits_AreRefused) {
  for (const std::string& name : {std::string(), std::string(200, 'a'), std::string("a b\n")}) {
    GraphBuilder builder("layers");
    builder.AddPort({name, Activation()});
    EXPECT_THAT(std::move(builder).Build(), StatusIs(kInvalid, HasSubstr("is no name")));
  }
  GraphBuilder slash = Started();
  slash.BeginLayer("up/norm");
  slash.Add(Norm());
  EXPECT_THAT(std::move(slash).Build(),
              StatusIs(kInvalid, AllOf(HasSubstr("up/norm: is a layer, which has a file"),
                                       HasSubstr("expected a name without /, such as up.norm"))));
  GraphBuilder large("layers");
  large.AddPort({"image", {DType::kU8, {int64_t{1} << 40, int64_t{1} << 40}}});
  EXPECT_THAT(std::move(large).Build(), StatusIs(kInvalid, HasSubstr("elements; at most")));
  GraphBuilder layers = Started();
  layers.BeginLayer("embedding");
  layers.Add(Norm());
  EXPECT_THAT(std::move(layers).Build(), StatusIs(kInvalid, HasSubstr("two layers of this name")));
}

}  // namespace
}  // namespace penstock
