#include "checkpoint/manifest.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "base/sha256.h"
#include "model/graph_builder.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

Manifest Example() {
  return {.job_id = "job-1",
          .method = "1f1b",
          .epoch = 2,
          .step = 100,
          .updates = 100,
          .extra_cuts = {7, 100},
          .model = GptConfig{.layers = 2,
                             .width = 16,
                             .heads = 2,
                             .context = 8,
                             .vocabulary = 300,
                             .dropout = 0.1,
                             .tied_head = false},
          .fingerprint = {{"model.width", "16"}, {"training.seed", "1"}},
          .weights_sha256 = "0123",
          .files = {{"layer-000-a.safetensors", 10, "aa", 0},
                    {"optim-000-a.safetensors", 20, "bb", 0}}};
}

TEST(Manifest, Parse_WhatWasSerialized_IsEqual) {
  EXPECT_THAT(ParseManifest(SerializeManifest(Example())), IsOkAndHolds(Example()));
}

TEST(Manifest, ValidationLoss_IsKeptToTheLastBit) {
  Manifest manifest = Example();
  manifest.validation_loss = 0.1 + 0.2;
  EXPECT_THAT(ParseManifest(SerializeManifest(manifest)), IsOkAndHolds(manifest));
  EXPECT_NE(SerializeManifest(manifest), SerializeManifest(Example()));
}

TEST(Manifest, Arithmetics_AreKept) {
  Manifest manifest = Example();
  manifest.arithmetics = {"cpu (oneDNN 2.6.3)", "NVIDIA H200 (sm_90)"};
  EXPECT_THAT(ParseManifest(SerializeManifest(manifest)), IsOkAndHolds(manifest));
}

TEST(Manifest, GptWithSmoothLabels_KeepsThem) {
  Manifest manifest = Example();
  std::get<GptConfig>(*manifest.model).label_smoothing = 0.1;
  EXPECT_THAT(ParseManifest(SerializeManifest(manifest)), IsOkAndHolds(manifest));
}

// A model of layers, with a skip, and weights that its ends share.
ModelGraph Graph() {
  GraphBuilder builder(kLayersArchitecture);
  builder.AddPort({"x", {DType::kF32, {4}}});
  builder.AddPort({"y", {DType::kI32, {}}});
  for (const char* name : {"first", "second", "third"}) {
    builder.BeginLayer(name);
    builder.Add({.op = "linear",
                 .attributes = {{"outputs", int64_t{4}}, {"bias", false}},
                 .inputs = builder.TypeOf("first") == nullptr ? std::vector<std::string>{"x"}
                                                              : std::vector<std::string>(),
                 .weights_of = name == std::string("third") ? "first" : ""});
  }
  builder.Add({.name = "sum", .op = "add", .inputs = {"third", "first"}});
  builder.Add({.name = "loss", .op = "cross_entropy", .inputs = {"sum", "y"}});
  absl::StatusOr<ModelGraph> graph = std::move(builder).Build();
  EXPECT_THAT(graph, IsOk());
  return *std::move(graph);
}

TEST(Manifest, ModelOfLayers_IsKept) {
  Manifest manifest = Example();
  manifest.model = Graph();
  EXPECT_THAT(ParseManifest(SerializeManifest(manifest)), IsOkAndHolds(manifest));
}

TEST(Manifest, ModelsWhoseWeightsWereUntied_AreKept) {
  Manifest manifest = Example();
  ModelGraph graph = Graph();
  Untie(graph);
  ASSERT_TRUE(graph.untied);
  manifest.model = graph;
  EXPECT_THAT(ParseManifest(SerializeManifest(manifest)), IsOkAndHolds(manifest));
  manifest.model = GptConfig{.layers = 1, .width = 8, .heads = 2, .context = 4, .untie = true};
  EXPECT_THAT(ParseManifest(SerializeManifest(manifest)), IsOkAndHolds(manifest));
}

TEST(Manifest, ModelOfLayers_HasTheFormOfAJobFile) {
  Manifest manifest = Example();
  manifest.model = Graph();
  const nlohmann::json json = nlohmann::json::parse(SerializeManifest(manifest));
  const nlohmann::json& graph = json["model"]["graph"];
  EXPECT_EQ(graph["ports"][0]["dtype"], "f32");
  const nlohmann::json& node = graph["layers"][2]["nodes"][0];
  EXPECT_EQ(node["op"], "linear");
  EXPECT_EQ(node["weights_of"], "first");
  EXPECT_EQ(node["attributes"][0], nlohmann::json({{"name", "outputs"}, {"integer", 4}}));
}

TEST(Manifest, OpOfALaterVersion_IsReadWithoutAModel) {
  Manifest manifest = Example();
  manifest.model = Graph();
  nlohmann::json json = nlohmann::json::parse(SerializeManifest(manifest));
  json["model"]["graph"]["layers"][0]["nodes"][0]["op"] = "quantum_gate";
  json.erase("manifest_sha256");
  json["manifest_sha256"] = Sha256Hex(absl::string_view(json.dump()));
  manifest.model.reset();
  EXPECT_THAT(ParseManifest(json.dump()), IsOkAndHolds(manifest));
}

