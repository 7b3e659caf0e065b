#include "compute/parameter_arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "model/families/gpt.h"
#include "model/graph_builder.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

ModelGraph MakeGpt(bool tied) {
  GptConfig config;
  config.layers = 1;
  config.width = 10;
  config.heads = 2;
  config.context = 3;
  config.vocabulary = 7;
  config.tied_head = tied;
  return *BuildGpt(config);
}

ParameterArena Layout(const ModelGraph& model, int first, int count) {
  return ParameterArena(model, {first, count});
}

// 70 floats of wte take 80, 30 of wpe take 32, 10 of a norm take 16.
TEST(ParameterArena, Offsets_AreMultiplesOf16InOrder) {
  const ParameterArena arena = Layout(MakeGpt(false), 0, 2);
  EXPECT_THAT(arena.weight_offsets(0), ElementsAre(0, 80));
  EXPECT_THAT(arena.weight_offsets(1), ElementsAre(112, 128, 144, 448, 480, 592));
  EXPECT_EQ(arena.weight_count(), 608);
  EXPECT_EQ(arena.gradient_count(), 608);
  EXPECT_THAT(arena.later_uses(), IsEmpty());
}

TEST(ParameterArena, Slices_CoverEachParameterOnce) {
  const ModelGraph model = MakeGpt(true);
  const ParameterArena arena = Layout(model, 0, model.size());
  int64_t previous_end = 0;
  int64_t count = 0;
  for (int layer = 0; layer < model.size(); ++layer) {
    for (const ParameterSlice& slice : arena.slices(layer)) {
      EXPECT_GE(slice.offset, previous_end);
      EXPECT_EQ(slice.offset % 16, 0);
      previous_end = slice.offset + slice.count;
      count += slice.count;
    }
  }
  EXPECT_EQ(count, model.parameter_count());
  EXPECT_LE(previous_end, arena.weight_count());
}

TEST(ParameterArena, HiddenMatrices_AreThoseOfAttentionAndMlp) {
  const ModelGraph model = MakeGpt(false);
  const ParameterArena arena = Layout(model, 0, model.size());
  std::vector<std::pair<int64_t, int64_t>> shapes;
  for (int layer = 0; layer < model.size(); ++layer) {
    for (const ParameterSlice& slice : arena.slices(layer)) {
      if (!slice.is_hidden_matrix()) continue;
      EXPECT_EQ(slice.rows * slice.columns, slice.count);
      shapes.push_back({slice.rows, slice.columns});
    }
  }
  using Shape = std::pair<int64_t, int64_t>;
  EXPECT_THAT(shapes, ElementsAre(Shape(10, 30), Shape(10, 10), Shape(10, 40), Shape(40, 10)));
}

TEST(ParameterArena, TiedHeadWithEmbedding_SharesTheWeightButNotTheGradient) {
  const ModelGraph model = MakeGpt(true);
  const ParameterArena arena = Layout(model, 0, model.size());
  EXPECT_EQ(arena.tied(0).first, 0);
  EXPECT_EQ(arena.tied(0).last, arena.weight_count());
  EXPECT_EQ(arena.tied(0).count, 80);
  EXPECT_THAT(arena.tied(0).uses, IsEmpty()) << "no other stage has a use";
  ASSERT_EQ(arena.later_uses().size(), 1u);
  EXPECT_EQ(arena.later_uses()[0].offset, arena.weight_count());
  EXPECT_EQ(arena.later_uses()[0].before, 0);
  EXPECT_EQ(arena.later_uses()[0].count, 80);
  EXPECT_THAT(arena.weight_offsets(4), ElementsAre(0));
  EXPECT_THAT(arena.gradient_offsets(0), ElementsAre(0, 80));
  EXPECT_THAT(arena.gradient_offsets(4), ElementsAre(arena.weight_count()));
  EXPECT_EQ(arena.gradient_count(), arena.weight_count() + 80);
  EXPECT_THAT(arena.slices(4), IsEmpty());
}

