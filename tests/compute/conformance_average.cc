// The moving average of weights: its formula, the same bits for every partition, and evaluation with it.
#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "compute/array_bytes.h"
#include "model/parameter_groups.h"
#include "tests/compute/conformance.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using Values = std::map<std::string, std::vector<float>>;

// A norm is trained beside frozen biases, and the first block not at all.
ModelGraph Gpt() {
  GptConfig config = TinyGpt();
  config.tied_head = false;
  ModelGraph model = *BuildGpt(config);
  const std::vector<ParameterGroup> groups = {{.pattern = "h.0.*", .frozen = true},
                                              {.pattern = "h.1.ln_1.bias", .frozen = true}};
  EXPECT_THAT(ApplyGroups(groups, model), IsOk());
  return model;
}

StageOptions OptionsFor(const ModelGraph& model, Precision precision, bool evaluates) {
  return {.layers = {0, model.size()},
          .samples = 2,
          .precision = precision,
          .optimizer = AdamWConfig{},
          .keeps_average = true,
          .evaluates_average = evaluates,
          .seed = 7};
}

void TrainStep(Stage& stage, const ModelGraph& model, double keep) {
  const int64_t version = stage.version();
  const MicrobatchId id(version);
  ASSERT_THAT(stage.Forward(id, 2 * version, version, Tensor(), PortsOf(stage, model, version, 2)),
              IsOk());
  ASSERT_THAT(stage.BackwardInput(id, version, Tensor(), 1.0f), IsOk());
  ASSERT_THAT(stage.BackwardWeight(id), IsOk());
  const std::vector<float> ones(model.size(), 1.0f);
  ASSERT_THAT(stage.Step(version + 1,
                         {.learning_rate = 0.01, .gradient_scales = ones, .average_keep = keep}),
              IsOk());
}

Values WeightsOf(Stage& stage, const ModelGraph& model) {
  Values values;
  for (int layer = 0; layer < model.size(); ++layer) {
    for (NamedArray& array : stage.LayerWeights(layer)) values[array.name] = array.values;
  }
  return values;
}

// By parameter.
Values AverageOf(Stage& stage, const ModelGraph& model) {
  const std::string suffix = std::string(".") + kWeightAverageState;
  Values values;
  for (int layer = 0; layer < model.size(); ++layer) {
    for (NamedArray& array : stage.LayerOptimizerState(layer)) {
      const size_t end = array.name.rfind(suffix);
      if (end == std::string::npos || end + suffix.size() != array.name.size()) continue;
      values[array.name.substr(0, end)] = array.values;
    }
  }
  return values;
}

double LossOf(Stage& stage, const ModelGraph& model) {
  const auto evaluated = stage.Evaluate(stage.version(), Tensor(), PortsOf(stage, model, 1000, 2));
  EXPECT_THAT(evaluated, IsOk());
  return *stage.ReadLoss(evaluated->output);
}

TEST_P(BackendConformance, WeightAverage_IsItsFormulaFromTheFirstWeightsOn) {
  const ModelGraph model = Gpt();
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const auto stage, Stage::Create(backend(), model, OptionsFor(model, Precision::kF32, false)));
  stage->InitializeWeights();
  Values expected = WeightsOf(*stage, model);
  for (const double keep : {0.75, 0.5, 0.9}) {
    TrainStep(*stage, model, keep);
    for (const auto& [name, weights] : WeightsOf(*stage, model)) {
      for (size_t i = 0; i < weights.size(); ++i) {
        expected[name][i] =
            static_cast<float>(keep * expected[name][i] + (1.0 - keep) * weights[i]);
      }
    }
  }
  const Values average = AverageOf(*stage, model);
  EXPECT_EQ(average.size(), expected.size() - 13) << "frozen parameters have none";
  for (const auto& [name, values] : average) {
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(values[i], expected[name][i], 1e-6) << name;
    }
  }
}

TEST_P(BackendConformance, WeightAverage_IsWhatEvaluationReads) {
  const ModelGraph model = Gpt();
  for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        const auto stage, Stage::Create(backend(), model, OptionsFor(model, precision, true)));
    stage->InitializeWeights();
    StageOptions plain = OptionsFor(model, precision, false);
    plain.keeps_average = false;
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto other, Stage::Create(backend(), model, plain));
    for (int step = 0; step < 3; ++step) {
      TrainStep(*stage, model, 0.8);
      const Values average = AverageOf(*stage, model);
      for (int layer = 0; layer < model.size(); ++layer) {
        std::vector<NamedArray> arrays = stage->LayerWeights(layer);
        for (NamedArray& array : arrays) {
          if (average.count(array.name) > 0) array.values = average.at(array.name);
        }
        ASSERT_THAT(other->LoadLayerWeights(layer, arrays), IsOk());
      }
      EXPECT_EQ(LossOf(*stage, model), LossOf(*other, model));
      EXPECT_EQ(LossOf(*stage, model), LossOf(*stage, model));
    }
  }
}

TEST_P(BackendConformance, WeightAverage_GoesThroughCheckpointsAndStartsFromWeightsWithoutOne) {
  const ModelGraph model = Gpt();
  const StageOptions options = OptionsFor(model, Precision::kF32, true);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto stage, Stage::Create(backend(), model, options));
  stage->InitializeWeights();
  for (int step = 0; step < 2; ++step) TrainStep(*stage, model, 0.8);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto resumed, Stage::Create(backend(), model, options));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto begun, Stage::Create(backend(), model, options));
  for (int layer = 0; layer < model.size(); ++layer) {
    const std::vector<NamedArray> weights = stage->LayerWeights(layer);
    std::vector<NamedArray> state = stage->LayerOptimizerState(layer);
    ASSERT_THAT(resumed->LoadLayerWeights(layer, weights), IsOk());
    ASSERT_THAT(resumed->LoadLayerOptimizerState(layer, state), IsOk());
    ASSERT_THAT(begun->LoadLayerWeights(layer, weights), IsOk());
    std::erase_if(state, [](const NamedArray& array) {
      return array.name.find(".ema") != std::string::npos;
    });
    ASSERT_THAT(begun->LoadLayerOptimizerState(layer, state), IsOk());
  }
  resumed->SetVersion(2);
  begun->SetVersion(2);
  EXPECT_EQ(AverageOf(*resumed, model), AverageOf(*stage, model));
  EXPECT_EQ(LossOf(*resumed, model), LossOf(*stage, model));
  const Values weights = WeightsOf(*begun, model);
  for (const auto& [name, values] : AverageOf(*begun, model)) EXPECT_EQ(values, weights.at(name));
  TrainStep(*stage, model, 0.8);
  TrainStep(*resumed, model, 0.8);
  EXPECT_EQ(AverageOf(*resumed, model), AverageOf(*stage, model));
}

TEST_P(BackendConformance, WeightAverage_TakesTheMemoryThatIsPredicted) {
  const ModelGraph model = Gpt();
  for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
    for (const bool evaluates : {false, true}) {
      const StageOptions options = OptionsFor(model, precision, evaluates);
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto stage, Stage::Create(backend(), model, options));
      const ArrayBytes predicted = ArrayBytesOf(model, options);
      EXPECT_EQ(stage->memory().optimizer_bytes, predicted.optimizer);
      EXPECT_EQ(stage->memory().predicted_bytes, predicted.predicted);
    }
  }
}

}  // namespace
}  // namespace penstock
