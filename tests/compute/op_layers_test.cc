// A model of many ops with branches and long skips: wherever it is cut into stages, and whether these recompute, it gives
// the same bits.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "compute/stage.h"
#include "model/graph_builder.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

constexpr int64_t kSteps = 6, kFeatures = 8, kIds = 11, kBatch = 3;
constexpr int kMicrobatches = 2;

ModelGraph MakeModel() {
  GraphBuilder builder("layers");
  builder.AddPort({"ids", {DType::kI32, {kSteps}}, kIds});
  builder.AddPort({"features", {DType::kF32, {kSteps, kFeatures}}});
  builder.AddPort({"length", {DType::kI32, {}}});
  builder.AddPort({"targets", {DType::kI32, {kSteps}}, kIds});
  const auto add = [&](std::string name, std::string op, Attributes attributes = {},
                       std::vector<std::string> inputs = {}) {
    builder.Add({.name = std::move(name),
                 .op = std::move(op),
                 .attributes = std::move(attributes),
                 .inputs = std::move(inputs)});
  };
  builder.BeginLayer("embedding");
  add("table", "embedding", {{"vocabulary", kIds}, {"width", kFeatures}, {"deviation", 1.0}},
      {"ids"});
  add("positions", "positions", {{"context", int64_t{9}}});
  add("embedded", "add", {}, {"positions", "features"});
  builder.BeginLayer("dropout");
  add("dropout", "dropout", {{"probability", 0.2}});
  builder.BeginLayer("gated");
  add("norm", "layer_norm", {{"width", kFeatures}});
  add("expansion", "linear", {{"outputs", 2 * kFeatures}});
  add("gate", "slice", {{"from", int64_t{0}}, {"to", kFeatures}});
  add("open", "silu");
  add("up", "slice", {{"from", kFeatures}, {"to", 2 * kFeatures}}, {"expansion"});
  add("product", "mul", {}, {"open", "up"});
  add("down", "linear", {{"outputs", kFeatures}, {"layout", std::string("inputs_first")}});
  add("residual", "add", {}, {"dropout", "down"});
  builder.BeginLayer("flat");
  add("flat", "flatten");
  builder.BeginLayer("unflat");
  add("unflat", "reshape", {{"dims", std::vector<int64_t>{kSteps, kFeatures}}});
  builder.BeginLayer("skip");
  add("skip", "concat", {}, {"unflat", "embedded"});
  add("locked", "dropout", {{"probability", 0.3}, {"kind", std::string("locked")}});
  builder.BeginLayer("recurrent");
  add("recurrent", "lstm",
      {{"hidden", kFeatures / 2}, {"bidirectional", true}, {"weight_drop", 0.2}},
      {"locked", "length"});
  builder.BeginLayer("memory");
  add("mixed", "additive_attention", {{"units", int64_t{5}}}, {"recurrent", "embedded", "length"});
  add("turned", "rope", {{"head_size", kFeatures / 2}}, {"mixed"});
  add("keys", "slice", {{"from", int64_t{0}}, {"to", kFeatures / 2}}, {"recurrent"});
  add("turned_keys", "rope", {{"head_size", kFeatures / 2}}, {"keys"});
  add("values", "slice", {{"from", kFeatures / 2}, {"to", kFeatures}}, {"embedded"});
  add("heads", "attention",
      {{"heads", int64_t{2}},
       {"key_value_heads", int64_t{1}},
       {"causal", true},
       {"window", int64_t{4}}},
      {"turned", "turned_keys", "values"});
  builder.BeginLayer("narrow");
  add("narrow", "linear", {{"outputs", kFeatures}}, {"locked"});
  add("narrow_tanh", "tanh");
  builder.BeginLayer("doubled");
  add("doubled", "add", {}, {"narrow_tanh", "narrow_tanh", "embedded", "heads"});
  builder.BeginLayer("norm_relu");
  add("final_norm", "layer_norm", {{"width", kFeatures}, {"epsilon", 1e-6}});
  add("relu", "relu");
  builder.BeginLayer("classes");
  add("classes", "linear", {{"outputs", kIds}});
  builder.BeginLayer("loss");
  add("loss", "cross_entropy", {{"ignore", int64_t{0}}, {"label_smoothing", 0.1}},
      {"classes", "targets"});
  absl::StatusOr<ModelGraph> model = std::move(builder).Build();
  EXPECT_THAT(model, IsOk());
  return *std::move(model);
}

struct Options {
  std::vector<int> layers_per_stage;
  bool recomputes = false;
  Precision precision = Precision::kF32;
};

// The model's stages on one back-end.
class Stages {
 public:
  Stages(const ModelGraph& model, const Options& options)
      : model_(model), options_(options), backend_(*MakeCpuBackend(1)) {
    LayerRange layers;
    for (const int count : options.layers_per_stage) {
      layers = {layers.end(), count};
      StageOptions stage;
      stage.layers = layers;
      stage.samples = kBatch;
      stage.precision = options.precision;
      stage.recomputes = options.recomputes;
      stage.seed = 3;
      stage.optimizer = SgdConfig{};
      stage.microbatches_in_flight_max = kMicrobatches;
      stages_.push_back(*Stage::Create(*backend_, model, stage));
      stages_.back()->InitializeWeights();
    }
  }

