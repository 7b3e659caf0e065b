// What an LSTM carries from step to step: who reads it, who writes it, and who does neither.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <memory>
#include <string>
#include <vector>

#include "compute/stage.h"
#include "model/graph_builder.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

constexpr int64_t kCarriedSamples = 2;  // of a microbatch, of which a step has two
constexpr int64_t kCarriedTime = 5;
constexpr int64_t kCarriedVocabulary = 11;
constexpr int64_t kCarriedHidden = 6;

// Layers: embedding, two LSTMs, head.
ModelGraph CarriedModel(int64_t time = kCarriedTime) {
  GraphBuilder builder("layers");
  builder.AddPort({"tokens", {DType::kI32, {time}}, kCarriedVocabulary});
  builder.AddPort({"targets", {DType::kI32, {time}}, kCarriedVocabulary});
  builder.BeginLayer("embedding");
  builder.Add({.op = "embedding",
               .attributes = {{"vocabulary", kCarriedVocabulary},
                              {"width", int64_t{4}},
                              {"deviation", 1.0}},
               .inputs = {"tokens"}});
  for (const char* name : {"lower", "upper"}) {
    builder.BeginLayer(name);
    builder.Add({.op = "lstm",
                 .attributes = {{"hidden", kCarriedHidden}, {"carried", true}, {"bound", 1.0}}});
  }
  builder.BeginLayer("head");
  builder.Add({.name = "logits", .op = "linear", .attributes = {{"outputs", kCarriedVocabulary}}});
  builder.Add({.name = "loss", .op = "cross_entropy", .inputs = {"logits", "targets"}});
  return *std::move(builder).Build();
}

// The token at a place of a sample's text, and the one after it.
int32_t TokenAt(int64_t row, int64_t place) {
  return static_cast<int32_t>((place * place + 3 * place + 5 * row + row * place) %
                              kCarriedVocabulary);
}

// The model on one stage, fed with a text for each sample of a step.
class CarriedStage {
 public:
  explicit CarriedStage(bool recomputes = false, int64_t step_samples = 2 * kCarriedSamples,
                        int64_t time = kCarriedTime, Precision precision = Precision::kF32)
      : backend_(*MakeCpuBackend(1)),
        model_(CarriedModel(time)),
        time_(time),
        recomputes_(recomputes) {
    stage_ = *Stage::Create(*backend_, model_,
                            {.layers = {0, model_.size()},
                             .samples = kCarriedSamples,
                             .step_samples = step_samples,
                             .precision = precision,
                             .recomputes = recomputes,
                             .microbatches_in_flight_max = 4});
    stage_->InitializeWeights();
  }

  Stage& stage() { return *stage_; }
  Backend& backend() { return *backend_; }
  static int64_t FirstSample(int64_t step, int64_t microbatch) {
    return (2 * step + microbatch) * kCarriedSamples;
  }

  // Microbatch 0 or 1 of a step, which reads the step's window of its texts.
  absl::StatusOr<double> Forward(int64_t step, int64_t microbatch = 0, bool afresh = false) {
    const absl::StatusOr<Tensor> loss = stage_->Forward(MicrobatchId(2 * step + microbatch),
                                                        {FirstSample(step, microbatch), afresh}, 0,
                                                        Tensor(), Ports(step, microbatch));
    if (!loss.ok()) return loss.status();
    return stage_->ReadLoss(*loss);
  }
  void Backward(int64_t step, int64_t microbatch = 0) {
    const MicrobatchId id(2 * step + microbatch);
    if (recomputes_) {
      ASSERT_THAT(stage_->Recompute(id, 0, Ports(step, microbatch)), IsOk());
    }
    ASSERT_THAT(stage_->BackwardInput(id, 0, Tensor(), 1.0f), IsOk());
    ASSERT_THAT(stage_->BackwardWeight(id), IsOk());
  }
  double Evaluate(int64_t step, bool afresh) {
    return *stage_->ReadLoss(
        stage_->Evaluate(0, Tensor(), Ports(step, 0), {FirstSample(step, 0), afresh})->output);
  }
  // What both LSTMs carry to the next step.
  std::vector<std::vector<float>> Carried() {
    std::vector<std::vector<float>> carried;
    for (int layer = 1; layer <= 2; ++layer) {
      for (const NamedArray& array : stage_->LayerWeights(layer)) {
        if (array.name.find("_state") == std::string::npos) continue;
        carried.push_back(array.values);
      }
    }
    return carried;
  }
  std::vector<std::vector<float>> Gradients() {
    std::vector<std::vector<float>> gradients;
    for (int layer = 0; layer < model_.size(); ++layer) {
      for (const NamedArray& array : stage_->LayerGradients(layer)) {
        gradients.push_back(array.values);
      }
    }
    return gradients;
  }