TEST(Manifest, ScheduleThatWasSearched_IsKept) {
  Manifest manifest = Example();
  manifest.schedule = "0F0,0I0,0W0\n";
  EXPECT_THAT(ParseManifest(SerializeManifest(manifest)), IsOkAndHolds(manifest));
}

TEST(Manifest, UpdatesByLayer_AreThoseOfAllWhereNothingElseIsSaid) {
  Manifest manifest = Example();
  EXPECT_EQ(manifest.UpdatesOf(3), 100);
  manifest.layer_updates = {100, 300};
  EXPECT_THAT(ParseManifest(SerializeManifest(manifest)), IsOkAndHolds(manifest));
  EXPECT_EQ(manifest.UpdatesOf(1), 300);
}

TEST(Manifest, Parse_UpdatesByLayerThatCannotBe_AreRefused) {
  for (const std::vector<int64_t>& updates : {std::vector<int64_t>{5}, {5, -1}}) {
    Manifest manifest = Example();
    manifest.files[1].layer = 1;
    manifest.layer_updates = updates;
    EXPECT_THAT(ParseManifest(SerializeManifest(manifest)),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("layer_updates")));
  }
}

TEST(Manifest, WithoutAModel_IsReadWithoutOne) {
  Manifest manifest = Example();
  manifest.model.reset();
  EXPECT_THAT(ParseManifest(SerializeManifest(manifest)), IsOkAndHolds(manifest));
}

TEST(Manifest, KindOfModelOfALaterVersion_IsReadWithoutOne) {
  nlohmann::json json = nlohmann::json::parse(SerializeManifest(Example()));
  json["model"] = {{"mixer", {{"depth", 3}}}};
  json.erase("manifest_sha256");
  json["manifest_sha256"] = Sha256Hex(absl::string_view(json.dump()));
  Manifest expected = Example();
  expected.model.reset();
  EXPECT_THAT(ParseManifest(json.dump()), IsOkAndHolds(expected));
}

TEST(Manifest, Parse_AnyFlippedBit_IsDetected) {
  const std::string text = SerializeManifest(Example());
  for (size_t i = 0; i < text.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = text;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      EXPECT_FALSE(ParseManifest(damaged).ok()) << "bit " << bit << " of byte " << i;
    }
  }
}

TEST(Manifest, Parse_EveryTruncation_IsDetected) {
  const std::string text = SerializeManifest(Example());
  for (size_t size = 0; size + 1 < text.size(); ++size) {
    EXPECT_FALSE(ParseManifest(text.substr(0, size)).ok()) << size;
  }
}

TEST(Manifest, Parse_ChangedValue_SaysItWasChanged) {
  const std::string text =
      absl::StrReplaceAll(SerializeManifest(Example()), {{"\"step\": 100", "\"step\": 101"}});
  EXPECT_THAT(ParseManifest(text), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("was changed")));
}

TEST(Manifest, Parse_LaterFormat_IsRefusedByName) {
  const std::string text = absl::StrReplaceAll(
      SerializeManifest(Example()), {{"\"format_version\": 1", "\"format_version\": 2"}});
  EXPECT_THAT(ParseManifest(text),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("format version 2")));
}

TEST(Manifest, Parse_FileNameThatLeavesTheDirectory_IsRefused) {
  for (const char* name : {"../x", "/etc/passwd", "", ".hidden"}) {
    Manifest manifest = Example();
    manifest.files[0].name = name;
    EXPECT_THAT(ParseManifest(SerializeManifest(manifest)),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("not allowed")))
        << name;
  }
}

// Each has a digest that fits, as only an ill-meaning writer makes.
TEST(Manifest, Parse_NumbersThatAreNotWholeOrDoNotFit_AreRefused) {
  const nlohmann::json good = nlohmann::json::parse(SerializeManifest(Example()));
  const auto refused = [&good](const char* pointer, const nlohmann::json& value) {
    nlohmann::json json = good;
    json[nlohmann::json::json_pointer(pointer)] = value;
    json.erase("manifest_sha256");
    json["manifest_sha256"] = Sha256Hex(absl::string_view(json.dump()));
    EXPECT_THAT(ParseManifest(json.dump()),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("is no whole number")))
        << pointer << " " << value;
  };
  refused("/step", 1.5);
  refused("/step", 1e300);
  refused("/epoch", ~uint64_t{0});
  refused("/files/0/layer", int64_t{1} << 32);
  refused("/files/0/size_bytes", "10");
  refused("/extra_cuts/0", 0.5);
  refused("/model/gpt/layers", 2.5);
}

TEST(Manifest, Parse_FileTwice_IsRefused) {
  Manifest manifest = Example();
  manifest.files[1].name = manifest.files[0].name;
  EXPECT_THAT(ParseManifest(SerializeManifest(manifest)),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("twice")));
}

}  // namespace
}  // namespace penstock
