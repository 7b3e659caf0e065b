#include "job/profile/model_profile.h"

#include <gmock/gmock.h>

#include <limits>

#include "google/protobuf/util/message_differencer.h"
#include "job/resolve.h"
#include "model/describe.h"
#include "tests/job/jobs.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kModelProfile[] = R"(device: somewhere
precision: f32
optimizer: adamw
time_steps: 16
layers:
  - {layer: embedding, shape: table}
  - {layer: h.0.mlp, shape: wide}
  - {layer: h.1.mlp, shape: wide}
shapes:
  - shape: table
    weight_bytes: 100
    sizes:
      - samples: 2
        forward: {ms: 1}
      - samples: 4
        forward: {ms: 2}
  - shape: wide
    weight_bytes: 4096
    update: {ms: 0.5, spread_ms: 0.1}
    sizes:
      - samples: 2
        forward: {ms: 3, spread_ms: 0.25}
        backward_input: {ms: 4}
        backward_weight: {ms: 5}
        nodes:
          - {stash_bytes: 64, inputs_for_weight: 1}
      - samples: 4
        forward: {ms: 5}
        nodes:
          - {stash_bytes: 64, inputs_for_weight: 1}
        backward_input: {ms: 8}
        backward_weight: {ms: 10.125}
)";

v1::ModelProfile GoodModel() { return *ParseModelProfile(kModelProfile, "profile.yaml"); }

// The profile with a part of its text replaced.
absl::StatusOr<v1::ModelProfile> ModelWith(const std::string& what, const std::string& by) {
  std::string text = kModelProfile;
  text.replace(text.find(what), what.size(), by);
  return ParseModelProfile(text, "profile.yaml");
}

TEST(ModelProfile, Printed_ReadsBackTheSame) {
  v1::ModelProfile profile = GoodModel();
  profile.mutable_shapes(1)->mutable_update()->set_ms(1.0 / 3.0);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::ModelProfile again,
                                ParseModelProfile(PrintModelProfile(profile), "again.yaml"));
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(again, profile));
}

TEST(ModelProfile, WrongFiles_AreRefusedWithTheirPlace) {
  EXPECT_THAT(ModelWith("{layer: h.1.mlp", "{layer: h.0.mlp"),
              StatusIs(kInvalid, HasSubstr("h.0.mlp is there twice")));
  EXPECT_THAT(
      ModelWith("h.0.mlp, shape: wide", "h.0.mlp, values: [{readers: [h.0.mlp]}], shape: wide"),
      StatusIs(kInvalid, HasSubstr("layers[1].values[0].readers: has h.0.mlp, which is no "
                                   "layer behind h.0.mlp")));
  EXPECT_THAT(
      ModelWith("h.0.mlp, shape: wide", "h.0.mlp, values: [{sample_bytes: -1}], shape: wide"),
      StatusIs(kInvalid, HasSubstr("layers[1].values[0].sample_bytes: is -1")));
  EXPECT_THAT(ModelWith("h.1.mlp, shape: wide", "h.1.mlp, shape: narrow"),
              StatusIs(kInvalid, HasSubstr("narrow is none of `shapes`")));
  EXPECT_THAT(ModelWith("shape: wide\n    weight", "shape: table\n    weight"),
              StatusIs(kInvalid, HasSubstr("table is there twice")));
  EXPECT_THAT(
      ModelWith("- samples: 2\n        forward: {ms: 3", "- samples: 4\n        forward: {ms: 3"),
      StatusIs(kInvalid, HasSubstr("expected 5 or more")));
  EXPECT_THAT(
      ModelWith("- samples: 4\n        forward: {ms: 5}", "- samples: 8\n        forward: {ms: 5}"),
      StatusIs(kInvalid, HasSubstr("are of 2, 8 samples; expected those of all other")));
  EXPECT_THAT(
      ModelWith("{ms: 4}", "{ms: -4}"),
      StatusIs(kInvalid, HasSubstr("profile.yaml:23:26: shapes[1].sizes[0].backward_input.ms")));
  EXPECT_THAT(ModelWith("{ms: 4}", "{ms: .nan}"), Not(IsOk()));
  EXPECT_THAT(ModelWith("stash_bytes: 64", "stash_bytes: -64"),
              StatusIs(kInvalid, HasSubstr("stash_bytes: is -64")));
  EXPECT_THAT(ParseModelProfile("device: none", "profile.yaml"),
              StatusIs(kInvalid, HasSubstr("shapes: has none")));
}

TEST(DeviceTimesOf, MeasuredSize_GivesTheMedians) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::DeviceTimes times, DeviceTimesOf(GoodModel(), 4));
  ASSERT_EQ(times.layers_size(), 3);
  EXPECT_EQ(times.device(), "somewhere");
  EXPECT_EQ(times.layers(0).layer(), "embedding");
  EXPECT_DOUBLE_EQ(times.layers(0).times().forward_ms(), 2.0);
  for (const int layer : {1, 2}) {
    EXPECT_DOUBLE_EQ(times.layers(layer).times().forward_ms(), 5.0);
    EXPECT_DOUBLE_EQ(times.layers(layer).times().backward_input_ms(), 8.0);
    EXPECT_DOUBLE_EQ(times.layers(layer).times().backward_weight_ms(), 10.125);
    EXPECT_DOUBLE_EQ(times.layers(layer).times().update_ms(), 0.5);
  }
}

