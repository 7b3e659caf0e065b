// Batch norm's running statistics: who changes them, what they become, and who reads them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "compute/stage.h"
#include "model/graph_builder.h"
#include "tests/compute/device_memory.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

constexpr int64_t kNormSamples = 4;
constexpr int64_t kNormTime = 6;
constexpr int64_t kNormWidth = 8;
constexpr int64_t kNormVocabulary = 11;
constexpr int64_t kNormClasses = 5;

// Layers: embedding, norm, head.
ModelGraph NormModel() {
  GraphBuilder builder("layers");
  builder.AddPort({"tokens", {DType::kI32, {kNormTime}}, kNormVocabulary});
  builder.AddPort({"targets", {DType::kI32, {kNormTime}}, kNormClasses});
  builder.BeginLayer("embedding");
  builder.Add(
      {.op = "embedding",
       .attributes = {{"vocabulary", kNormVocabulary}, {"width", kNormWidth}, {"deviation", 2.0}},
       .inputs = {"tokens"}});
  builder.BeginLayer("norm");
  builder.Add({.op = "batch_norm", .attributes = {{"momentum", 0.25}}});
  builder.BeginLayer("head");
  builder.Add({.name = "logits", .op = "linear", .attributes = {{"outputs", kNormClasses}}});
  builder.Add({.name = "loss", .op = "cross_entropy", .inputs = {"logits", "targets"}});
  return *std::move(builder).Build();
}

// Of microbatch `number`; each has tokens of its own.
std::vector<int32_t> NormIds(int64_t number, int64_t below) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < kNormSamples * kNormTime; ++i) {
    ids.push_back(static_cast<int32_t>((i * i + 3 * i + number * (i + 2)) % below));
  }
  return ids;
}

// The model on one or more stages of one back-end.
class NormPipeline {
 public:
  explicit NormPipeline(const std::vector<LayerRange>& ranges, bool recomputes = false)
      : backend_(*MakeCpuBackend(1)), model_(NormModel()), recomputes_(recomputes) {
    for (const LayerRange range : ranges) {
      stages_.push_back(*Stage::Create(*backend_, model_,
                                       {.layers = range,
                                        .samples = kNormSamples,
                                        .recomputes = recomputes,
                                        .microbatches_in_flight_max = 2}));
      stages_.back()->InitializeWeights();
    }
  }

  void Forward(int64_t number) {
    Tensor value;
    for (const auto& stage : stages_) {
      PENSTOCK_ASSERT_OK_AND_ASSIGN(
          value, stage->Forward(MicrobatchId(number), number * kNormSamples, 0, value,
                                Ports(*stage, number)));
    }
  }
  void Backward(int64_t number) {
    Tensor gradient;
    for (size_t s = stages_.size(); s-- > 0;) {
      Stage& stage = *stages_[s];
      if (recomputes_) {
        ASSERT_THAT(stage.Recompute(MicrobatchId(number), 0, Ports(stage, number)), IsOk());
      }
      PENSTOCK_ASSERT_OK_AND_ASSIGN(gradient,
                                    stage.BackwardInput(MicrobatchId(number), 0, gradient, 1.0f));
      ASSERT_THAT(stage.BackwardWeight(MicrobatchId(number)), IsOk());
    }
  }
  double Evaluate(int64_t number) {
    Tensor value;
    for (const auto& stage : stages_) {
      value = stage->Evaluate(0, value, Ports(*stage, number))->output;
    }
    return *stages_.back()->ReadLoss(value);
  }
  // Of the parameter or buffer `name`.
  std::vector<float> Values(const std::string& name) {
    for (const auto& stage : stages_) {
      for (int layer = 0; layer < LayersOf(*stage); ++layer) {
        for (const NamedArray& array : stage->LayerWeights(layer)) {
          if (array.name == name) return array.values;
        }
      }
    }
    ADD_FAILURE() << "no " << name;
    return {};
  }
  std::vector<std::vector<float>> Gradients() {
    std::vector<std::vector<float>> all;
    for (const auto& stage : stages_) {
      for (int layer = 0; layer < LayersOf(*stage); ++layer) {
        for (const NamedArray& array : stage->LayerGradients(layer)) all.push_back(array.values);
      }
    }
    return all;
  }

 private:
  int LayersOf(const Stage& stage) const {
    return static_cast<int>(stages_.size()) == 1 ? model_.size()
           : &stage == stages_.front().get()     ? 2
                                                 : 1;
  }
  std::vector<Tensor> Ports(Stage& stage, int64_t number) {
    std::vector<Tensor> ports;
    for (const int port : stage.ports()) {
      const std::vector<int32_t> ids = NormIds(number, model_.ports[port].ids);
      ports.push_back(*stage.PortToDevice(
          port, {reinterpret_cast<const std::byte*>(ids.data()), ids.size() * sizeof(int32_t)}));
    }
    return ports;
  }

  std::unique_ptr<Backend> backend_;
  const ModelGraph model_;
  const bool recomputes_;
  std::vector<std::unique_ptr<Stage>> stages_;
};

struct Moments {
  std::vector<double> mean, unbiased_variance;
};

