#include "worker/layer_profiler.h"

#include <gmock/gmock.h>

#include <memory>
#include <set>
#include <string>
#include <utility>

#include "compute/stage.h"
#include "job/profile/model_profile.h"
#include "model/describe.h"
#include "model/families/gpt.h"
#include "model/graph_builder.h"
#include "tests/support/status_matchers.h"
#include "tests/support/ticking_clock.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class LayerProfilerTest : public ::testing::Test {
 protected:
  LayerProfilerTest() {
    GptConfig config;
    config.layers = 2;
    config.width = 32;
    config.heads = 4;
    config.context = 16;
    config.vocabulary = 64;
    model_ = *BuildGpt(config);
    backend_ = *MakeCpuBackend(1);
    options_.samples = {2, 4};
    options_.optimizer = AdamWConfig();
    options_.seconds = 0.01;
  }

  absl::StatusOr<v1::ModelProfile> Profile() {
    return ProfileLayers(*backend_, model_, options_, clock_,
                         [&](const ProfilerProgress& progress) {
                           seen_.push_back(progress);
                           return on_progress_(progress);
                         });
  }

  ModelGraph model_;
  std::unique_ptr<Backend> backend_;
  LayerProfilerOptions options_;
  TickingClock clock_{1'000'000};
  std::vector<ProfilerProgress> seen_;
  std::function<absl::Status(const ProfilerProgress&)> on_progress_ = [](const ProfilerProgress&) {
    return absl::OkStatus();
  };
};

TEST_F(LayerProfilerTest, Profile_HasEveryLayerAndEachShapeOnce) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::ModelProfile profile, Profile());
  EXPECT_THAT(CheckModelProfile(profile), IsOk());
  EXPECT_THAT(CheckProfileFits(profile, model_), IsOk());
  EXPECT_EQ(profile.layers_size(), model_.size());
  EXPECT_EQ(profile.shapes_size(), 5);  // embedding, attention, mlp, norm, head
  EXPECT_EQ(profile.device(), backend_->name());
  EXPECT_EQ(profile.precision(), "f32");
  EXPECT_EQ(profile.optimizer(), "adamw");
}

// The first of three equal layers reads data, and so makes no gradient of it.
TEST_F(LayerProfilerTest, LayerThatLeavesOutAGradient_HasAShapeOfItsOwn) {
  GraphBuilder builder("layers");
  builder.AddPort({"x", {DType::kF32, {8}}});
  builder.AddPort({"y", {DType::kF32, {8}}});
  for (const char* layer : {"one", "two", "three"}) {
    builder.BeginLayer(layer);
    NodeSpec linear = {.op = "linear", .attributes = {{"outputs", int64_t{8}}}};
    if (layer == std::string("one")) linear.inputs = {"x"};
    builder.Add(std::move(linear));
  }
  builder.BeginLayer("loss");
  builder.Add({.op = "mse", .inputs = {"three", "y"}});
  model_ = *std::move(builder).Build();
  options_.times = false;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::ModelProfile profile, Profile());
  EXPECT_THAT(CheckProfileFits(profile, model_), IsOk());
  EXPECT_EQ(profile.shapes_size(), 3);
  EXPECT_THAT(FirstLayersOfShapes(model_), ElementsAre(0, 1, 3));
  EXPECT_THAT(profile.layers(0).shape(), HasSubstr("of f32 [8] without gradient"));
  EXPECT_EQ(profile.layers(2).shape(), profile.layers(1).shape());
  // Checkpoints have the text that they had.
  EXPECT_EQ(Describe(model_, model_.layers[0]), Describe(model_, model_.layers[1]));
  EXPECT_THAT(Describe(model_, model_.layers[0]), Not(HasSubstr("gradient")));
}

// The clock ticks once at each layer: one millisecond for each in a pass, and one for the update of all seven.
TEST_F(LayerProfilerTest, Times_AreOfOnePassOfALayer) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::ModelProfile profile, Profile());
  for (const v1::ShapeProfile& shape : profile.shapes()) {
    EXPECT_NEAR(shape.update().ms(), 1.0 / 7.0, 1e-6) << shape.shape();
    for (const v1::SizeProfile& size : shape.sizes()) {
      for (const v1::MeasuredTime& time :
           {size.forward(), size.backward_input(), size.backward_weight()}) {
        EXPECT_DOUBLE_EQ(time.ms(), 1.0) << shape.shape();
        EXPECT_DOUBLE_EQ(time.spread_ms(), 0.0);
      }
    }
  }
}

TEST_F(LayerProfilerTest, WithoutTimes_MeasuresTheSameMemory) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(v1::ModelProfile whole, Profile());
  options_.times = false;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::ModelProfile memory, Profile());
  EXPECT_THAT(CheckModelProfile(memory), IsOk());
  for (v1::ShapeProfile& shape : *whole.mutable_shapes()) {
    shape.clear_update();
    for (v1::SizeProfile& size : *shape.mutable_sizes()) {
      size.clear_forward();
      size.clear_backward_input();
      size.clear_backward_weight();
    }
  }
  for (int i = 0; i < whole.shapes_size(); ++i) {
    v1::ShapeProfile alone = memory.shapes(i);
    EXPECT_EQ(alone.update().ms(), 0.0);
    alone.clear_update();
    for (v1::SizeProfile& size : *alone.mutable_sizes()) {
      EXPECT_EQ(size.forward().ms(), 0.0);
      size.clear_forward();
      size.clear_backward_input();
      size.clear_backward_weight();
    }
    EXPECT_EQ(alone.SerializeAsString(), whole.shapes(i).SerializeAsString());
  }
}