TEST(DeviceTimesOf, SizeBetween_LiesOnTheLine) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::DeviceTimes times, DeviceTimesOf(GoodModel(), 3));
  EXPECT_DOUBLE_EQ(times.layers(1).times().forward_ms(), 4.0);
  EXPECT_DOUBLE_EQ(times.layers(1).times().backward_input_ms(), 6.0);
}

TEST(DeviceTimesOf, SizeBeyondAllMeasured_IsRefused) {
  for (const int64_t samples :
       {int64_t{0}, int64_t{1}, int64_t{5}, std::numeric_limits<int64_t>::max()}) {
    EXPECT_THAT(DeviceTimesOf(GoodModel(), samples),
                StatusIs(kInvalid, HasSubstr("microbatches of 2, 4 samples")));
  }
}

TEST(CheckProfileFits, OfAnotherModel_NamesTheFirstLayerThatDiffers) {
  const ModelGraph model = ResolveJob(GoodJob())->model;
  v1::ModelProfile profile;
  profile.set_time_steps(model.targets_per_sample());
  for (const LayerSpec& layer : model.layers) {
    v1::ProfiledLayer& entry = *profile.add_layers();
    entry.set_layer(layer.name);
    entry.set_shape(DescribeWork(model, layer));
    v1::ShapeProfile& shape = *profile.add_shapes();
    shape.set_shape(entry.shape());
    shape.add_sizes()->add_nodes();
  }
  EXPECT_THAT(CheckProfileFits(profile, model), IsOk());
  v1::ModelProfile old = profile;  // of the version before, which knew of no nodes
  old.mutable_shapes(0)->mutable_sizes(0)->clear_nodes();
  EXPECT_THAT(CheckProfileFits(old, model),
              StatusIs(kInvalid, HasSubstr("0 nodes of layer embedding, which has 1")));
  v1::ModelProfile other = profile;
  other.mutable_layers(2)->set_shape("mlp(width 1, hidden 4, dropout 0)");
  EXPECT_THAT(CheckProfileFits(other, model),
              StatusIs(kInvalid, HasSubstr("its layer h.0.mlp is mlp(width 1, hidden 4")));
  other = profile;
  other.mutable_layers()->RemoveLast();
  EXPECT_THAT(CheckProfileFits(other, model), StatusIs(kInvalid, HasSubstr("is none, that of")));
  other = profile;
  other.mutable_layers()->SwapElements(1, 2);
  EXPECT_THAT(CheckProfileFits(other, model), IsOk()) << "the order of the layers may differ";
  other.add_layers()->set_layer("more");
  EXPECT_THAT(CheckProfileFits(other, model), StatusIs(kInvalid, HasSubstr("has a layer more")));
  other = profile;
  other.set_time_steps(model.targets_per_sample() + 1);
  EXPECT_THAT(CheckProfileFits(other, model), StatusIs(kInvalid, HasSubstr("time steps")));
}

TEST(MeanTimes, IsOfEveryTimeAndLeavesTheRest) {
  // Of the one shape that has all times.
  v1::ModelProfile good = GoodModel();
  good.mutable_layers()->DeleteSubrange(0, 1);
  good.mutable_shapes()->DeleteSubrange(0, 1);
  v1::ModelProfile slow = good;
  slow.mutable_bundles()->set_pack_ms_per_megabyte(3.0);
  slow.mutable_shapes(0)->mutable_update()->set_ms(1.5);
  slow.mutable_shapes(0)->mutable_sizes(0)->mutable_forward()->set_ms(9.0);
  slow.mutable_shapes(0)->mutable_sizes(1)->mutable_backward_input()->set_ms(10.0);
  slow.mutable_shapes(0)->mutable_sizes(1)->mutable_backward_weight()->set_ms(0.125);
  const v1::ModelProfile mean = MeanTimes({good, slow});
  v1::ModelProfile expected = good;
  expected.mutable_bundles()->set_pack_ms_per_megabyte(1.5);
  expected.mutable_shapes(0)->mutable_update()->set_ms(1.0);
  expected.mutable_shapes(0)->mutable_sizes(0)->mutable_forward()->set_ms(6.0);
  expected.mutable_shapes(0)->mutable_sizes(1)->mutable_backward_input()->set_ms(9.0);
  expected.mutable_shapes(0)->mutable_sizes(1)->mutable_backward_weight()->set_ms(5.125);
  EXPECT_EQ(PrintModelProfile(mean), PrintModelProfile(expected));
  EXPECT_EQ(PrintModelProfile(MeanTimes({slow})), PrintModelProfile(slow));
}

}  // namespace
}  // namespace penstock
