// Stages: the same bits for every partition, interleaving and delay of W; versions, tied weights,
// dropout, memory.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "model/graph_builder.h"
#include "tests/compute/conformance.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

Pipeline::Options OptionsFor(std::vector<int> layers_per_stage) {
  Pipeline::Options options;
  options.layers_per_stage = std::move(layers_per_stage);
  options.samples = 2;
  options.microbatches = 4;
  return options;
}

ModelGraph MakeGpt(GptConfig config) { return *BuildGpt(config); }

struct Outcome {
  std::vector<std::string> digests;
  std::vector<double> losses;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome Train(Backend& backend, const ModelGraph& model, const Pipeline::Options& options,
              int steps = 3) {
  Pipeline pipeline(backend, model, options);
  Outcome outcome;
  for (int step = 0; step < steps; ++step) {
    outcome.losses.push_back(pipeline.Step());
  }
  outcome.digests = pipeline.Digests();
  return outcome;
}

// 7 layers: embedding, two blocks of two, final norm, head.
const std::vector<std::vector<int>> kPartitions = {
    {7}, {3, 4}, {1, 6}, {6, 1}, {2, 2, 3}, {3, 1, 3}, {1, 1, 1, 1, 1, 1, 1}};

TEST_P(BackendConformance, ForwardDoneAgain_GivesTheSameBits) {
  for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
    for (const bool cuda_graphs : {false, true}) {
      GptConfig config = TinyGpt();
      config.dropout = 0.1;
      const ModelGraph model = MakeGpt(config);
      for (const std::vector<int>& partition : kPartitions) {
        Pipeline::Options options = OptionsFor(partition);
        options.precision = precision;
        options.cuda_graphs = cuda_graphs;
        const Outcome kept = Train(backend(), model, options);
        options.recomputes = true;
        EXPECT_EQ(Train(backend(), model, options), kept) << partition.size() << " stages";
      }
    }
  }
}

TEST_P(BackendConformance, Training_AnyPartition_GivesTheSameBits) {
  for (const bool tied : {true, false}) {
    for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
      GptConfig config = TinyGpt();
      config.tied_head = tied;
      config.dropout = 0.1;
      const ModelGraph model = MakeGpt(config);
      Pipeline::Options options = OptionsFor(kPartitions.front());
      options.precision = precision;
      options.clip = {Clip::Kind::kGlobalNorm, 0.5};
      const Outcome whole = Train(backend(), model, options);
      EXPECT_LT(whole.losses.back(), whole.losses.front());
      for (const std::vector<int>& partition : kPartitions) {
        options.layers_per_stage = partition;
        EXPECT_EQ(Train(backend(), model, options), whole)
            << "tied " << tied << ", stages " << partition.size();
      }
    }
  }
}

// With dropout, whose masks differ with every microbatch. A back-end without graphs passes by doing nothing.
TEST_P(BackendConformance, Training_WithDeviceGraphs_GivesTheSameBits) {
  GptConfig config = TinyGpt();
  config.dropout = 0.1;
  const ModelGraph model = MakeGpt(config);
  for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
    Pipeline::Options options = OptionsFor({3, 4});
    options.precision = precision;
    constexpr int kSteps = 6;
    const Outcome plain = Train(backend(), model, options, kSteps);
    options.cuda_graphs = true;
    Pipeline pipeline(backend(), model, options);
    Outcome recorded;
    for (int step = 0; step < kSteps; ++step) recorded.losses.push_back(pipeline.Step());
    recorded.digests = pipeline.Digests();
    EXPECT_EQ(recorded, plain) << "precision " << static_cast<int>(precision);
    for (int s = 0; s < pipeline.stages(); ++s) {
      const PassGraphs::Stats stats = pipeline.stage(s).graph_stats();
      EXPECT_EQ(stats.given_up, "");
      EXPECT_EQ(stats.replayed > 0, stats.passes > 0);
    }
  }
}

// TinyGpt's heads of 12 numbers are none that cuDNN attends to: it wants a multiple of 8, and before 9.16 keys that fill
// its tiles.
GptConfig GptWithWideHeads() {
  GptConfig config = TinyGpt();
  config.width = 64;
  config.heads = 2;
  config.context = 128;
  return config;
}

