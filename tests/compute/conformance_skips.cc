// A graph with skips gives the same bits wherever it is cut.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tests/compute/conformance.h"
#include "tests/compute/skip_model.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

// Two stages cut at every layer, some of more stages, and one stage for each layer.
std::vector<std::vector<int>> PartitionsOf(const ModelGraph& model) {
  const int layers = model.size();
  std::vector<std::vector<int>> partitions = {{layers}};
  for (int first = 1; first < layers; ++first) partitions.push_back({first, layers - first});
  for (int first = 1; first + 4 < layers; first += 2) {
    partitions.push_back({first, 1, 3, layers - first - 4});
  }
  partitions.push_back(std::vector<int>(layers, 1));
  return partitions;
}

Pipeline::Options SkipOptions(std::vector<int> layers_per_stage) {
  Pipeline::Options options;
  options.layers_per_stage = std::move(layers_per_stage);
  options.samples = 3;
  options.microbatches = 4;
  options.learning_rate = 1e-2;
  options.clip = {Clip::Kind::kGlobalNorm, 0.5};
  return options;
}

struct Trained {
  std::vector<std::string> digests;
  std::vector<double> losses;
  friend bool operator==(const Trained&, const Trained&) = default;
};

Trained TrainSkips(Backend& backend, const ModelGraph& model, const Pipeline::Options& options) {
  Pipeline pipeline(backend, model, options);
  Trained trained;
  for (int step = 0; step < 3; ++step) trained.losses.push_back(pipeline.Step());
  trained.digests = pipeline.Digests();
  return trained;
}

TEST_P(BackendConformance, GraphWithSkips_AnyPartition_GivesTheSameBits) {
  for (const bool tied : {true, false}) {
    for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
      const ModelGraph model = SkipModel({.tied = tied});
      ASSERT_EQ(model.tied(), tied);
      Pipeline::Options options = SkipOptions({model.size()});
      options.precision = precision;
      const Trained whole = TrainSkips(backend(), model, options);
      EXPECT_LT(whole.losses.back(), whole.losses.front());
      for (const std::vector<int>& partition : PartitionsOf(model)) {
        options.layers_per_stage = partition;
        EXPECT_EQ(TrainSkips(backend(), model, options), whole)
            << "tied " << tied << ", layers per stage " << testing::PrintToString(partition);
      }
    }
  }
}

TEST_P(BackendConformance, GraphWithSkips_ForwardDoneAgainOrWeightsLater_GivesTheSameBits) {
  const ModelGraph model = SkipModel({});
  const Trained whole = TrainSkips(backend(), model, SkipOptions({model.size()}));
  for (const std::vector<int>& partition : PartitionsOf(model)) {
    for (const int64_t delay : {0, 3}) {
      Pipeline::Options options = SkipOptions(partition);
      options.weights_delay = delay;
      options.recomputes = true;
      EXPECT_EQ(TrainSkips(backend(), model, options), whole)
          << "done again, W later by " << delay << ", layers per stage "
          << testing::PrintToString(partition);
      options.recomputes = false;
      EXPECT_EQ(TrainSkips(backend(), model, options), whole)
          << "W later by " << delay << ", layers per stage " << testing::PrintToString(partition);
    }
  }
}

TEST_P(BackendConformance, GraphWithSkips_WithDeviceGraphs_GivesTheSameBits) {
  const ModelGraph model = SkipModel({});
  const Trained whole = TrainSkips(backend(), model, SkipOptions({model.size()}));
  for (const std::vector<int>& partition : PartitionsOf(model)) {
    Pipeline::Options options = SkipOptions(partition);
    options.cuda_graphs = true;
    EXPECT_EQ(TrainSkips(backend(), model, options), whole) << testing::PrintToString(partition);
  }
}

// Along the gradient itself the slope of the loss is its squared norm, for each layer's parameters and with them for
// every way that gradients take.
TEST_P(BackendConformance, GraphWithSkips_Gradients_MatchDifferencesOfTheLoss) {
  const ModelGraph model = SkipModel({.tied = false});
  Pipeline::Options options = SkipOptions({model.size()});
  options.microbatches = 1;
  Pipeline pipeline(backend(), model, options);
  Stage& stage = pipeline.stage(0);
  pipeline.Accumulate();
  std::vector<std::vector<NamedArray>> gradients_of;
  for (int layer = 0; layer < model.size(); ++layer) {
    gradients_of.push_back(stage.LayerGradients(layer));
  }
  for (int layer = 0; layer < model.size(); ++layer) {
    const std::vector<NamedArray>& gradients = gradients_of[layer];
    if (gradients.empty()) continue;
    SCOPED_TRACE(model.layers[layer].name);
    double squared = 0.0;
    for (const NamedArray& gradient : gradients) {
      for (const float value : gradient.values) squared += static_cast<double>(value) * value;
    }
    ASSERT_GT(squared, 0.0);
    const std::vector<NamedArray> weights = stage.LayerWeights(layer);
    const double step = 2e-2 / std::sqrt(squared);
    const auto loss_at = [&](double distance) {
      std::vector<NamedArray> moved = weights;
      for (size_t p = 0; p < moved.size(); ++p) {
        for (size_t i = 0; i < moved[p].values.size(); ++i) {
          moved[p].values[i] += static_cast<float>(distance * gradients[p].values[i]);
        }
      }
      EXPECT_THAT(stage.LoadLayerWeights(layer, moved), IsOk());
      return pipeline.Accumulate();  // the same microbatch: no update in between
    };
    const double slope =
        (8 * (loss_at(step) - loss_at(-step)) - (loss_at(2 * step) - loss_at(-2 * step))) /
        (12 * step);
    EXPECT_NEAR(slope / squared, 1.0, 2e-3);
    ASSERT_THAT(stage.LoadLayerWeights(layer, weights), IsOk());
  }
}

TEST_P(BackendConformance, GraphWithSkips_InTheSteadyState_TakesNoMemoryFromTheSource) {
  const ModelGraph model = SkipModel({});
  Pipeline::Options options = SkipOptions({4, 5, model.size() - 9});
  options.weights_delay = 2;
  Pipeline pipeline(backend(), model, options);
  pipeline.Step();
  pipeline.Step();
  const BufferPool::Stats warm = backend().pool().stats();
  for (int step = 0; step < 5; ++step) pipeline.Step();
  const BufferPool::Stats later = backend().pool().stats();
  EXPECT_EQ(later.allocations, warm.allocations);
  EXPECT_EQ(later.bytes_in_use, warm.bytes_in_use);
}

}  // namespace
}  // namespace penstock
