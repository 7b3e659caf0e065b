#include "job/model_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "job/yaml/yaml_message.h"
#include "job/yaml/yaml_writer.h"
#include "model/graph_builder.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

// A model as the message, its YAML, and the graph that is made of it again.
void ExpectSurvives(const ModelGraph& graph) {
  v1::ModelSpec spec;
  *spec.mutable_graph() = ToProto(graph);
  EXPECT_THAT(BuildModel(spec), IsOkAndHolds(graph));
  v1::ModelSpec read;
  YamlPositions positions;
  const std::string yaml = WriteYamlMessage(spec, "");
  ASSERT_THAT(ReadYamlMessage(yaml, "model.yaml", read, positions), IsOk()) << yaml;
  EXPECT_THAT(BuildModel(read), IsOkAndHolds(graph)) << yaml;
  EXPECT_EQ(read.SerializeAsString(), spec.SerializeAsString());
}

// Residual branches, skips and shared weights at random.
ModelGraph RandomModel(uint64_t seed) {
  RandomStream random(seed, /*purpose=*/1);
  GraphBuilder builder(kLayersArchitecture);
  const int64_t width = 1 + static_cast<int64_t>(random.Below(8));
  builder.AddPort({"x", {DType::kF32, {3, width}}});
  builder.AddPort({"y", {DType::kI32, {3}}});
  std::vector<std::string> values = {"x"};  // of one shape
  std::string unread = "x";
  const int layers = 1 + static_cast<int>(random.Below(6));
  for (int layer = 0; layer < layers; ++layer) {
    builder.BeginLayer(absl::StrCat("layer.", layer));
    const std::string linear = absl::StrCat("linear.", layer);
    NodeSpec node = {.name = linear, .op = "linear", .attributes = {{"outputs", width}}};
    node.attributes.Set("bias", random.Below(2) == 0);
    node.inputs = {unread};
    if (random.Below(3) == 0) node.parameter_prefix = absl::StrCat("file.", layer, ".");
    builder.Add(node);
    if (random.Below(2) == 0) {
      builder.Add({.name = absl::StrCat(linear, ".again"),
                   .op = "linear",
                   .attributes = {{"outputs", width}, {"bias", false}},
                   .weights_of = linear});
    }
    const std::string sum = absl::StrCat("sum.", layer);
    builder.Add({.name = absl::StrCat("relu.", layer), .op = "relu"});
    builder.Add({.name = sum,
                 .op = "add",
                 .inputs = {absl::StrCat("relu.", layer), values[random.Below(values.size())]}});
    values.push_back(sum);
    unread = sum;
  }
  builder.Add({.name = "loss", .op = "cross_entropy", .inputs = {unread, "y"}});
  absl::StatusOr<ModelGraph> graph = std::move(builder).Build();
  EXPECT_THAT(graph, IsOk());
  return *std::move(graph);
}

TEST(ModelGraph, AnyModel_SurvivesTheMessageAndItsYaml) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    ExpectSurvives(RandomModel(seed));
  }
}

TEST(ModelGraph, Gpt_SurvivesButForItsName) {
  for (const bool tied : {false, true}) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        ModelGraph gpt,
        BuildGpt({.layers = 2, .width = 8, .heads = 2, .context = 4, .tied_head = tied}));
    gpt.architecture = kLayersArchitecture;
    ExpectSurvives(gpt);
  }
}

TEST(BuildModel, HostileGraphs_AreRefused) {
  const auto refused = [](v1::ModelGraph graph, const std::string& why) {
    EXPECT_THAT(BuildGraph(graph), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why)));
  };
  const v1::ModelGraph good = ToProto(RandomModel(1));
  v1::ModelGraph graph = good;
  graph.mutable_ports(0)->set_name(std::string(1000, 'x'));
  refused(graph, "is no name");
  graph = good;
  graph.mutable_ports(0)->clear_dims();
  for (int i = 0; i < 3; ++i) graph.mutable_ports(0)->add_dims(int64_t{1} << 40);
  refused(graph, "elements");
  graph = good;
  graph.mutable_ports(0)->set_dims(0, -3);
  refused(graph, "dimensions of at least 1");
  graph = good;
  graph.mutable_layers(0)->clear_nodes();
  refused(graph, "without nodes");
  graph = good;
  graph.mutable_layers(0)->mutable_nodes(0)->set_name("../up");
  graph.mutable_layers(0)->mutable_nodes(0)->set_parameter_prefix(std::string("\0\n", 2));
  refused(graph, "is no name");
  graph = good;
  graph.mutable_layers(0)->mutable_nodes(0)->add_inputs("loss");
  refused(graph, "loss");
  graph = good;
  for (int i = 0; i < 3000; ++i) {
    v1::ModelLayer& layer = *graph.add_layers();
    layer.set_name(absl::StrCat("more.", i));
    layer.add_nodes()->set_op("relu");
    layer.mutable_nodes(0)->set_name(layer.name());
    layer.mutable_nodes(0)->add_inputs("x");
  }
  refused(graph, "ops that a model may have");
}

}  // namespace
}  // namespace penstock