TEST(ParameterArena, TiedHeadAlone_HasACopyInFront) {
  const ModelGraph model = MakeGpt(true);
  const ParameterArena arena = Layout(model, 3, 2);  // final norm, head
  EXPECT_THAT(arena.later_uses(), IsEmpty());
  EXPECT_EQ(arena.tied(0).first, 0);
  EXPECT_EQ(arena.tied(0).last, 0);
  EXPECT_EQ(arena.tied(0).count, 80);
  EXPECT_THAT(arena.slice_owners(0), ElementsAre(3, 3));
  EXPECT_THAT(arena.slice_owners(1), ElementsAre(0)) << "the embedding is elsewhere";
  EXPECT_THAT(arena.weight_offsets(0), ElementsAre(80, 96));
  EXPECT_THAT(arena.weight_offsets(1), ElementsAre(0));
  EXPECT_EQ(arena.gradient_count(), arena.weight_count());
  ASSERT_EQ(arena.slices(1).size(), 1u);
  EXPECT_EQ(arena.slices(1)[0].count, 70);
}

// A table that the first layer reads twice and the last layer twice, too.
ModelGraph WithFourUses() {
  GraphBuilder builder("layers");
  for (const char* name : {"left", "right"}) builder.AddPort({name, {DType::kI32, {3}}, 7});
  builder.AddPort({"targets", {DType::kI32, {3}}, 7});
  const auto read = [](std::string name, std::string port, std::string weights_of) {
    return NodeSpec{.name = std::move(name),
                    .op = "embedding",
                    .attributes = {{"vocabulary", int64_t{7}}, {"width", int64_t{10}}},
                    .inputs = {std::move(port)},
                    .weights_of = std::move(weights_of)};
  };
  builder.BeginLayer("first");
  builder.Add(read("a", "left", ""));
  builder.Add(read("b", "right", "a"));
  builder.Add({.name = "sum", .op = "add", .inputs = {"a", "b"}});
  builder.BeginLayer("last");
  builder.Add(read("c", "left", "a"));
  builder.Add({.name = "more", .op = "add", .inputs = {"sum", "c"}});
  builder.Add({.name = "logits",
               .op = "linear",
               .attributes = {{"outputs", int64_t{7}}, {"bias", false}},
               .weights_of = "a"});
  builder.Add({.name = "loss", .op = "cross_entropy", .inputs = {"logits", "targets"}});
  return *std::move(builder).Build();
}

using Sum = std::pair<int64_t, int64_t>;  // from, to
std::vector<Sum> SumsOf(absl::Span<const ParameterArena::Use> uses) {
  std::vector<Sum> sums;
  for (size_t use = uses.size(); use-- > 0;) sums.push_back({uses[use].offset, uses[use].before});
  return sums;
}

TEST(ParameterArena, Uses_AreAddedFromTheLastToTheFirst) {
  const ModelGraph model = WithFourUses();
  const ParameterArena whole = Layout(model, 0, 2);
  EXPECT_THAT(SumsOf(whole.later_uses()), ElementsAre(Sum(240, 160), Sum(160, 80), Sum(80, 0)));
  EXPECT_THAT(whole.gradient_offsets(0), ElementsAre(0, 80));
  EXPECT_THAT(whole.gradient_offsets(1), ElementsAre(160, 240));
  EXPECT_THAT(SumsOf(whole.tied(0).uses), IsEmpty());
  for (const int stage : {0, 1}) {
    const ParameterArena part = Layout(model, stage, 1);
    EXPECT_THAT(SumsOf(part.later_uses()), IsEmpty()) << "they wait for the other stage";
    EXPECT_THAT(SumsOf(part.tied(0).uses), ElementsAre(Sum(80, 0)));
    EXPECT_EQ(part.tied(0).last, 80);
    EXPECT_THAT(part.slice_owners(0), ElementsAre(0));
  }
}