// Of the rows of the table that a microbatch looks up.
Moments MomentsOf(const std::vector<float>& table, int64_t number) {
  const std::vector<int32_t> ids = NormIds(number, kNormVocabulary);
  const auto rows = static_cast<double>(ids.size());
  Moments moments{std::vector<double>(kNormWidth), std::vector<double>(kNormWidth)};
  for (int64_t c = 0; c < kNormWidth; ++c) {
    for (const int32_t id : ids) moments.mean[c] += table[id * kNormWidth + c] / rows;
    for (const int32_t id : ids) {
      const double apart = table[id * kNormWidth + c] - moments.mean[c];
      moments.unbiased_variance[c] += apart * apart / (rows - 1);
    }
  }
  return moments;
}

TEST(BatchNorm, Forward_LetsTheRunningStatisticsFollow) {
  NormPipeline pipeline({{0, 3}});
  const std::vector<float> table = pipeline.Values("embedding.weight");
  std::vector<double> mean(kNormWidth, 0.0), variance(kNormWidth, 1.0);
  for (int64_t number = 0; number < 3; ++number) {
    pipeline.Forward(number);
    pipeline.Backward(number);
    const Moments moments = MomentsOf(table, number);
    for (int64_t c = 0; c < kNormWidth; ++c) {
      mean[c] = 0.75 * mean[c] + 0.25 * moments.mean[c];
      variance[c] = 0.75 * variance[c] + 0.25 * moments.unbiased_variance[c];
    }
  }
  for (int64_t c = 0; c < kNormWidth; ++c) {
    EXPECT_NEAR(pipeline.Values("norm.running_mean")[c], mean[c], 1e-6);
    EXPECT_NEAR(pipeline.Values("norm.running_var")[c], variance[c], 1e-5);
  }
}

TEST(BatchNorm, Evaluate_ReadsTheRunningStatisticsAndChangesNone) {
  NormPipeline pipeline({{0, 3}});
  for (int64_t number = 0; number < 2; ++number) {
    pipeline.Forward(number);
    pipeline.Backward(number);
  }
  const std::vector<float> mean = pipeline.Values("norm.running_mean");
  const std::vector<float> variance = pipeline.Values("norm.running_var");
  const double loss = pipeline.Evaluate(7);
  EXPECT_EQ(pipeline.Values("norm.running_mean"), mean);
  EXPECT_EQ(pipeline.Values("norm.running_var"), variance);

  // The same by hand; the gain is 1 and the bias 0.
  const std::vector<float> table = pipeline.Values("embedding.weight");
  const std::vector<float> weight = pipeline.Values("logits.weight");
  const std::vector<float> bias = pipeline.Values("logits.bias");
  const std::vector<int32_t> ids = NormIds(7, kNormVocabulary);
  const std::vector<int32_t> targets = NormIds(7, kNormClasses);
  double expected = 0.0;
  for (size_t row = 0; row < ids.size(); ++row) {
    std::vector<double> logits(bias.begin(), bias.end());
    double sum = 0.0;
    for (int64_t k = 0; k < kNormClasses; ++k) {
      for (int64_t c = 0; c < kNormWidth; ++c) {
        logits[k] += weight[k * kNormWidth + c] * (table[ids[row] * kNormWidth + c] - mean[c]) /
                     std::sqrt(variance[c] + 1e-5);
      }
      sum += std::exp(logits[k]);
    }
    expected += (std::log(sum) - logits[targets[row]]) / static_cast<double>(ids.size());
  }
  EXPECT_NEAR(loss, expected, 1e-5);
}

TEST(BatchNorm, Recompute_RepeatsTheForwardAndChangesNoBuffer) {
  NormPipeline keeps({{0, 3}});
  NormPipeline recomputes({{0, 3}}, /*recomputes=*/true);
  for (NormPipeline* pipeline : {&keeps, &recomputes}) {
    // The second forward changes the statistics before the first microbatch's is repeated.
    pipeline->Forward(0);
    pipeline->Forward(1);
    pipeline->Backward(0);
    pipeline->Backward(1);
  }
  EXPECT_EQ(recomputes.Values("norm.running_mean"), keeps.Values("norm.running_mean"));
  EXPECT_EQ(recomputes.Values("norm.running_var"), keeps.Values("norm.running_var"));
  EXPECT_EQ(recomputes.Gradients(), keeps.Gradients());
}

TEST(BatchNorm, TwoStages_HaveTheBitsOfOne) {
  NormPipeline one({{0, 3}});
  NormPipeline two({{0, 2}, {2, 1}});
  for (NormPipeline* pipeline : {&one, &two}) {
    pipeline->Forward(0);
    pipeline->Backward(0);
  }
  EXPECT_EQ(two.Values("norm.running_mean"), one.Values("norm.running_mean"));
  EXPECT_EQ(two.Values("norm.running_var"), one.Values("norm.running_var"));
  EXPECT_EQ(two.Gradients(), one.Gradients());
}

TEST(BatchNorm, OneValueOfEachChannel_CannotTrain) {
  const auto backend = *MakeCpuBackend(1);
  Node node = {.name = "norm", .op = *FindOp("batch_norm")};
  node.attributes = *Complete(node.op->attributes, {});
  node.output = {DType::kF32, {kNormWidth}};
  const auto kernels =
      *backend->MakeKernels({.node = node, .inputs = {node.output}, .samples = 1}, Precision::kF32);
  EXPECT_THAT(kernels->Forward({}, {}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr("single value")));
}

}  // namespace
}  // namespace penstock