TEST_P(BackendConformance, WideHeads_ComputeByTheDevicesBestKernels) {
  Pipeline::Options options = OptionsFor({3, 4});
  options.precision = Precision::kBf16;
  Pipeline pipeline(backend(), MakeGpt(GptWithWideHeads()), options);
  for (int s = 0; s < pipeline.stages(); ++s) {
    EXPECT_EQ(pipeline.stage(s).fallbacks().nodes, 0) << pipeline.stage(s).fallbacks().first;
  }
}

// Cut, delayed, done again, captured: all of attention's passes, in the types and with the workspaces that they have.
TEST_P(BackendConformance, WideHeads_EveryWayOfTraining_GivesTheSameBits) {
  GptConfig config = GptWithWideHeads();
  config.dropout = 0.1;
  const ModelGraph model = MakeGpt(config);
  for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
    Pipeline::Options options = OptionsFor({7});
    options.precision = precision;
    constexpr int kSteps = 4;
    const Outcome whole = Train(backend(), model, options, kSteps);
    EXPECT_LT(whole.losses.back(), whole.losses.front());
    options.layers_per_stage = {2, 2, 3};
    EXPECT_EQ(Train(backend(), model, options, kSteps), whole) << "three stages";
    options.cuda_graphs = true;
    EXPECT_EQ(Train(backend(), model, options, kSteps), whole) << "three stages, CUDA graphs";
    options.recomputes = true;
    EXPECT_EQ(Train(backend(), model, options, kSteps), whole)
        << "three stages that recompute, CUDA graphs";
    options.layers_per_stage = {7};
    options.recomputes = false;
    options.weights_delay = 2;
    EXPECT_EQ(Train(backend(), model, options, kSteps), whole)
        << "weights' gradients later, CUDA graphs";
  }
}

TEST_P(BackendConformance, WideHeads_Bf16_LossStaysWithinOnePercentOfF32) {
  const ModelGraph model = MakeGpt(GptWithWideHeads());
  Pipeline::Options options = OptionsFor({7});
  const Outcome f32 = Train(backend(), model, options, /*steps=*/10);
  options.precision = Precision::kBf16;
  const Outcome bf16 = Train(backend(), model, options, /*steps=*/10);
  for (size_t step = 0; step < f32.losses.size(); ++step) {
    EXPECT_NEAR(bf16.losses[step], f32.losses[step], 0.01 * f32.losses[step]) << step;
  }
}

TEST_P(BackendConformance, Training_WeightGradientsDelayed_GivesTheSameBits) {
  const ModelGraph model = MakeGpt(TinyGpt());
  const Outcome at_once = Train(backend(), model, OptionsFor({3, 4}));
  for (const int64_t delay : {1, 2, 4}) {
    Pipeline::Options options = OptionsFor({3, 4});
    options.weights_delay = delay;
    EXPECT_EQ(Train(backend(), model, options), at_once) << delay;
  }
}

// Memory that carried other microbatches before must not show in results.
TEST_P(BackendConformance, Training_OnUsedMemory_GivesTheSameBits) {
  const ModelGraph model = MakeGpt(TinyGpt());
  const Outcome fresh = Train(backend(), model, OptionsFor({7}));
  GptConfig other = TinyGpt();
  other.dropout = 0.5;
  Train(backend(), MakeGpt(other), OptionsFor({7}));
  EXPECT_EQ(Train(backend(), model, OptionsFor({7})), fresh);
}

TEST_P(BackendConformance, Training_WithSgd_AnyPartitionGivesTheSameBits) {
  const ModelGraph model = MakeGpt(TinyGpt());
  Pipeline::Options options = OptionsFor({7});
  options.optimizer = SgdConfig{0.9, 0.01};
  options.learning_rate = 0.1;
  const Outcome whole = Train(backend(), model, options);
  options.layers_per_stage = {2, 5};
  EXPECT_EQ(Train(backend(), model, options), whole);
  EXPECT_LT(whole.losses.back(), whole.losses.front());
}

TEST_P(BackendConformance, Training_WithMuon_AnyPartitionGivesTheSameBits) {
  for (const bool tied : {true, false}) {
    GptConfig config = TinyGpt();
    config.tied_head = tied;
    const ModelGraph model = MakeGpt(config);
    Pipeline::Options options = OptionsFor(kPartitions.front());
    options.optimizer = MuonConfig{};
    options.clip = {Clip::Kind::kGlobalNorm, 0.5};
    const Outcome whole = Train(backend(), model, options);
    EXPECT_LT(whole.losses.back(), whole.losses.front());
    for (const std::vector<int>& partition : kPartitions) {
      options.layers_per_stage = partition;
      EXPECT_EQ(Train(backend(), model, options), whole) << partition.size() << " stages";
    }
  }
}