  // All microbatches of one update, F of all before I of any. Returns their mean loss.
  double Accumulate() {
    std::vector<Tensor> tensors(kMicrobatches);
    double loss = 0.0;
    for (int64_t m = 0; m < kMicrobatches; ++m) {
      for (auto& stage : stages_) {
        tensors[m] =
            *stage->Forward(MicrobatchId(m), m * kBatch, step_, tensors[m], PortsOf(*stage, m));
      }
      loss += *stages_.back()->ReadLoss(tensors[m]) / kMicrobatches;
    }
    for (int64_t m = 0; m < kMicrobatches; ++m) {
      Tensor gradient;
      for (size_t s = stages_.size(); s-- > 0;) {
        if (options_.recomputes) {
          EXPECT_THAT(stages_[s]->Recompute(MicrobatchId(m), step_, PortsOf(*stages_[s], m)),
                      IsOk());
        }
        gradient =
            *stages_[s]->BackwardInput(MicrobatchId(m), step_, gradient, 1.0f / kMicrobatches);
      }
    }
    for (int64_t m = 0; m < kMicrobatches; ++m) {
      for (auto& stage : stages_) EXPECT_THAT(stage->BackwardWeight(MicrobatchId(m)), IsOk());
    }
    return loss;
  }

  void Step(double learning_rate) {
    ++step_;
    for (size_t s = 0; s < stages_.size(); ++s) {
      const std::vector<float> scales(model_.size(), 1.0f);
      EXPECT_THAT(stages_[s]->Step(step_, {.learning_rate = learning_rate,
                                           .gradient_scales = scales,
                                           .oldest_live_version = step_}),
                  IsOk());
    }
  }

  std::vector<std::vector<float>> Gradients() {
    std::vector<std::vector<float>> gradients;
    for (size_t s = 0; s < stages_.size(); ++s) {
      for (int layer = 0; layer < options_.layers_per_stage[s]; ++layer) {
        for (NamedArray& array : stages_[s]->LayerGradients(layer)) {
          gradients.push_back(std::move(array.values));
        }
      }
    }
    return gradients;
  }

 private:
  std::vector<Tensor> PortsOf(Stage& stage, int64_t microbatch) {
    std::vector<Tensor> tensors;
    for (const int port : stage.ports()) {
      const Port& spec = model_.ports[port];
      RandomStream random(4, 10 * microbatch + port);
      const int64_t count = kBatch * spec.type.elements();
      std::vector<float> numbers(count);
      std::vector<int32_t> ids(count);
      for (float& number : numbers) number = static_cast<float>(random.Normal());
      for (int32_t& id : ids) id = static_cast<int32_t>(random.Below(spec.ids));
      const void* data =
          spec.type.dtype == DType::kF32 ? static_cast<const void*>(numbers.data()) : ids.data();
      tensors.push_back(*stage.PortToDevice(
          port, {static_cast<const std::byte*>(data), static_cast<size_t>(4 * count)}));
    }
    return tensors;
  }

  const ModelGraph& model_;
  const Options options_;
  std::unique_ptr<Backend> backend_;
  std::vector<std::unique_ptr<Stage>> stages_;
  int64_t step_ = 0;
};

TEST(OpLayers, EveryCut_GivesTheSameBits) {
  const ModelGraph model = MakeModel();
  for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
    Stages whole(model, {.layers_per_stage = {model.size()}, .precision = precision});
    const double loss = whole.Accumulate();
    const auto gradients = whole.Gradients();
    std::vector<std::vector<int>> partitions = {std::vector<int>(model.size(), 1),
                                                {3, 4, model.size() - 7}};
    for (int cut = 1; cut < model.size(); ++cut) partitions.push_back({cut, model.size() - cut});
    for (const std::vector<int>& partition : partitions) {
      for (const bool recomputes : {false, true}) {
        SCOPED_TRACE(testing::Message()
                     << testing::PrintToString(partition) << (recomputes ? " recomputed" : ""));
        Stages stages(model, {partition, recomputes, precision});
        EXPECT_EQ(stages.Accumulate(), loss);
        EXPECT_EQ(stages.Gradients(), gradients);
      }
    }
  }
}

TEST(OpLayers, Training_LowersTheLoss) {
  const ModelGraph model = MakeModel();
  Stages stages(model, {.layers_per_stage = {4, 4, model.size() - 8}});
  const double first = stages.Accumulate();
  double last = first;
  for (int step = 0; step < 60; ++step) {
    stages.Step(0.1);
    last = stages.Accumulate();
  }
  EXPECT_LT(last, 0.7 * first);
}

}  // namespace
}  // namespace penstock
