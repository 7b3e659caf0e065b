// Parameter groups: rates and decays of their own, and frozen parameters, whose bytes nothing changes and which cost
// nothing that is not needed.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/glob.h"
#include "compute/array_bytes.h"
#include "model/parameter_groups.h"
#include "tests/compute/conformance.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using Groups = std::vector<ParameterGroup>;
using Values = std::map<std::string, std::vector<float>>;

ModelGraph Grouped(ModelGraph model, const Groups& groups) {
  EXPECT_THAT(ApplyGroups(groups, model), IsOk());
  return model;
}

ModelGraph Gpt(bool tied) {
  GptConfig config = TinyGpt();
  config.tied_head = tied;
  config.dropout = 0.1;
  return *BuildGpt(config);
}

Pipeline::Options OptionsFor(std::vector<int> layers_per_stage) {
  Pipeline::Options options;
  options.layers_per_stage = std::move(layers_per_stage);
  options.samples = 2;
  options.microbatches = 3;
  return options;
}

Values ByName(const std::vector<NamedArray>& arrays) {
  Values values;
  // Of a shared one the first use, whose gradient is the whole.
  for (const NamedArray& array : arrays) values.emplace(array.name, array.values);
  return values;
}

// The weights after some steps.
Values Trained(Backend& backend, const ModelGraph& model, const Pipeline::Options& options,
               int steps) {
  Pipeline pipeline(backend, model, options);
  for (int step = 0; step < steps; ++step) pipeline.Step();
  return ByName(pipeline.Weights());
}

bool IsIn(const Groups& groups, const std::string& name) {
  return std::any_of(groups.begin(), groups.end(),
                     [&](const ParameterGroup& group) { return MatchesGlob(group.pattern, name); });
}

// 7 layers: embedding, two blocks of two, final norm, head.
const std::vector<std::vector<int>> kPartitions = {{7},    {3, 4},    {1, 6},
                                                   {6, 1}, {2, 2, 3}, {1, 1, 1, 1, 1, 1, 1}};

// The first layers; one in the middle; matrices without their biases, in nodes that train others; the tied table alone, and
// all but a norm.
const std::vector<Groups> kFrozen = {
    {{.pattern = "w?e.weight", .frozen = true}, {.pattern = "h.0.*", .frozen = true}},
    {{.pattern = "h.1.mlp.*", .frozen = true}, {.pattern = "h.1.ln_2.*", .frozen = true}},
    {{.pattern = "h.*.attn.*.weight", .frozen = true}, {.pattern = "*.ln_1.bias", .frozen = true}},
    {{.pattern = "wte.weight", .frozen = true}},
    {{.pattern = "w*", .frozen = true},
     {.pattern = "h.*", .frozen = true},
     {.pattern = "lm*", .frozen = true}},
};

TEST_P(BackendConformance, FrozenParameters_KeepTheirBytesAndLeaveTheGradientsOfOthers) {
  for (const bool tied : {true, false}) {
    const ModelGraph all = Gpt(tied);
    Pipeline whole(backend(), all, OptionsFor({7}));
    whole.Accumulate();
    const Values gradients = ByName(whole.Gradients());
    for (const Groups& frozen : kFrozen) {
      const ModelGraph model = Grouped(all, frozen);
      for (const std::vector<int>& partition : kPartitions) {
        Pipeline pipeline(backend(), model, OptionsFor(partition));
        const Values initial = ByName(pipeline.Weights());
        pipeline.Accumulate();
        size_t trained = 0;
        for (const auto& [name, values] : ByName(pipeline.Gradients())) {
          EXPECT_FALSE(IsIn(frozen, name)) << name;
          EXPECT_EQ(values, gradients.at(name)) << name << ", " << partition.size() << " stages";
          ++trained;
        }
        EXPECT_GT(trained, 0u);
        for (int step = 0; step < 2; ++step) pipeline.Update();
        for (const auto& [name, values] : ByName(pipeline.Weights())) {
          EXPECT_EQ(values == initial.at(name), IsIn(frozen, name)) << name;
        }
      }
    }
  }
}