TEST_P(BackendConformance, Training_OnePredictableText_LearnsIt) {
  GptConfig config = TinyGpt();
  const ModelGraph model = MakeGpt(config);
  Pipeline::Options options = OptionsFor({4, 3});
  options.learning_rate = 1e-2;
  Pipeline pipeline(backend(), model, options);
  double loss = 0.0;
  for (int step = 0; step < 60; ++step) {
    loss = pipeline.Step();
  }
  // The text leaves ln 3 = 1.10 nats of chance; knowing nothing costs ln 29 = 3.37.
  EXPECT_LT(loss, 1.4);
}

TEST_P(BackendConformance, Bf16_LossCurve_StaysWithinOnePercentOfF32) {
  const ModelGraph model = MakeGpt(TinyGpt());
  Pipeline::Options options = OptionsFor({7});
  options.learning_rate = 5e-3;
  const Outcome exact = Train(backend(), model, options, 30);
  options.precision = Precision::kBf16;
  const Outcome rounded = Train(backend(), model, options, 30);
  for (size_t step = 0; step < exact.losses.size(); ++step) {
    EXPECT_NEAR(rounded.losses[step], exact.losses[step], 0.01 * exact.losses[step]) << step;
  }
}

TEST_P(BackendConformance, Bf16_RoundedAtRandom_AnyPartitionGivesTheSameBits) {
  for (const bool tied : {true, false}) {
    GptConfig config = TinyGpt();
    config.tied_head = tied;
    const ModelGraph model = MakeGpt(config);
    Pipeline::Options options = OptionsFor(kPartitions.front());
    options.precision = Precision::kBf16;
    options.rounding = Rounding::kStochastic;
    const Outcome whole = Train(backend(), model, options);
    for (const std::vector<int>& partition : kPartitions) {
      options.layers_per_stage = partition;
      EXPECT_EQ(Train(backend(), model, options), whole) << partition.size() << " stages";
    }
  }
}

TEST_P(BackendConformance, Bf16_RoundedAtRandom_LossStaysWithinOnePercentOfF32) {
  const ModelGraph model = MakeGpt(TinyGpt());
  Pipeline::Options options = OptionsFor({7});
  options.learning_rate = 5e-3;
  const Outcome exact = Train(backend(), model, options, 30);
  options.precision = Precision::kBf16;
  options.rounding = Rounding::kStochastic;
  const Outcome rounded = Train(backend(), model, options, 30);
  for (size_t step = 0; step < exact.losses.size(); ++step) {
    EXPECT_NEAR(rounded.losses[step], exact.losses[step], 0.02 * exact.losses[step]) << step;
  }
}

TEST_P(BackendConformance, TiedGradients_OnOneAndTwoStages_AreEqualAndCountOnce) {
  const ModelGraph model = MakeGpt(TinyGpt());
  Pipeline one(backend(), model, OptionsFor({7}));
  Pipeline two(backend(), model, OptionsFor({3, 4}));
  one.Accumulate();
  two.Accumulate();
  EXPECT_EQ(one.SquaredNorms(), two.SquaredNorms());
  EXPECT_GT(one.SquaredNorms().front(), 0.0);
  EXPECT_EQ(one.SquaredNorms().back(), 0.0);
  const std::vector<float> shared = ToHost(one.stage(0).TiedGradient(0));
  EXPECT_EQ(ToHost(two.stage(0).TiedGradient(0)), shared);
  EXPECT_EQ(ToHost(two.stage(1).TiedGradient(0)), shared);
}

