// Work against hand-counted operations and bytes, and rows against profiles with given times.
#include "tests/bench/roofline.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "base/check.h"
#include "job/profile/model_profile.h"
#include "model/describe.h"
#include "model/families/gpt.h"
#include "model/graph_builder.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kSamples = 2, kTime = 32, kWidth = 64, kVocabulary = 100;
constexpr double kValue = kSamples * kTime * kWidth * 4;  // bytes of the residual stream
constexpr double kStash = 1000, kKept = 2000, kWeightStash = 3000;
constexpr MachineRates kRates = {.flops_per_second = 1e9, .bytes_per_second = 1e8};

ModelGraph MakeGpt(int64_t layers = 1) {
  GptConfig config;
  config.layers = layers;
  config.width = 64;
  config.heads = 4;
  config.context = 32;
  config.vocabulary = 100;
  config.tied_head = false;
  return *BuildGpt(config);
}

LayerWork WorkOfLayer(int layer, Precision precision, const TapeNeeds& needs) {
  const ModelGraph model = MakeGpt();
  return WorkOf(model, model.layers[layer], 2, precision, {needs});
}

constexpr TapeNeeds kBranchNeeds = {.stash_bytes = 1000,
                                    .kept_bytes = 2000,
                                    .weight_stash_bytes = 3000,
                                    .inputs_for_input = kAllInputs,
                                    .grad_output_for_weight = true};

TEST(Roofline, Mlp_CountsItsProductsAndWhatPassesLeave) {
  const LayerWork work = WorkOfLayer(2, Precision::kF32, kBranchNeeds);
  const double linear = kSamples * 2 * 2 * kTime * kWidth * 4 * kWidth;
  const double parameters = 2 * kWidth + kWidth * 4 * kWidth + 4 * kWidth + 4 * kWidth * kWidth +
                            kWidth;  // norm, expansion, projection
  EXPECT_EQ(work.forward, (PassWork{linear, kValue + parameters * 4 + kValue + kStash + kKept}));
  EXPECT_EQ(work.backward_input,
            (PassWork{linear, kValue + kStash + kValue + parameters * 4 + kValue + kWeightStash}));
  EXPECT_EQ(work.backward_weight,
            (PassWork{linear, kKept + kWeightStash + kValue + 2 * parameters * 4}));
}

TEST(Roofline, Bf16_ReadsHalfTheBytesOfWeightsAndAddsToGradientsInF32) {
  const LayerWork f32 = WorkOfLayer(2, Precision::kF32, kBranchNeeds);
  const LayerWork bf16 = WorkOfLayer(2, Precision::kBf16, kBranchNeeds);
  const double parameters = 2 * kWidth + 2 * kWidth * 4 * kWidth + 5 * kWidth;
  EXPECT_DOUBLE_EQ(f32.forward.bytes - bf16.forward.bytes, parameters * 2);
  EXPECT_DOUBLE_EQ(f32.backward_input.bytes - bf16.backward_input.bytes, parameters * 2);
  EXPECT_EQ(f32.backward_weight, bf16.backward_weight);
}

// 64 ids: of the 100 rows of the tokens' table at most 64 are read, of the 32 positions all.
TEST(Roofline, Embedding_ReadsARowForEachId) {
  const LayerWork work = WorkOfLayer(0, Precision::kF32, {.grad_output_for_weight = true});
  const double ids = kSamples * kTime * 4;
  const double rows = (kSamples * kTime + kTime) * kWidth * 4;
  EXPECT_DOUBLE_EQ(work.forward.bytes, ids + rows + kValue);
  EXPECT_EQ(work.backward_input, PassWork());
  EXPECT_DOUBLE_EQ(work.backward_weight.bytes, kValue + 2 * rows);
}

TEST(Roofline, Loss_HasOneNumberAndNoGradientOfIt) {
  const LayerWork work = WorkOfLayer(4, Precision::kF32, {.kept_bytes = 2000});
  const double weights = kVocabulary * kWidth * 4;
  const double targets = kSamples * kTime * 4;
  EXPECT_DOUBLE_EQ(work.forward.bytes, kValue + targets + weights + 4 + kKept);
  EXPECT_DOUBLE_EQ(work.backward_input.bytes, kValue + weights);
}

// A net reads its images, of which nobody wants a gradient.
TEST(Roofline, LayerThatReadsData_HasNoGradientOfItsInput) {
  GraphBuilder builder("layers");
  builder.AddPort({"x", {DType::kF32, {8}}});
  builder.AddPort({"y", {DType::kF32, {4}}});
  builder.BeginLayer("linear");
  builder.Add(
      {.op = "linear", .attributes = {{"outputs", int64_t{4}}, {"bias", false}}, .inputs = {"x"}});
  builder.BeginLayer("loss");
  builder.Add({.op = "mse", .inputs = {"linear", "y"}});
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph model, std::move(builder).Build());
  const TapeNeeds needs = {.inputs_for_weight = kAllInputs, .grad_output_for_weight = true};
  const LayerWork work = WorkOf(model, model.layers[0], 2, Precision::kF32, {needs});
  EXPECT_EQ(work.forward, (PassWork{2 * 2 * 8 * 4, (2 * 8 + 8 * 4 + 2 * 4) * 4}));
  EXPECT_EQ(work.backward_input, PassWork());
  EXPECT_EQ(work.backward_weight, (PassWork{2 * 2 * 8 * 4, (2 * 8 + 2 * 4 + 2 * 8 * 4) * 4}));
}