TEST_F(LayerProfilerTest, Progress_IsToldAsItGrows) {
  ASSERT_THAT(Profile(), IsOk());
  ASSERT_FALSE(seen_.empty());
  EXPECT_EQ(seen_.front().done, 0);
  for (size_t i = 0; i < seen_.size(); ++i) {
    EXPECT_EQ(seen_[i].total, 10);  // five shapes in two sizes
    EXPECT_EQ(seen_[i].samples, seen_[i].done < 5 ? 2 : 4);
    EXPECT_EQ(seen_[i].layers, "embedding to head");
    if (i > 0) {
      EXPECT_GT(seen_[i].done, seen_[i - 1].done);
    }
  }
  EXPECT_GT(seen_.back().done, 5);
}

// Where memory lasts for one layer only, each is run by itself; where it lasts for all but the head, the head is.
TEST_F(LayerProfilerTest, LittleMemory_MakesRunsOfFewLayers) {
  options_.samples = {2};
  options_.memory_bytes = 1;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::ModelProfile single, Profile());
  std::set<std::string> runs;
  for (const ProfilerProgress& progress : seen_) runs.insert(progress.layers);
  for (const std::string& run : runs) EXPECT_THAT(run, ::testing::Not(HasSubstr(" to ")));
  EXPECT_EQ(seen_.front().layers, "embedding");

  options_.memory_bytes = 0;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::ModelProfile whole, Profile());
  for (int i = 0; i < whole.shapes_size(); ++i) {
    EXPECT_EQ(single.shapes(i).sizes(0).forward().ms(), whole.shapes(i).sizes(0).forward().ms());
    EXPECT_EQ(single.shapes(i).weight_bytes(), whole.shapes(i).weight_bytes());
    EXPECT_EQ(single.shapes(i).update().ms(), 1.0);
  }
}

TEST_F(LayerProfilerTest, ErrorOfProgress_EndsIt) {
  on_progress_ = [](const ProfilerProgress& progress) {
    return progress.done >= 3 ? absl::CancelledError("enough") : absl::OkStatus();
  };
  EXPECT_THAT(Profile(), StatusIs(absl::StatusCode::kCancelled, HasSubstr("enough")));
  EXPECT_LT(seen_.back().done, 10);
  EXPECT_EQ(backend_->pool().stats().bytes_in_use, 0);
}

// A stage of several layers has the sums of their bytes, a tied weight counted once.
TEST_F(LayerProfilerTest, BytesOfLayers_AddUpToThoseOfStages) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::ModelProfile profile, Profile());
  const auto shape_of = [&](int layer) {
    for (const v1::ShapeProfile& shape : profile.shapes()) {
      if (shape.shape() == DescribeWork(model_, model_.layers[layer])) return shape;
    }
    return v1::ShapeProfile();
  };
  for (const LayerRange range : {LayerRange{0, 3}, {1, 2}, {2, 5}, {3, model_.size() - 3}}) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        const std::unique_ptr<Stage> stage,
        Stage::Create(*backend_, model_,
                      {.layers = range, .samples = 4, .optimizer = AdamWConfig()}));
    int64_t weights = 0;
    int64_t gradients = 0;
    int64_t optimizer = 0;
    for (int layer = range.first; layer < range.end(); ++layer) {
      const v1::ShapeProfile shape = shape_of(layer);
      weights += shape.weight_bytes();
      gradients += shape.gradient_bytes();
      optimizer += shape.optimizer_bytes();
      const TapeNeeds& needs = stage->tape_needs()[layer - range.first];  // a node each
      const v1::SizeProfile& size = shape.sizes(1);
      ASSERT_EQ(size.samples(), 4);
      ASSERT_EQ(size.nodes_size(), 1);
      EXPECT_EQ(size.nodes(0).stash_bytes(), needs.stash_bytes);
      EXPECT_EQ(size.nodes(0).kept_bytes(), needs.kept_bytes);
      EXPECT_EQ(size.nodes(0).weight_stash_bytes(), needs.weight_stash_bytes);
      EXPECT_EQ(size.nodes(0).inputs_for_input(), needs.inputs_for_input);
      EXPECT_EQ(size.nodes(0).inputs_for_weight(), needs.inputs_for_weight);
      const v1::ProfiledLayer& entry = profile.layers(layer);
      if (layer + 1 == model_.size()) {
        EXPECT_EQ(entry.values_size(), 0);
        continue;
      }
      ASSERT_EQ(entry.values_size(), 1);
      EXPECT_EQ(entry.values(0).sample_bytes(), model_.nodes[0].output.size_bytes());
      EXPECT_THAT(entry.values(0).readers(), ElementsAre(model_.layers[layer + 1].name));
    }
    EXPECT_EQ(stage->memory().version_bytes, weights);
    EXPECT_EQ(stage->memory().gradient_bytes, gradients);
    EXPECT_EQ(stage->memory().optimizer_bytes, optimizer);
  }
}

TEST_F(LayerProfilerTest, Bf16_CountsTheMirror) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::ModelProfile f32, Profile());
  options_.precision = Precision::kBf16;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::ModelProfile bf16, Profile());
  EXPECT_EQ(bf16.precision(), "bf16");
  for (int i = 0; i < f32.shapes_size(); ++i) {
    EXPECT_EQ(2 * bf16.shapes(i).weight_bytes(), 3 * f32.shapes(i).weight_bytes());
  }
}

TEST_F(LayerProfilerTest, BadSizes_AreRefused) {
  for (const std::vector<int64_t>& bad : {std::vector<int64_t>{}, {0}, {-1, 2}, {2, 2}, {4, 2}}) {
    options_.samples = bad;
    EXPECT_THAT(Profile(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("microbatch")));
  }
  EXPECT_TRUE(seen_.empty());
}

}  // namespace
}  // namespace penstock