// Both uses must show: the sum differs from what an untied model gives either use.
TEST_P(BackendConformance, TiedGradient_IsTheSumOfBothUses) {
  GptConfig config = TinyGpt();
  const ModelGraph tied_model = MakeGpt(config);
  config.tied_head = false;
  const ModelGraph untied_model = MakeGpt(config);
  Pipeline tied(backend(), tied_model, OptionsFor({7}));
  Pipeline untied(backend(), untied_model, OptionsFor({7}));
  NamedArray head = tied.stage(0).LayerWeights(0)[0];
  head.name = "lm_head.weight";
  ASSERT_THAT(untied.stage(0).LoadLayerWeights(6, {head}), IsOk());
  tied.Accumulate();
  untied.Accumulate();
  const std::vector<float> sum = ToHost(tied.stage(0).TiedGradient(0));
  const std::vector<float> embedding = untied.stage(0).LayerGradients(0)[0].values;
  const std::vector<float> output = untied.stage(0).LayerGradients(6)[0].values;
  ASSERT_GE(sum.size(), output.size());
  for (size_t i = 0; i < sum.size(); ++i) {
    const bool is_padding = i >= output.size();
    EXPECT_EQ(sum[i], is_padding ? 0.0f : output[i] + embedding[i]) << i;
  }
}

TEST_P(BackendConformance, Average_OfReplicas_IsTheSumInOrderTimesTheReciprocal) {
  const ModelGraph model = MakeGpt(TinyGpt());
  std::vector<std::unique_ptr<Pipeline>> replicas;
  std::vector<Stage*> stages;
  std::vector<std::vector<NamedArray>> arrays;  // by replica: weights and state of a layer
  constexpr int kLayer = 1;
  const auto arrays_of = [](Stage& stage) {
    std::vector<NamedArray> all = stage.LayerWeights(kLayer);
    for (NamedArray& array : stage.LayerOptimizerState(kLayer)) all.push_back(std::move(array));
    return all;
  };
  for (int r = 0; r < 3; ++r) {
    Pipeline::Options options = OptionsFor({7});
    options.learning_rate = 1e-3 * (r + 1);
    replicas.push_back(std::make_unique<Pipeline>(backend(), model, options));
    replicas.back()->Step();
    replicas.back()->Step();
    stages.push_back(&replicas.back()->stage(0));
    arrays.push_back(arrays_of(*stages.back()));
  }
  Stage::Average(stages);
  for (size_t a = 0; a < arrays[0].size(); ++a) {
    std::vector<float> expected = arrays[0][a].values;
    for (size_t i = 0; i < expected.size(); ++i) {
      expected[i] = (expected[i] + arrays[1][a].values[i] + arrays[2][a].values[i]) * (1.0f / 3.0f);
    }
    for (Stage* stage : stages) {
      EXPECT_EQ(arrays_of(*stage)[a].values, expected) << arrays[0][a].name;
    }
  }
  for (Stage* stage : stages) {
    EXPECT_EQ(stage->version(), 2);
    EXPECT_EQ(stage->LayerDigests(), stages[0]->LayerDigests());
  }
}

TEST_P(BackendConformance, ReplacedVersions_StayReadableUntilTheyDie) {
  const ModelGraph model = MakeGpt(TinyGpt());
  StageOptions options;
  options.layers = {0, 7};
  options.samples = 2;
  options.versions_max = 3;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto stage, Stage::Create(backend(), model, options));
  stage->InitializeWeights();
  const std::vector<Tensor> ports = PortsOf(*stage, model, 0, options.samples);
  const auto loss_of = [&](int64_t version) {
    return *stage->ReadLoss(stage->Evaluate(version, Tensor(), ports)->output);
  };
  const std::vector<float> ones(7, 1.0f);
  Stage::StepOptions step;
  step.learning_rate = 1e-2;
  step.gradient_scales = ones;
  step.keep_replaced = true;

  std::vector<double> losses;
  for (int64_t version = 0; version < 3; ++version) {
    losses.push_back(loss_of(version));
    ASSERT_THAT(stage->Forward(MicrobatchId(version), 0, version, Tensor(), ports), IsOk());
    ASSERT_THAT(stage->BackwardInput(MicrobatchId(version), version, Tensor(), 1.0f), IsOk());
    ASSERT_THAT(stage->BackwardWeight(MicrobatchId(version)), IsOk());
    stage->CombineUses();
    if (version < 2) {
      ASSERT_THAT(stage->Step(version + 1, step), IsOk());
    }
  }
  EXPECT_EQ(std::set<double>(losses.begin(), losses.end()).size(), 3u);
  EXPECT_EQ(stage->memory().versions_allocated, 3);
  for (int64_t version = 0; version < 3; ++version) {
    EXPECT_EQ(loss_of(version), losses[version]) << version;
  }
  // A fourth live version was not announced; once version 0 and 1 have died there is room again.
  EXPECT_THAT(stage->Step(3, step),
              StatusIs(absl::StatusCode::kFailedPrecondition, testing::HasSubstr("versions_max")));
  step.oldest_live_version = 2;
  ASSERT_THAT(stage->Step(3, step), IsOk());
  EXPECT_EQ(loss_of(2), losses[2]);
  EXPECT_EQ(stage->memory().versions_allocated, 3);
  EXPECT_THAT(stage->Evaluate(1, Tensor(), ports),
              StatusIs(absl::StatusCode::kFailedPrecondition, testing::HasSubstr("version 1")));
}

