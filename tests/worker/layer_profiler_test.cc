#include "worker/layer_profiler.h"

#include <gmock/gmock.h>

#include <memory>
#include <set>

#include "compute/stage.h"
#include "job/profile/model_profile.h"
#include "model/describe.h"
#include "model/families/gpt.h"
#include "tests/support/status_matchers.h"
#include "tests/support/ticking_clock.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

TEST_F(LayerProfilerTest, Times_AreOfOnePass) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::ModelProfile profile, Profile());
  for (const v1::ShapeProfile& shape : profile.shapes()) {
    EXPECT_DOUBLE_EQ(shape.update().ms(), 1.0);
    for (const v1::SizeProfile& size : shape.sizes()) {
      for (const v1::MeasuredTime& time :
           {size.forward(), size.backward_input(), size.backward_weight()}) {
        EXPECT_DOUBLE_EQ(time.ms(), 1.0 / kWindowMicrobatches);
        EXPECT_DOUBLE_EQ(time.spread_ms(), 0.0);
      }
    }
  }
}

TEST_F(LayerProfilerTest, Progress_IsToldBeforeEachMeasurement) {
  ASSERT_THAT(Profile(), IsOk());
  ASSERT_EQ(seen_.size(), 10u);  // five shapes in two sizes
  for (size_t i = 0; i < seen_.size(); ++i) {
    EXPECT_EQ(seen_[i].done, static_cast<int>(i));
    EXPECT_EQ(seen_[i].total, 10);
    EXPECT_EQ(seen_[i].samples, i % 2 == 0 ? 2 : 4);
  }
  EXPECT_EQ(seen_.front().layer, "embedding");
  EXPECT_EQ(seen_.back().layer, "head");
}

TEST_F(LayerProfilerTest, ErrorOfProgress_EndsIt) {
  on_progress_ = [](const ProfilerProgress& progress) {
    return progress.done == 3 ? absl::CancelledError("enough") : absl::OkStatus();
  };
  EXPECT_THAT(Profile(), StatusIs(absl::StatusCode::kCancelled, HasSubstr("enough")));
  EXPECT_EQ(seen_.size(), 4u);
  EXPECT_EQ(backend_->pool().stats().bytes_in_use, 0);
}

// A stage of several layers has the sums of their bytes, a tied weight counted once.
TEST_F(LayerProfilerTest, BytesOfLayers_AddUpToThoseOfStages) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::ModelProfile profile, Profile());
  const auto shape_of = [&](int layer) {
    for (const v1::ShapeProfile& shape : profile.shapes()) {
      if (shape.shape() == Describe(model_, model_.layers[layer])) return shape;
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