 private:
  std::vector<Tensor> Ports(int64_t step, int64_t microbatch) {
    std::vector<Tensor> ports;
    for (const int port : stage_->ports()) {
      std::vector<int32_t> ids;
      for (int64_t sample = 0; sample < kCarriedSamples; ++sample) {
        for (int64_t t = 0; t < time_; ++t) {
          ids.push_back(TokenAt(microbatch * kCarriedSamples + sample, step * time_ + t + port));
        }
      }
      ports.push_back(*stage_->PortToDevice(
          port, {reinterpret_cast<const std::byte*>(ids.data()), ids.size() * sizeof(int32_t)}));
    }
    return ports;
  }

  std::unique_ptr<Backend> backend_;
  const ModelGraph model_;
  const int64_t time_;
  const bool recomputes_;
  std::unique_ptr<Stage> stage_;
};

TEST(CarriedState, WindowsOneAfterAnother_GiveTheBitsOfOneSequence) {
  for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
    CarriedStage windows(false, 2 * kCarriedSamples, kCarriedTime, precision);
    CarriedStage whole(false, 2 * kCarriedSamples, 3 * kCarriedTime, precision);
    double sum = 0.0;
    for (int64_t step = 0; step < 3; ++step) {
      const absl::StatusOr<double> loss = windows.Forward(step);
      EXPECT_THAT(loss, IsOk());
      sum += *loss;
    }
    const absl::StatusOr<double> loss = whole.Forward(0);
    EXPECT_NEAR(sum / 3.0, *loss, 1e-6);
    EXPECT_EQ(windows.Carried(), whole.Carried());
    EXPECT_NE(whole.Carried().front().front(), 0.0f);
  }
}

TEST(CarriedState, ASampleThatStartsAfresh_ReadsZeros) {
  CarriedStage afresh;
  CarriedStage goes_on;
  CarriedStage alone;
  for (int64_t step = 0; step < 2; ++step) {
    ASSERT_THAT(afresh.Forward(step), IsOk());
    ASSERT_THAT(goes_on.Forward(step), IsOk());
  }
  ASSERT_THAT(afresh.Forward(2, 0, true), IsOk());
  ASSERT_THAT(goes_on.Forward(2), IsOk());
  ASSERT_THAT(alone.Forward(2), IsOk());
  EXPECT_EQ(afresh.Carried(), alone.Carried());
  EXPECT_NE(goes_on.Carried(), alone.Carried());
}

TEST(CarriedState, MicrobatchesOfAStep_HaveRowsOfTheirOwn) {
  CarriedStage both;
  CarriedStage swapped;
  CarriedStage one;
  for (int64_t step = 0; step < 2; ++step) {
    ASSERT_THAT(both.Forward(step, 0), IsOk());
    ASSERT_THAT(both.Forward(step, 1), IsOk());
    ASSERT_THAT(swapped.Forward(step, 1), IsOk());
    ASSERT_THAT(swapped.Forward(step, 0), IsOk());
    ASSERT_THAT(one.Forward(step, 0), IsOk());
  }
  EXPECT_EQ(both.Carried(), swapped.Carried());
  const size_t half = kCarriedSamples * kCarriedHidden;
  for (size_t b = 0; b < one.Carried().size(); ++b) {
    const std::vector<float> of_one = one.Carried()[b];
    const std::vector<float> of_both = both.Carried()[b];
    EXPECT_TRUE(std::equal(of_one.begin(), of_one.begin() + half, of_both.begin()));
    EXPECT_THAT(std::vector<float>(of_one.begin() + half, of_one.end()), ::testing::Each(0.0f));
  }
}

// The next step's forward has changed the rows by the time the forward is done again.
TEST(CarriedState, Recompute_StartsFromWhatItsForwardRead) {
  CarriedStage kept;
  CarriedStage recomputed(/*recomputes=*/true);
  for (CarriedStage* each : {&kept, &recomputed}) {
    for (int64_t step = 0; step < 3; ++step) ASSERT_THAT(each->Forward(step), IsOk());
    for (int64_t step = 0; step < 3; ++step) each->Backward(step);
  }
  EXPECT_EQ(recomputed.Gradients(), kept.Gradients());
  EXPECT_EQ(recomputed.Carried(), kept.Carried());
}

TEST(CarriedState, Passes_TakeTheMemoryThatIsForetold) {
  for (const bool recomputes : {false, true}) {
    CarriedStage carried(recomputes);
    const auto in_use = [&] { return carried.backend().pool().stats().bytes_in_use; };
    const int64_t before = in_use();
    ASSERT_THAT(carried.Forward(0), IsOk());
    const ActivationBytes& bytes = carried.stage().activation_bytes();
    EXPECT_EQ(in_use() - before, bytes.forward.left - bytes.output -
                                     static_cast<int64_t>(BufferPool::BlockBytes(sizeof(float))));
    carried.Backward(0);
    EXPECT_EQ(in_use(), before);
  }
}