TEST_P(BackendConformance, Evaluation_BetweenMicrobatches_ChangesNothing) {
  GptConfig config = TinyGpt();
  config.dropout = 0.2;
  const ModelGraph model = MakeGpt(config);
  Pipeline plain(backend(), model, OptionsFor({7}));
  Pipeline watched(backend(), model, OptionsFor({7}));
  const std::vector<Tensor> ports = PortsOf(watched.stage(0), model, 99, 2);
  for (int step = 0; step < 2; ++step) {
    plain.Step();
    watched.Accumulate();
    ASSERT_THAT(watched.stage(0).Evaluate(step, Tensor(), ports), IsOk());
    watched.Update();
  }
  EXPECT_EQ(plain.Digests(), watched.Digests());
}

// Ranks, ties and targets that do not count, by hand.
TEST_P(BackendConformance, RanksOfTargets_AreTheNumbersOfHigherScores) {
  GraphBuilder builder("layers");
  builder.AddPort({"scores", {DType::kF32, {4, 6}}});
  builder.AddPort({"targets", {DType::kI32, {4}}});
  builder.BeginLayer("loss");
  builder.Add({.op = "cross_entropy",
               .attributes = {{"ignore", int64_t{-100}}},
               .inputs = {"scores", "targets"}});
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph model, std::move(builder).Build());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto stage,
                                Stage::Create(backend(), model, {.layers = {0, 1}, .samples = 2}));
  const std::vector<float> scores = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,  //
                                     5, 1, 7, 3, 7, 0, 9, 9, 9, 9, 9, 9,  //
                                     5, 1, 7, 3, 7, 0, 5, 1, 7, 3, 7, 0,  //
                                     5, 1, 7, 3, 7, 0, 5, 1, 7, 3, 7, 0};
  const std::vector<int32_t> targets = {0, 3, 4, -100, 2, 5, 1, 0};
  const auto bytes = [](const auto& values) {
    return absl::MakeConstSpan(reinterpret_cast<const std::byte*>(values.data()),
                               values.size() * sizeof(values[0]));
  };
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Tensor score_port, stage->PortToDevice(0, bytes(scores)));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Tensor target_port, stage->PortToDevice(1, bytes(targets)));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Stage::Evaluated evaluated,
                                stage->Evaluate(0, Tensor(), {score_port, target_port}));
  EXPECT_THAT(stage->ReadRanks(evaluated.ranks),
              IsOkAndHolds(testing::ElementsAre(0, 3, 1, -1, 0, 5, 4, 2)));
  // The mean over the seven that count.
  const double log_sum =
      std::log(std::exp(5.0) + std::exp(1.0) + 2 * std::exp(7.0) + std::exp(3.0) + std::exp(0.0));
  const double sum = 2 * std::log(6.0) + 5 * log_sum - (7 + 7 + 0 + 1 + 5);
  EXPECT_THAT(stage->ReadLoss(evaluated.output), IsOkAndHolds(testing::DoubleNear(sum / 7, 1e-5)));

  // Another number that is no class is refused still.
  const std::vector<int32_t> wrong = {0, 3, 4, -100, 2, 5, 1, -1};
  EXPECT_THAT(stage->PortToDevice(1, bytes(wrong)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       testing::HasSubstr("input targets holds -1 at sample 1, time step 3")));
}