// A block of two parameters in three layers, and a table in the first and the last.
ModelGraph WithTwoTies() {
  GraphBuilder builder("layers");
  builder.AddPort({"tokens", {DType::kI32, {3}}, 7});
  builder.AddPort({"targets", {DType::kI32, {3}}, 7});
  builder.BeginLayer("table");
  builder.Add({.op = "embedding",
               .attributes = {{"vocabulary", int64_t{7}}, {"width", int64_t{10}}},
               .inputs = {"tokens"}});
  for (const char* name : {"a", "b", "c"}) {
    builder.BeginLayer(name);
    builder.Add({.op = "linear",
                 .attributes = {{"outputs", int64_t{10}}},
                 .weights_of = name == std::string("a") ? "" : "a"});
  }
  builder.BeginLayer("logits");
  builder.Add({.name = "logits",
               .op = "linear",
               .attributes = {{"outputs", int64_t{7}}, {"bias", false}},
               .weights_of = "table"});
  builder.Add({.name = "loss", .op = "cross_entropy", .inputs = {"logits", "targets"}});
  return *std::move(builder).Build();
}

// 70 floats of the table take 80; 100 of a weight 112, and 10 of its bias 16.
TEST(ParameterArena, ParametersOfATie_LieBesideEachOtherInEachUse) {
  const ModelGraph model = WithTwoTies();
  ASSERT_EQ(model.ties.size(), 2u);
  EXPECT_THAT(model.ties[0].uses, ElementsAre(0, 4));
  EXPECT_THAT(model.ties[1].uses, ElementsAre(1, 2, 3));
  const ParameterArena whole = Layout(model, 0, 5);
  EXPECT_EQ(whole.weight_count(), 80 + 112 + 16);
  EXPECT_EQ(whole.gradient_count(), 2 * 80 + 3 * (112 + 16));
  EXPECT_EQ(whole.tied(1).first, 80);
  EXPECT_EQ(whole.tied(1).count, 128);
  EXPECT_THAT(whole.weight_offsets(3), whole.weight_offsets(1));
  EXPECT_THAT(whole.gradient_offsets(3), ElementsAre(208 + 80 + 128, 208 + 80 + 128 + 112));
  EXPECT_EQ(whole.tied(1).last, whole.gradient_offsets(3)[0]);
  // Layers b and c: two uses of the block, none of the table.
  const ParameterArena part = Layout(model, 2, 2);
  EXPECT_EQ(part.tied(0).count, 0);
  EXPECT_EQ(part.weight_count(), 128);
  EXPECT_THAT(SumsOf(part.tied(1).uses), ElementsAre(Sum(128, 0)));
  EXPECT_THAT(part.gradient_offsets(1), ElementsAre(128, 128 + 112));
  EXPECT_THAT(part.slices(1), IsEmpty());
  EXPECT_THAT(part.slice_owners(0), ElementsAre(1, 1));
}

TEST(ParameterArena, UntiedHead_IsAnOrdinaryLayer) {
  const ModelGraph model = MakeGpt(false);
  const ParameterArena arena = Layout(model, 0, model.size());
  EXPECT_THAT(arena.later_uses(), IsEmpty());
  EXPECT_GT(arena.weight_offsets(4)[0], 0);
}

// Both uses of a tied weight, wherever they are, draw the same random numbers.
TEST(ParameterArena, Identity_FollowsTheNameAndNothingElse) {
  const ModelGraph model = MakeGpt(/*tied=*/true);
  const ParameterArena whole = Layout(model, 0, model.size());
  const ParameterArena head = Layout(model, model.size() - 1, 1);
  ASSERT_EQ(head.slices(0).size(), 1u);
  EXPECT_EQ(head.slices(0)[0].identity, whole.slices(0)[0].identity);
  std::set<uint64_t> identities;
  size_t slices = 0;
  for (int layer = 0; layer < model.size(); ++layer) {
    for (const ParameterSlice& slice : whole.slices(layer)) {
      identities.insert(slice.identity);
      ++slices;
    }
  }
  EXPECT_EQ(identities.size(), slices);
}

}  // namespace
}  // namespace penstock
