#include "job/yaml/yaml_layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "job/model_graph.h"
#include "job/yaml/yaml.h"
#include "job/yaml/yaml_message.h"
#include "tests/support/golden.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two residual blocks, and a value that is read over them.
constexpr char kNet[] = R"(model:
  layers:
    - input: {image: {f32: [3, 4]}, label: {i32: []}}
    - flatten
    - linear: {outputs: 8, name: stem}
    - relu
    - repeat: {count: 2, name: block, layers: [
        {residual: {layers: [{linear: {outputs: 8}}, relu]}}]}
    - concat: {of: [block, stem]}
    - linear: {outputs: 10}
    - cross_entropy: {targets: label}
)";

std::string NetWith(const std::string& from, const std::string& to) {
  const std::string text = absl::StrReplaceAll(kNet, {{from, to}});
  EXPECT_NE(text, kNet) << from << " is not there";
  return text;
}

absl::StatusOr<ModelGraph> ReadModel(const std::string& text) {
  v1::JobSpec spec;
  YamlPositions positions;
  const absl::Status read = ReadYamlMessage(text, "job.yaml", spec, positions);
  if (!read.ok()) return read;
  absl::StatusOr<ModelGraph> model = BuildModel(spec.model());
  if (!model.ok()) return WithPlace(model.status(), "job.yaml", positions);
  return model;
}

// "stem: flatten(image), stem(flatten), relu(stem)", a line for each layer.
std::string Picture(const ModelGraph& model) {
  std::string text;
  for (const LayerSpec& layer : model.layers) {
    std::vector<std::string> nodes;
    for (int n = layer.first_node; n < layer.end_node(); ++n) {
      std::vector<std::string> inputs;
      for (const int input : model.nodes[n].inputs) inputs.push_back(model.NameOf(input));
      nodes.push_back(absl::StrCat(model.nodes[n].name, "(", absl::StrJoin(inputs, ", "), ")"));
    }
    absl::StrAppend(&text, layer.name, ": ", absl::StrJoin(nodes, ", "), "\n");
  }
  return text;
}

std::string PictureOf(const std::string& text) {
  const absl::StatusOr<ModelGraph> model = ReadModel(text);
  return model.ok() ? Picture(*model) : std::string(model.status().message());
}

TEST(ReadLayers, Net_IsNamedConnectedAndCutAsTheManualSays) {
  EXPECT_EQ(PictureOf(kNet),
            "stem: flatten(image), stem(flatten), relu(stem)\n"
            "block.0.linear: block.0.linear(relu), block.0.relu(block.0.linear), "
            "block.0.add(relu, block.0.relu)\n"
            "block.1.linear: block.1.linear(block.0.add), block.1.relu(block.1.linear), "
            "block.1.add(block.0.add, block.1.relu), concat(block.1.add, stem)\n"
            "linear: linear(concat), cross_entropy(linear, label)\n");
}

TEST(ReadLayers, Parameters_AreNamedAfterTheirOp) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph model, ReadModel(kNet));
  std::vector<std::string> names;
  for (const ParameterSpec& parameter : model.layers[1].parameters) names.push_back(parameter.name);
  EXPECT_THAT(names, ElementsAre("block.0.linear.weight", "block.0.linear.bias"));
}

TEST(ReadLayers, Block_IsOneLayerThatStandsForItsLastValue) {
  EXPECT_EQ(
      PictureOf(R"(model:
  layers:
    - input: {x: {f32: [4]}, y: {f32: [4]}}
    - block: {name: stem, layers: [{linear: {outputs: 4}}, relu, {linear: {outputs: 4}}]}
    - relu
    - block: {layers: [{linear: {outputs: 4}}, {add: {of: [linear, stem]}}]}
    - mse: {of: [block, y]}
)"),
      "stem: stem.linear(x), stem.relu(stem.linear), stem.linear_2(stem.relu), "
      "relu(stem.linear_2)\n"
      "block: block.linear(relu), block.add(block.linear, stem.linear_2), mse(block.add, y)\n");
}

TEST(ReadLayers, Names_AreLookedUpInTheInnermostRepetitionFirst) {
  EXPECT_EQ(PictureOf(R"(model:
  layers:
    - input: {x: {f32: [4]}, y: {f32: [4]}}
    - linear: {outputs: 4, name: a}
    - repeat: {count: 2, layers: [
        {linear: {outputs: 4, name: b}}, {linear: {outputs: 4, name: a, of: a}},
        {add: {of: [a, b]}}]}
    - mse: {targets: y}
)"),
            "a: a(x)\n"
            "repeat.0.b: repeat.0.b(a)\n"
            "repeat.0.a: repeat.0.a(a), repeat.0.add(repeat.0.a, repeat.0.b)\n"
            "repeat.1.b: repeat.1.b(repeat.0.add)\n"
            "repeat.1.a: repeat.1.a(a), repeat.1.add(repeat.1.a, repeat.1.b), mse(repeat.1.add, "
            "y)\n");
}