TEST_P(BackendConformance, Predictions_AreThoseOfTheLossAndIgnoreLaterTokens) {
  const ModelGraph model = MakeGpt(TinyGpt());
  Pipeline pipeline(backend(), model, OptionsFor({7}));
  Stage& stage = pipeline.stage(0);
  std::vector<int32_t> ids = TokensOf(0, 2 * 20, 29).ids;
  const std::vector<int32_t> targets = TokensOf(0, 2 * 20, 29).targets;
  // Targets are the loss's affair.
  const auto predict = [&] {
    return stage.Predictions(0, Tensor(), {ToDevice(ids, {2, 20}), Tensor()});
  };
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::vector<float> before, predict());
  ASSERT_EQ(before.size(), 2u * 20u * 29u);
  // The mean loss over all positions, from logits alone.
  double sum = 0.0;
  for (int64_t row = 0; row < 2 * 20; ++row) {
    double total = 0.0;
    for (int64_t v = 0; v < 29; ++v) {
      total += std::exp(static_cast<double>(before[row * 29 + v]));
    }
    sum += std::log(total) - before[row * 29 + targets[row]];
  }
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const Stage::Evaluated evaluated,
      stage.Evaluate(0, Tensor(), {ToDevice(ids, {2, 20}), ToDevice(targets, {2, 20})}));
  EXPECT_THAT(stage.ReadLoss(evaluated.output), IsOkAndHolds(testing::DoubleNear(sum / 40, 1e-5)));
  // Products of other shapes may round otherwise, so that scores this close are as good as equal.
  constexpr float kClose = 1e-5f;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::vector<int32_t> ranks, stage.ReadRanks(evaluated.ranks));
  ASSERT_EQ(ranks.size(), targets.size());
  for (int64_t row = 0; row < 2 * 20; ++row) {
    const float* const scores = &before[row * 29];
    const float score = scores[targets[row]];
    const auto above = [&](float bound) {
      return std::count_if(scores, scores + 29, [&](float other) { return other > bound; });
    };
    EXPECT_GE(ranks[row], above(score + kClose)) << row;
    EXPECT_LT(ranks[row], above(score - kClose)) << row;  // the target itself is among them
  }

  for (int64_t t = 8; t < 20; ++t) {
    ids[t] = (ids[t] + 1) % 29;
  }
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::vector<float> after, predict());
  const auto first_rows_of = [](const std::vector<float>& logits, int64_t rows) {
    return std::vector<float>(logits.begin(), logits.begin() + rows * 29);
  };
  EXPECT_EQ(first_rows_of(after, 8), first_rows_of(before, 8));
  EXPECT_NE(first_rows_of(after, 9), first_rows_of(before, 9));
}

// The keep rate of the embedding's dropout, and that masks differ between samples but not between
// places of a sample in its microbatch.
TEST_P(BackendConformance, Dropout_Mask_HasItsRateAndFollowsTheSample) {
  for (const double probability : {0.1, 0.5}) {
    const int64_t width = 200;
    const ValueType tokens = {DType::kI32, {50}};
    const Node node = MakeNode("gpt_embedding",
                               {{"vocabulary", int64_t{4}},
                                {"context", int64_t{50}},
                                {"width", width},
                                {"dropout", probability}},
                               {tokens});
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        const auto kernels,
        backend().MakeKernels({.node = node, .inputs = {tokens}, .samples = 4}, Precision::kF32));
    const Tensor ones = ToDevice(std::vector<float>(50 * width, 0.5f), {50 * width});
    const int64_t offsets[] = {0, 0};
    const WeightView weights{ones.data<float>(), nullptr, offsets};
    const Tensor ids = ToDevice(std::vector<int32_t>(4 * 50, 0), {4, 50});
    const auto mask_of = [&](uint64_t seed, uint32_t draw, int64_t first_sample) {
      const Tensor output = Poisoned(DType::kF32, {4, 50, width});
      Tape tape;
      tape.inputs[0] = ids.data<void>();
      tape.output = output.data<void>();
      EXPECT_THAT(kernels->Forward({seed, draw, first_sample}, weights, tape), IsOk());
      return ToHost(output);
    };
    const std::vector<float> mask = mask_of(1, 0, 10);
    const auto count = static_cast<double>(mask.size());
    const auto kept = static_cast<double>(
        std::count_if(mask.begin(), mask.end(), [](float value) { return value != 0.0f; }));
    const double deviation = std::sqrt(probability * (1 - probability) / count);
    EXPECT_NEAR(kept / count, 1 - probability, 5 * deviation);
    for (const float value : mask) {
      EXPECT_TRUE(value == 0.0f || std::abs(value - 1 / (1 - probability)) < 1e-6);
    }
    // Sample 12 is row 2 of a microbatch that begins at 10, and row 0 of one that begins at 12.
    const std::vector<float> later = mask_of(1, 0, 12);
    EXPECT_TRUE(
        std::equal(later.begin(), later.begin() + 2 * 50 * width, mask.begin() + 2 * 50 * width));
    EXPECT_FALSE(std::equal(later.begin(), later.begin() + 50 * width, mask.begin()));
    EXPECT_NE(mask_of(2, 0, 10), mask);
    EXPECT_NE(mask_of(1, 1, 10), mask);
    EXPECT_EQ(mask_of(1, 0, 10), mask);
  }
}