TEST_P(BackendConformance, FrozenParameters_AnyPartitionPrecisionAndRounding_GivesTheSameBits) {
  for (const bool tied : {true, false}) {
    for (const auto& [precision, rounding] : {std::pair(Precision::kF32, Rounding::kNearest),
                                              {Precision::kBf16, Rounding::kNearest},
                                              {Precision::kBf16, Rounding::kStochastic}}) {
      for (const Groups& frozen : kFrozen) {
        const ModelGraph model = Grouped(Gpt(tied), frozen);
        Pipeline::Options options = OptionsFor({7});
        options.precision = precision;
        options.rounding = rounding;
        options.clip = {Clip::Kind::kGlobalNorm, 0.5};
        const Values whole = Trained(backend(), model, options, 2);
        for (const std::vector<int>& partition : kPartitions) {
          options.layers_per_stage = partition;
          options.recomputes = partition.size() == 3;
          EXPECT_EQ(Trained(backend(), model, options, 2), whole) << partition.size() << " stages";
        }
      }
    }
  }
}

// The norm that global clipping sees is that of what is trained.
TEST_P(BackendConformance, FrozenParameters_AreInNoNorm) {
  const ModelGraph all = Gpt(false);
  Pipeline whole(backend(), all, OptionsFor({7}));
  Pipeline frozen(backend(), Grouped(all, {{.pattern = "h.0.*", .frozen = true}}),
                  OptionsFor({3, 4}));
  whole.Accumulate();
  frozen.Accumulate();
  const std::vector<double> norms = whole.SquaredNorms();
  const std::vector<double> of_trained = frozen.SquaredNorms();
  for (int layer = 0; layer < all.size(); ++layer) {
    const bool is_frozen = layer == 1 || layer == 2;
    EXPECT_EQ(of_trained[layer], is_frozen ? 0.0 : norms[layer]) << layer;
  }
}

// A group's first step is that of a job with the group's rate and decay for all parameters, with every optimizer.
TEST_P(BackendConformance, Group_HasARateAndADecayOfItsOwn) {
  const ModelGraph all = Gpt(false);
  const OptimizerConfig configs[] = {
      SgdConfig{.momentum = 0.9, .weight_decay = 0.1}, AdamWConfig{.weight_decay = 0.1},
      NAdamWConfig{.weight_decay = 0.1}, MuonConfig{.adamw = {.weight_decay = 0.1}}};
  for (const OptimizerConfig& config : configs) {
    SCOPED_TRACE(KindOf(config));
    Pipeline::Options options = OptionsFor({2, 5});
    options.optimizer = config;
    options.learning_rate = 0.25;
    const Values plain = Trained(backend(), all, options, 1);
    const Values slow =
        Trained(backend(), Grouped(all, {{.pattern = "*", .rate_scale = 0.125}}), options, 1);
    options.learning_rate = 0.25 * 0.125;
    EXPECT_EQ(slow, Trained(backend(), all, options, 1));
    options.learning_rate = 0.25;
    const Values decayed =
        Trained(backend(), Grouped(all, {{.pattern = "*", .weight_decay = 0.5}}), options, 1);
    const Groups groups = {{.pattern = "h.0.*", .rate_scale = 0.125},
                           {.pattern = "*.bias", .weight_decay = 0.5},
                           {.pattern = "h.0.mlp.*", .rate_scale = 100.0}};  // never the first
    int differ = 0;
    for (const auto& [name, values] : Trained(backend(), Grouped(all, groups), options, 1)) {
      const bool is_slow = MatchesGlob("h.0.*", name);
      const bool decays = !is_slow && MatchesGlob("*.bias", name);
      EXPECT_EQ(values, (is_slow ? slow : decays ? decayed : plain).at(name)) << name;
      differ += values != plain.at(name);
    }
    EXPECT_EQ(differ, 12);
  }
}