TEST(CarriedState, Evaluation_HasItsOwn) {
  CarriedStage trained;
  CarriedStage evaluated;
  for (int64_t step = 0; step < 3; ++step) {
    ASSERT_THAT(trained.Forward(step), IsOk());
    ASSERT_THAT(evaluated.Forward(step), IsOk());
    // From the beginning to window 2, as training is.
    double loss = 0.0;
    for (int64_t window = 0; window <= step; ++window)
      loss = evaluated.Evaluate(window, window == 0);
    CarriedStage alone;
    for (int64_t window = 0; window < step; ++window) ASSERT_THAT(alone.Forward(window), IsOk());
    EXPECT_EQ(loss, *alone.Forward(step));
  }
  EXPECT_EQ(evaluated.Carried(), trained.Carried());
}

TEST(CarriedState, ForwardsOfARow_MustComeStepByStep) {
  CarriedStage stage;
  ASSERT_THAT(stage.Forward(4), IsOk());  // a run may begin anywhere
  EXPECT_THAT(stage.Forward(6), StatusIs(absl::StatusCode::kFailedPrecondition,
                                         ::testing::HasSubstr("goes on where sample 20 ended, but "
                                                              "the last one that went through here "
                                                              "was sample 16")));
  EXPECT_THAT(stage.Forward(5), IsOk());
  EXPECT_THAT(stage.Forward(5, 1), IsOk());
}

TEST(CarriedState, WithoutSteps_IsNotKept) {
  CarriedStage keeps;
  ASSERT_THAT(keeps.Forward(0), IsOk());
  CarriedStage stage(false, 0);
  for (int layer = 0; layer < 4; ++layer) {
    ASSERT_THAT(stage.stage().LoadLayerWeights(layer, keeps.stage().LayerWeights(layer)), IsOk());
  }
  EXPECT_TRUE(stage.Carried().empty());
  EXPECT_FALSE(stage.stage().carries());
  EXPECT_EQ(*stage.Forward(1), *CarriedStage().Forward(1, 0, true));
  EXPECT_EQ(stage.Evaluate(1, false), *CarriedStage().Forward(1, 0, true));
}

TEST(CarriedState, LoadedRows_GoOn) {
  CarriedStage first;
  ASSERT_THAT(first.Forward(0), IsOk());
  CarriedStage second;
  for (int layer = 0; layer < 4; ++layer) {
    ASSERT_THAT(second.stage().LoadLayerWeights(layer, first.stage().LayerWeights(layer)), IsOk());
  }
  EXPECT_EQ(*second.Forward(1), *first.Forward(1));
  // Of another number of samples.
  CarriedStage other(false, 3 * kCarriedSamples);
  EXPECT_THAT(other.stage().LoadLayerWeights(1, first.stage().LayerWeights(1)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       ::testing::AllOf(::testing::HasSubstr("lower.hidden_state has shape [4, 6]"),
                                        ::testing::HasSubstr("expects [6, 6]"))));
}

// Two replicas, each with the rows of its microbatches: the sum of all is what one stage has, signs of zeros included.
TEST(CarriedState, SumOverReplicas_IsWhatEachOfThemCarries) {
  CarriedStage one;
  CarriedStage replicas[2];
  for (int64_t step = 0; step < 2; ++step) {
    for (int64_t microbatch = 0; microbatch < 2; ++microbatch) {
      ASSERT_THAT(one.Forward(step, microbatch), IsOk());
      ASSERT_THAT(replicas[microbatch].Forward(step, microbatch), IsOk());
    }
  }
  const auto set_first = [](CarriedStage& of, float value) {
    std::vector<NamedArray> arrays = of.stage().LayerWeights(1);
    for (NamedArray& array : arrays) {
      if (array.name == "lower.cell_state") array.values[0] = value;
    }
    ASSERT_THAT(of.stage().LoadLayerWeights(1, arrays), IsOk());
  };
  set_first(one, -0.0f);
  set_first(replicas[0], -0.0f);
  set_first(replicas[1], 7.0f);  // of the other replica's row, which does not count
  for (int64_t i = 0; i < 2; ++i) replicas[i].stage().BeginBufferSum(i, 2);
  const int64_t count = one.stage().buffer_count();
  float* const sum = replicas[0].stage().Buffers().data<float>();
  replicas[0].backend().AddInto(sum, replicas[1].stage().Buffers().data<float>(), count);
  replicas[0].stage().EndBufferSum(2);
  const auto bits = [](const std::vector<std::vector<float>>& arrays) {
    std::vector<uint32_t> all;
    for (const std::vector<float>& array : arrays) {
      for (const float value : array) all.push_back(std::bit_cast<uint32_t>(value));
    }
    return all;
  };
  EXPECT_EQ(bits(replicas[0].Carried()), bits(one.Carried()));
}

TEST(CarriedState, StepsOfNoWholeMicrobatches_AreRefused) {
  const auto backend = *MakeCpuBackend(1);
  const ModelGraph model = CarriedModel();
  EXPECT_THAT(Stage::Create(*backend, model, {.layers = {0, 4}, .samples = 2, .step_samples = 5}),
              StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr("steps of 5")));
}

}  // namespace
}  // namespace penstock