// F and I must use the same masks: differences of the loss of one microbatch, whose masks stay, with
// dropout on in every layer.
TEST_P(BackendConformance, Dropout_Gradients_MatchDifferencesOfTheMaskedLoss) {
  GptConfig config = TinyGpt();
  config.dropout = 0.3;
  const ModelGraph model = MakeGpt(config);
  Pipeline::Options options = OptionsFor({7});
  options.microbatches = 1;
  Pipeline pipeline(backend(), model, options);
  Stage& stage = pipeline.stage(0);
  // Larger weights than the initial ones, so that every layer matters.
  for (int layer = 0; layer < 7; ++layer) {
    std::vector<NamedArray> arrays = stage.LayerWeights(layer);
    for (NamedArray& array : arrays) {
      for (float& value : array.values) {
        value *= array.shape.size() == 2 ? 8.0f : 1.0f;
      }
    }
    if (layer < 6) {
      ASSERT_THAT(stage.LoadLayerWeights(layer, arrays), IsOk());
    }
  }
  pipeline.Accumulate();
  const std::vector<NamedArray> gradients_of[] = {stage.LayerGradients(1), stage.LayerGradients(2)};
  for (const int layer : {1, 2}) {
    const std::vector<NamedArray> weights = stage.LayerWeights(layer);
    const std::vector<NamedArray>& gradients = gradients_of[layer - 1];
    // Along the gradient itself the slope is its squared norm.
    double squared = 0.0;
    for (const NamedArray& gradient : gradients) {
      for (const float value : gradient.values) {
        squared += static_cast<double>(value) * value;
      }
    }
    const double step = 2e-2 / std::sqrt(squared);
    const auto loss_at = [&](double distance) {
      std::vector<NamedArray> moved = weights;
      for (size_t p = 0; p < moved.size(); ++p) {
        for (size_t i = 0; i < moved[p].values.size(); ++i) {
          moved[p].values[i] += static_cast<float>(distance * gradients[p].values[i]);
        }
      }
      EXPECT_THAT(stage.LoadLayerWeights(layer, moved), IsOk());
      const double loss = pipeline.Accumulate();  // the same microbatch: no update in between
      return loss;
    };
    const double slope =
        (8 * (loss_at(step) - loss_at(-step)) - (loss_at(2 * step) - loss_at(-2 * step))) /
        (12 * step);
    EXPECT_NEAR(slope / squared, 1.0, 2e-3) << model.layers[layer].name;
    ASSERT_THAT(stage.LoadLayerWeights(layer, weights), IsOk());
  }
}

void ExpectCheckpointContinues(Backend& backend, Pipeline::Options options) {
  const ModelGraph model = MakeGpt(TinyGpt());
  options.layers_per_stage = {3, 4};
  Pipeline original(backend, model, options);
  options.layers_per_stage = {7};
  Pipeline copy(backend, model, options);
  // Both pipelines count their own steps, so the copy takes as many before it is overwritten.
  original.Step();
  original.Step();
  copy.Step();
  copy.Step();
  for (int layer = 0; layer < 7; ++layer) {
    Stage& source = original.stage(layer < 3 ? 0 : 1);
    const int local = layer < 3 ? layer : layer - 3;
    ASSERT_THAT(copy.stage(0).LoadLayerWeights(layer, source.LayerWeights(local)), IsOk());
    ASSERT_THAT(copy.stage(0).LoadLayerOptimizerState(layer, source.LayerOptimizerState(local)),
                IsOk());
  }
  copy.stage(0).SetVersion(2);
  EXPECT_EQ(original.Step(), copy.Step());
  EXPECT_EQ(original.Digests(), copy.Digests());
}

TEST_P(BackendConformance, Checkpoint_LoadedIntoAnotherPartition_ContinuesWithTheSameBits) {
  ExpectCheckpointContinues(backend(), OptionsFor({}));
}