// Where a layer is called after an op, its name stands in the names of files.
TEST(ReadLayers, SlashInALayersName_IsRefused) {
  EXPECT_THAT(PictureOf(NetWith("stem", "net/stem")),
              AllOf(HasSubstr("job.yaml:5:7: model.layers[2].linear: net/stem: is a layer"),
                    HasSubstr("expected a name without /, such as net.stem")));
  EXPECT_THAT(PictureOf(NetWith("flatten", "flatten: {name: net/flatten}")),
              HasSubstr("stem: net/flatten(image), stem(net/flatten), relu(stem)"));
}

TEST(ReadLayers, InputWithoutIds_HasThoseOfItsReaders) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph model, ReadModel(kNet));
  EXPECT_EQ(model.ports[1].ids, 10);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph fewer,
                                ReadModel(NetWith("{i32: []}", "{i32: [], ids: 7}")));
  EXPECT_EQ(fewer.ports[1].ids, 7);
}

TEST(ReadLayers, WeightsOf_SharesTheParametersOfTheEnds) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph model, ReadModel(R"(model:
  layers:
    - input: {x: {f32: [4]}, y: {f32: [4]}}
    - linear: {outputs: 4, name: first}
    - linear: {outputs: 4}
    - linear: {outputs: 4, weights_of: first}
    - mse: {targets: y}
)"));
  ASSERT_EQ(model.ties.size(), 1u);
  EXPECT_EQ(model.ties[0].parameters[0].name, "first.weight");
  EXPECT_EQ(model.ties[0].parameters[1].name, "first.bias");
}

// One change to the net, and what is said about it.
TEST(ReadLayers, Mistakes_GetTheMessagesOfTheGoldenFile) {
  const std::vector<std::pair<std::string, std::string>> mistakes = {
      // Items.
      {"- flatten", "- flaten"},
      {"- flatten", "- [flatten]"},
      {"- flatten", "-"},
      {"- flatten", "- {}"},
      {"- flatten", "- ~"},
      {"- flatten", "- flatten:\n      name: a\n    - {relu: {}, name: b}"},
      {"- linear: {outputs: 8, name: stem}", "- linear: {outputs: 8}\n      name: stem"},
      {"- flatten", "- flatten: 3"},
      {"- flatten", "- mixture_of_experts: {}"},
      // Settings.
      {"outputs: 10", "output: 10"},
      {"outputs: 10", "outputs: ten"},
      {"outputs: 10", "outputs: \"10\""},
      {"outputs: 10", "outputs: 0"},
      {"outputs: 10", "outputs:"},
      {"outputs: 10", "outputs: 10, outputs: 11"},
      {"outputs: 10", "outputs: 10, bias: maybe"},
      {"outputs: 10", "outputs: 10, layout: inputs"},
      {"{outputs: 10}", ""},
      // Inputs.
      {"image: {f32: [3, 4]}", "image: {f64: [3, 4]}"},
      {"image: {f32: [3, 4]}", "image: {f32: [3, 0]}"},
      {"image: {f32: [3, 4]}", "image: {f32: [3, wide]}"},
      {"image: {f32: [3, 4]}", "image: {f32: [3, 4], ids: 3}"},
      {"image: {f32: [3, 4]}", "image: {f32: [3, 4], u8: [3]}"},
      {"image: {f32: [3, 4]}", "image: {}"},
      {"image: {f32: [3, 4]}", "image: f32"},
      {"image: {f32: [3, 4]}", "image: {f32: [3, 4]}, mask: {f32: [3]}"},
      {"image: {f32: [3, 4]}", "\"a b\": {f32: [3, 4]}"},
      {"image: {f32: [3, 4]}", "image: {f32: [65536, 65536, 65536]}"},
      {"{i32: []}", "{i32: [], ids: 11}"},
      {"    - relu\n", "    - relu\n    - input: {more: {f32: [1]}}\n"},
      {"    - input: {image: {f32: [3, 4]}, label: {i32: []}}\n", ""},
      // Names.
      {"name: stem", "name: image"},
      {"name: stem", "name: block"},
      {"[block, stem]", "[block, steam]"},
      {"[block, stem]", "[block, elsewhere]"},
      {"[block, stem]", "[]"},
      {"[block, stem]", "block"},
      {"targets: label", "targets: labels"},
      {"targets: label", "targets: image"},
      {"{targets: label}", ""},
      {"outputs: 10}", "outputs: 10, weights_of: stem}"},
      {"outputs: 10}", "outputs: 10, weights_of: stm}"},
      // Repeats, residual branches and blocks.
      {"count: 2", "count: 0"},
      {"count: 2, ", ""},
      {"count: 2", "count: 2000"},
      {"count: 2", "cont: 2"},
      {"residual: {layers", "residual: {layer"},
      {"residual: {", "residual: {of: nothing, "},
      {"layers: [{linear: {outputs: 8}}, relu]", "layers: []"},
      {"layers: [{linear: {outputs: 8}}, relu]", "layers: relu"},
      {"layers: [{linear: {outputs: 8}}", "layers: [{linear: {outputs: 9}}"},
      {"{linear: {outputs: 8}}, relu]", "{block: {layers: [{block: {layers: [relu]}}]}}]"},
      // The whole.
      {"    - cross_entropy: {targets: label}\n", ""},
      {"    - concat: {of: [block, stem]}\n    - linear: {outputs: 10}\n",
       "    - linear: {outputs: 10}\n    - relu: {of: stem}\n    - linear: {outputs: 10}\n"},
      {"- cross_entropy: {targets: label}",
       "- cross_entropy: {targets: label}\n    - cross_entropy: {of: [linear, label]}"},
      {"model:\n", "model:\n  gpt: {layers: 2}\n"},
      {"model:\n", "model:\n  graph: {}\n"},
      {"  layers:\n", "  layer:\n"},
      {"- cross_entropy: {targets: label}",
       "- cross_entropy: {targets: label}\n  gpt: {layers: 2}"},
      {kNet, "model: {layers: }"},
      {kNet, "model: {layers: []}"},
      {kNet, "model: {layers: relu}"},
      {kNet, "model: {graph: {layers: [{name: a}]}}"},
      {kNet, "model: {graph: {ports: [{name: a, dtype: f64}]}}"},
      {kNet, "model: {graph: {layers: [{name: a, nodes: [{op: conv}]}]}}"},
      {kNet, "model: {graph: {layers: [{name: a, nodes: [{op: relu, attributes: [{name: b}]}]}]}}"},
  };
  std::string messages;
  for (const auto& [from, to] : mistakes) {
    const std::string text = NetWith(from, to);
    const absl::StatusOr<ModelGraph> model = ReadModel(text);
    ASSERT_FALSE(model.ok()) << from << " -> " << to;
    EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument) << model.status();
    absl::StrAppend(&messages, model.status().message(), "\n");
  }
  ExpectEqualsGolden("job/layers_mistakes.txt", messages);
}