// AdamW reads four arrays and writes three, and zeros for the gradients; SGD with momentum reads three and writes two.
TEST(Roofline, Update_CountsItsArrays) {
  EXPECT_EQ(WorkOfUpdate(10, /*states=*/2, Precision::kF32), (PassWork{0, 10 * 8 * 4}));
  EXPECT_EQ(WorkOfUpdate(10, /*states=*/1, Precision::kF32), (PassWork{0, 10 * 6 * 4}));
  EXPECT_EQ(WorkOfUpdate(10, /*states=*/2, Precision::kBf16), (PassWork{0, 10 * (8 * 4 + 2)}));
}

TEST(Roofline, Bound_IsTheLongerOfOperationsAndBytes) {
  EXPECT_DOUBLE_EQ(BoundMs({.flops = 3e9, .bytes = 1e8}, kRates), 3e3);
  EXPECT_DOUBLE_EQ(BoundMs({.flops = 3e9, .bytes = 5e8}, kRates), 5e3);
}

class RowsTest : public ::testing::Test {
 protected:
  RowsTest() {
    SetLayers(model_, Precision::kF32, profile_);
    for (const int layer : FirstLayersOfShapes(model_)) {
      v1::ShapeProfile& shape = *profile_.add_shapes();
      shape.set_shape(DescribeWork(model_, model_.layers[layer]));
      shape.mutable_update()->set_ms(0.5);
      v1::SizeProfile& size = *shape.add_sizes();
      size.set_samples(2);
      size.mutable_forward()->set_ms(100);
      size.mutable_backward_input()->set_ms(200);
      size.mutable_backward_weight()->set_ms(300);
      size.add_nodes();
    }
    PENSTOCK_CHECK(CheckModelProfile(profile_).ok());
  }

  absl::StatusOr<std::vector<RooflineRow>> Rows(int64_t samples) {
    return RooflineOf(model_, profile_, AdamWConfig(), samples, Precision::kF32, kRates);
  }

  const ModelGraph model_ = MakeGpt(/*layers=*/3);
  v1::ModelProfile profile_;
};

TEST_F(RowsTest, ComeByWhatIsLostInAllLayersThatAreAlike) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::vector<RooflineRow> rows, Rows(2));
  ASSERT_EQ(rows.size(), 15u);  // 5 kinds, of which the embedding has no I, and the update
  for (size_t i = 1; i < rows.size(); ++i) EXPECT_GE(rows[i - 1].gap_ms(), rows[i].gap_ms());
  // Of the three passes W takes the longest, and attention's has half the operations of the MLP's.
  EXPECT_EQ(rows[0].pass, "W");
  EXPECT_EQ(rows[0].layers, "h.0.attention, 3 of them");
  EXPECT_EQ(rows[0].count, 3);
  EXPECT_DOUBLE_EQ(rows[0].ms, 300);
  EXPECT_DOUBLE_EQ(rows[0].bound_ms, BoundMs(rows[0].work, kRates));
}

TEST_F(RowsTest, UpdateIsOfAllLayers) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::vector<RooflineRow> rows, Rows(2));
  const auto update = std::find_if(rows.begin(), rows.end(),
                                   [](const RooflineRow& row) { return row.pass == "update"; });
  ASSERT_NE(update, rows.end());
  EXPECT_DOUBLE_EQ(update->ms, 0.5 * model_.size());
  EXPECT_EQ(update->work, WorkOfUpdate(model_.parameter_count(), 2, Precision::kF32));
}

TEST_F(RowsTest, SizeThatWasNotMeasured_IsAnError) { EXPECT_THAT(Rows(3).status(), Not(IsOk())); }

TEST(RooflineTable, SumsAllRowsAndPrintsTheFirst) {
  const std::vector<RooflineRow> rows = {
      {.layers = "mlp, 2 of them",
       .count = 2,
       .pass = "F",
       .ms = 4,
       .work = {.flops = 1e6, .bytes = 1e5},
       .bound_ms = 1},
      {.layers = "norm", .pass = "I", .ms = 2, .work = {.bytes = 1e5}, .bound_ms = 1}};
  const std::string table = RooflineTable(rows, 1, kRates);
  EXPECT_THAT(table,
              HasSubstr("| mlp, 2 of them | F | 4.000 | 0.001 | 0.10 | 1.000 | operations | 25 % | "
                        "6.00 |\n"));
  EXPECT_THAT(table, Not(HasSubstr("norm")));
  EXPECT_THAT(table, HasSubstr("a step: 10.00 ms, bound 3.00 ms, 30 % of the bound\n"));
}

}  // namespace
}  // namespace penstock