// The mirror that was rounded at random is made again as it was.
TEST_P(BackendConformance, Checkpoint_OfWeightsRoundedAtRandom_ContinuesWithTheSameBits) {
  Pipeline::Options options = OptionsFor({});
  options.precision = Precision::kBf16;
  options.rounding = Rounding::kStochastic;
  ExpectCheckpointContinues(backend(), options);
}

// Marks of a device that works on behind the calls tell its time in the order of the calls.
TEST_P(BackendConformance, Marks_ArePassedInOrderAndTellTime) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto marks, backend().MakeMarks(4));
  if (marks == nullptr) GTEST_SKIP() << "calls of this back-end return when their work is done";
  const Tensor values = Poisoned(DType::kF32, {1 << 22});
  // The least of some rounds: another program may have the device in the middle of one.
  int64_t one_ns = std::numeric_limits<int64_t>::max();
  int64_t twenty_ns = std::numeric_limits<int64_t>::max();
  for (int round = 0; round < 5; ++round) {
    marks->BeginRange("0F3");
    marks->Put(0, DeviceStream::kCompute);
    backend().Fill(values.data<float>(), 1.0f, 1 << 22);
    marks->Put(1, DeviceStream::kCompute);
    for (int i = 0; i < 20; ++i) backend().Fill(values.data<float>(), 2.0f, 1 << 22);
    marks->Put(2, DeviceStream::kCompute);
    marks->EndRange();
    marks->Put(3, DeviceStream::kCopyOut);
    ASSERT_THAT(backend().Synchronize(), IsOk());
    for (const int mark : {0, 1, 2}) EXPECT_TRUE(marks->Passed(mark)) << mark;
    EXPECT_GT(marks->ElapsedNs(0, 1), 0);
    EXPECT_NEAR(marks->ElapsedNs(0, 2), marks->ElapsedNs(0, 1) + marks->ElapsedNs(1, 2), 2000);
    one_ns = std::min(one_ns, marks->ElapsedNs(0, 1));
    twenty_ns = std::min(twenty_ns, marks->ElapsedNs(1, 2));
  }
  EXPECT_GT(twenty_ns, one_ns);
}

TEST_P(BackendConformance, SteadyState_TakesNoMemoryFromTheSource) {
  const ModelGraph model = MakeGpt(TinyGpt());
  Pipeline::Options options = OptionsFor({3, 4});
  options.weights_delay = 2;
  Pipeline pipeline(backend(), model, options);
  pipeline.Step();
  pipeline.Step();
  const BufferPool::Stats warm = backend().pool().stats();
  for (int step = 0; step < 5; ++step) {
    pipeline.Step();
  }
  const BufferPool::Stats later = backend().pool().stats();
  EXPECT_EQ(later.allocations, warm.allocations);
  EXPECT_EQ(later.bytes_held, warm.bytes_held);
  EXPECT_EQ(later.bytes_in_use, warm.bytes_in_use);
}

TEST_P(BackendConformance, MicrobatchesInFlight_OutOfOrderBackward_GivesEachItsOwnGradient) {
  const ModelGraph model = MakeGpt(TinyGpt());
  StageOptions options;
  options.layers = {1, 2};
  options.samples = 2;
  options.microbatches_in_flight_max = 3;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto stage, Stage::Create(backend(), model, options));
  stage->InitializeWeights();
  const auto input_of = [&](int m) {
    std::vector<float> values(2 * 20 * 36);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = std::sin(static_cast<float>(i * (m + 1)));
    }
    return ToDevice(values, {2, 20, 36});
  };
  std::map<int, std::vector<float>> alone;
  for (const int m : {0, 1, 2}) {
    ASSERT_THAT(stage->Forward(MicrobatchId(m), 2 * m, 0, input_of(m), {}), IsOk());
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Tensor gradient,
                                  stage->BackwardInput(MicrobatchId(m), 0, input_of(m + 3), 1.0f));
    ASSERT_THAT(stage->BackwardWeight(MicrobatchId(m)), IsOk());
    alone[m] = ToHost(gradient);
  }
  for (const int m : {0, 1, 2}) {
    ASSERT_THAT(stage->Forward(MicrobatchId(m), 2 * m, 0, input_of(m), {}), IsOk());
  }
  for (const int m : {2, 0, 1}) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Tensor gradient,
                                  stage->BackwardInput(MicrobatchId(m), 0, input_of(m + 3), 1.0f));
    EXPECT_EQ(ToHost(gradient), alone[m]) << m;
  }
}

}  // namespace
}  // namespace penstock