TEST(ReadLayers, RepeatsOfRepeats_StopAtTheLargestModel) {
  const std::string text =
      NetWith("{residual: {layers: [{linear: {outputs: 8}}, relu]}}",
              "{repeat: {count: 2000, layers: [{repeat: {count: 2000, layers: [relu]}}]}}");
  EXPECT_THAT(ReadModel(text),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("ops that a model may have")));
}

// ---------------------------------------------------------------------------------------- data

// A model of text: ids, and the targets that the loss reads.
constexpr char kTextModel[] = R"(name: text
model:
  layers:
    - input: {tokens: {i32: [16]}, targets: {i32: [16]}}
    - embedding: {vocabulary: 256, width: 8}
    - linear: {outputs: 256}
    - cross_entropy: {targets: targets}
data: {text: {path: a.txt}}
training: {steps: 1, batch: 2, microbatches: 1, optimizer: {sgd: {learning_rate: 0.1}}}
)";

TEST(CompleteJob, ModelOfLayersThatReadsTokens_TakesText) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::JobSpec spec, ParseJobYaml(kTextModel, "job.yaml"));
  EXPECT_EQ(spec.model().graph().layers_size(), 2);
}

TEST(CompleteJob, ModelThatTextDoesNotFill_IsRefusedWithWhatItReads) {
  const std::string image = absl::StrReplaceAll(
      kTextModel,
      {{"{tokens: {i32: [16]}, targets: {i32: [16]}}", "{x: {f32: [4]}, targets: {i32: []}}"},
       {"    - embedding: {vocabulary: 256, width: 8}\n", ""}});
  EXPECT_THAT(ParseJobYaml(image, "job.yaml"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("job.yaml:7:8: data.text: "),
                             HasSubstr("the model reads x f32 [4], targets i32 []"))));
  const std::string swapped =
      absl::StrReplaceAll(kTextModel, {{"{tokens: {i32: [16]}, targets: {i32: [16]}}",
                                        "{targets: {i32: [16]}, tokens: {i32: [16]}}"},
                                       {"embedding: {", "embedding: {of: tokens, "}});
  EXPECT_THAT(ParseJobYaml(swapped, "job.yaml"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("data.text: ")));
  const std::string few = absl::StrReplaceAll(kTextModel, {{"256", "100"}});
  EXPECT_THAT(ParseJobYaml(few, "job.yaml"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("has 256 tokens, but the model's input tokens takes 100")));
}

}  // namespace
}  // namespace penstock