// With a rate of 0 nothing moves either, but all is paid for.
TEST_P(BackendConformance, FrozenParameters_TakeNoGradientsStatesOrVersions) {
  const ModelGraph all = Gpt(false);
  const ModelGraph half = Grouped(all, {{.pattern = "h.*", .frozen = true}});
  StageOptions options;
  options.layers = {0, all.size()};
  options.samples = 2;
  options.optimizer = AdamWConfig{};
  options.history = {.momentum_average = true, .last_update = true, .mean_square = true};
  options.versions_max = 3;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto stage, Stage::Create(backend(), half, options));
  const Stage::MemoryStats memory = stage->memory();
  const ArrayBytes predicted = ArrayBytesOf(half, options);
  EXPECT_EQ(memory.version_bytes, predicted.version);
  EXPECT_EQ(memory.frozen_bytes, predicted.frozen);
  EXPECT_EQ(memory.gradient_bytes, predicted.gradients);
  EXPECT_EQ(memory.optimizer_bytes, predicted.optimizer);
  const ArrayBytes whole = ArrayBytesOf(all, options);
  EXPECT_EQ(whole.frozen, 0);
  EXPECT_LT(predicted.version, whole.version / 4);
  EXPECT_LT(predicted.gradients, whole.gradients / 4);
  EXPECT_LT(predicted.optimizer, whole.optimizer / 4);
  EXPECT_NEAR(static_cast<double>(predicted.version + predicted.frozen),
              static_cast<double>(whole.version), 4096.0);
}

// No stage before the first trained layer does a backward, and none keeps what W of a frozen one would need.
TEST_P(BackendConformance, FrozenLayers_KeepNoActivations) {
  const ModelGraph all = Gpt(false);
  const ModelGraph tail = Grouped(all, {{.pattern = "w*", .frozen = true},
                                        {.pattern = "h.0.*", .frozen = true},
                                        {.pattern = "lm_head.weight", .frozen = true}});
  const auto activations = [&](const ModelGraph& model, LayerRange layers) {
    StageOptions options;
    options.layers = layers;
    options.samples = 2;
    return (*Stage::Create(backend(), model, options))->activation_bytes();
  };
  const ActivationBytes front = activations(tail, {0, 3});
  EXPECT_LE(front.forward.left, activations(all, {0, 3}).forward.left / 4);
  EXPECT_LE(front.grad_output, BufferPool::BlockBytes(1)) << "a signal";
  EXPECT_EQ(front.backward_weight.most, 0);
  EXPECT_EQ(activations(tail, {6, 1}).backward_weight.left, 0) << "something waits for W";
  EXPECT_LT(activations(all, {6, 1}).backward_weight.left, 0);
}

TEST_P(BackendConformance, FrozenParameters_HaveWeightsAndNoStateInCheckpoints) {
  const ModelGraph model =
      Grouped(Gpt(false), {{.pattern = "h.0.attn.c_attn.weight", .frozen = true},
                           {.pattern = "h.0.mlp.*", .frozen = true},
                           {.pattern = "h.0.ln_2.*", .frozen = true}});
  Pipeline pipeline(backend(), model, OptionsFor({3, 4}));
  pipeline.Step();
  Stage& stage = pipeline.stage(0);
  for (int layer = 0; layer < 3; ++layer) {
    const std::vector<NamedArray> weights = stage.LayerWeights(layer);
    EXPECT_EQ(weights.size(), model.layers[layer].parameters.size());
    const std::vector<NamedArray> state = stage.LayerOptimizerState(layer);
    for (const NamedArray& array : state) {
      EXPECT_FALSE(MatchesGlob("h.0.attn.c_attn.weight.*", array.name)) << array.name;
    }
    EXPECT_EQ(state.empty(), layer == 2);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        const auto other,
        Stage::Create(backend(), model,
                      {.layers = {layer, 1}, .samples = 2, .optimizer = AdamWConfig{}}));
    ASSERT_THAT(other->LoadLayerWeights(0, weights), IsOk());
    ASSERT_THAT(other->LoadLayerOptimizerState(0, state), IsOk());
    EXPECT_EQ(ByName(other->LayerWeights(0)), ByName(weights));
    EXPECT_EQ(ByName(other->LayerOptimizerState(0)), ByName(state));
  }
}

TEST(ApplyGroups, NothingLeftToTrain_IsAnError) {
  ModelGraph model = Gpt(true);
  EXPECT_THAT(ApplyGroups(Groups{{.pattern = "*", .frozen = true}}, model),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       ::testing::HasSubstr("nothing is left to train")));
}

}  // namespace
}  // namespace penstock
