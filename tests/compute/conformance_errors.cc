// Bad input gives one clear error and leaves the stage usable.
#include <span>
#include <utility>

#include "model/graph_builder.h"
#include "tests/compute/conformance.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr auto kPrecondition = absl::StatusCode::kFailedPrecondition;

StageOptions WholeModel(const ModelGraph& model, bool recomputes = false) {
  StageOptions options;
  options.recomputes = recomputes;
  options.layers = {0, model.size()};
  options.samples = 2;
  options.optimizer = AdamWConfig{};
  return options;
}

class StageWithTokens {
 public:
  explicit StageWithTokens(BackendConformance& suite, bool recomputes = false)
      : model_(*BuildGpt(TinyGpt())),
        stage_(*Stage::Create(suite.backend(), model_, WholeModel(model_, recomputes))),
        tokens_(TokensOf(0, 2 * 20, TinyGpt().vocabulary)),
        ids(suite.ToDevice(tokens_.ids, {2, 20})),
        targets(suite.ToDevice(tokens_.targets, {2, 20})) {
    stage_->InitializeWeights();
  }
  Stage* operator->() { return stage_.get(); }
  Tokens tokens() const { return tokens_; }
  absl::StatusOr<Tensor> Forward(int64_t id) {
    return stage_->Forward(MicrobatchId(id), 0, 0, Tensor(), {ids, targets});
  }
  absl::Status Recompute(int64_t id, int64_t version = 0) {
    return stage_->Recompute(MicrobatchId(id), version, {ids, targets});
  }

  // F, I and W of one microbatch.
  absl::Status Train(int64_t id) {
    absl::Status status = Forward(id).status();
    status.Update(stage_->BackwardInput(MicrobatchId(id), 0, Tensor(), 1.0f).status());
    status.Update(stage_->BackwardWeight(MicrobatchId(id)));
    return status;
  }

 private:
  ModelGraph model_;
  std::unique_ptr<Stage> stage_;
  Tokens tokens_;

 public:
  Tensor ids, targets;
};

TEST_P(BackendConformance, Create_LayersOutsideTheModel_AreRefused) {
  const ModelGraph model = *BuildGpt(TinyGpt());
  for (const LayerRange range : {LayerRange{0, 0}, LayerRange{-1, 2}, LayerRange{5, 3}}) {
    StageOptions options = WholeModel(model);
    options.layers = range;
    EXPECT_THAT(Stage::Create(backend(), model, options),
                StatusIs(kInvalid, HasSubstr("7 layers")));
  }
}

TEST_P(BackendConformance, Create_NoSamples_IsRefused) {
  const ModelGraph model = *BuildGpt(TinyGpt());
  for (const int64_t samples : {0, -1}) {
    StageOptions options = WholeModel(model);
    options.samples = samples;
    EXPECT_THAT(Stage::Create(backend(), model, options),
                StatusIs(kInvalid, HasSubstr(std::to_string(samples) + " samples")));
  }
}

TEST_P(BackendConformance, PortToDevice_IdOutsideTheVocabulary_IsNamedWithItsPlace) {
  StageWithTokens stage(*this);
  const auto to_device = [&](const std::vector<int32_t>& ids) {
    return stage->PortToDevice(0, std::as_bytes(std::span(ids)));
  };
  for (const int32_t bad : {29, -1, 1 << 30}) {
    std::vector<int32_t> ids = stage.tokens().ids;
    ids[23] = bad;
    EXPECT_THAT(
        to_device(ids),
        StatusIs(kInvalid, AllOf(HasSubstr("input tokens holds " + std::to_string(bad)),
                                 HasSubstr("sample 1, time step 3"), HasSubstr("allow 0 to 28"))));
  }
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Tensor ids, to_device(stage.tokens().ids));
  EXPECT_EQ(ids.dtype, DType::kI32);
  EXPECT_EQ(ids.shape, (Shape{2, 20}));
}

// A label is no token of a vocabulary, and has no time.
TEST_P(BackendConformance, PortToDevice_LabelOfNoClass_IsNamedWithItsSample) {
  GraphBuilder builder(kLayersArchitecture);
  builder.AddPort({"image", {DType::kF32, {3}}});
  builder.AddPort({"label", {DType::kI32, {}}});
  builder.BeginLayer("logits");
  builder.Add({.name = "logits",
               .op = "linear",
               .attributes = {{"outputs", int64_t{9}}},
               .inputs = {"image"}});
  builder.Add({.name = "loss", .op = "cross_entropy", .inputs = {"logits", "label"}});
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph model, std::move(builder).Build());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto stage,
                                Stage::Create(backend(), model, WholeModel(model)));
  const std::vector<int32_t> labels = {8, 9};
  EXPECT_THAT(
      stage->PortToDevice(1, std::as_bytes(std::span(labels))),
      StatusIs(kInvalid, HasSubstr("input label holds 9 at sample 1 of the microbatch; its ids or "
                                   "the ops that read it allow 0 to 8")));
}

TEST_P(BackendConformance, Forward_WrongShapeOrType_SaysWhatWasExpected) {
  StageWithTokens stage(*this);
  const Tensor short_ids = Poisoned(DType::kI32, {2, 19});
  const Tensor floats = Poisoned(DType::kF32, {2, 20});
  const auto forward = [&](absl::Span<const Tensor> ports) {
    return stage->Forward(MicrobatchId(0), 0, 0, Tensor(), ports);
  };
  EXPECT_THAT(forward({short_ids, stage.targets}),
              StatusIs(kInvalid, AllOf(HasSubstr("tokens"), HasSubstr("i32 [2, 20]"),
                                       HasSubstr("i32 [2, 19]"))));
  EXPECT_THAT(forward({floats, stage.targets}), StatusIs(kInvalid, HasSubstr("got f32 [2, 20]")));
  EXPECT_THAT(forward({stage.ids, Tensor()}),
              StatusIs(kInvalid, AllOf(HasSubstr("targets"), HasSubstr("got nothing"))));
  EXPECT_THAT(forward({stage.ids}),
              StatusIs(kInvalid, AllOf(HasSubstr("read 2 ports"), HasSubstr("got 1"))));
  EXPECT_THAT(stage.Train(0), IsOk());
}

TEST_P(BackendConformance, InputOrGradient_WrongShapeOrType_SaysWhatWasExpected) {
  const ModelGraph model = *BuildGpt(TinyGpt());
  StageOptions options = WholeModel(model);
  options.layers = {1, 2};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto stage, Stage::Create(backend(), model, options));
  stage->InitializeWeights();
  const auto forward = [&](Tensor input) {
    return stage->Forward(MicrobatchId(0), 0, 0, std::move(input), {});
  };
  const auto backward = [&](Tensor gradient) {
    return stage->BackwardInput(MicrobatchId(0), 0, std::move(gradient), 1.0f);
  };
  const std::vector<float> zeros(2 * 20 * 36, 0.0f);
  const Tensor right = ToDevice(zeros, {2, 20, 36});
  const Tensor flat = ToDevice(zeros, {2 * 20 * 36});
  const auto is_named =
      StatusIs(kInvalid, AllOf(HasSubstr("expected f32 [2, 20, 36]"), HasSubstr("got f32 [1440]")));
  EXPECT_THAT(forward(flat), is_named);
  EXPECT_THAT(forward(Tensor()), StatusIs(kInvalid, HasSubstr("got nothing")));
  ASSERT_THAT(forward(right), IsOk());
  EXPECT_THAT(backward(flat), is_named);
  EXPECT_THAT(backward(Tensor()), StatusIs(kInvalid, HasSubstr("got nothing")));
  EXPECT_THAT(backward(right), IsOk());
  EXPECT_THAT(stage->BackwardWeight(MicrobatchId(0)), IsOk());
}

TEST_P(BackendConformance, Passes_OutOfOrder_AreRefused) {
  StageWithTokens stage(*this);
  EXPECT_THAT(stage->BackwardInput(MicrobatchId(4), 0, Tensor(), 1.0f),
              StatusIs(kPrecondition, HasSubstr("microbatch 4 without its forward")));
  ASSERT_THAT(stage.Forward(4), IsOk());
  EXPECT_THAT(stage.Forward(4),
              StatusIs(kPrecondition, HasSubstr("microbatch 4 is in flight already")));
  EXPECT_THAT(stage.Forward(5), StatusIs(kPrecondition, HasSubstr("microbatches_in_flight_max")));
  EXPECT_THAT(stage->BackwardWeight(MicrobatchId(4)),
              StatusIs(kPrecondition, HasSubstr("before that of its input")));
  ASSERT_THAT(stage->BackwardInput(MicrobatchId(4), 0, Tensor(), 1.0f), IsOk());
  EXPECT_THAT(stage->BackwardInput(MicrobatchId(4), 0, Tensor(), 1.0f),
              StatusIs(kPrecondition, HasSubstr("second backward")));
  ASSERT_THAT(stage->BackwardWeight(MicrobatchId(4)), IsOk());
  EXPECT_THAT(stage.Train(5), IsOk());
}

TEST_P(BackendConformance, ForwardDoneAgain_OutOfOrder_IsRefused) {
  StageWithTokens keeps(*this);
  ASSERT_THAT(keeps.Forward(4), IsOk());
  EXPECT_THAT(keeps.Recompute(4), StatusIs(kPrecondition, HasSubstr("microbatch 4 kept no input")));
  StageWithTokens stage(*this, /*recomputes=*/true);
  EXPECT_THAT(stage.Recompute(4),
              StatusIs(kPrecondition, HasSubstr("microbatch 4 without its forward")));
  ASSERT_THAT(stage.Forward(4), IsOk());
  EXPECT_THAT(stage->BackwardInput(MicrobatchId(4), 0, Tensor(), 1.0f),
              StatusIs(kPrecondition, HasSubstr("before its forward was done again")));
  EXPECT_THAT(stage.Recompute(4, /*version=*/1),
              StatusIs(kPrecondition, HasSubstr("version 1 is not live")));
  EXPECT_THAT(stage->Recompute(MicrobatchId(4), 0, {stage.ids, Tensor()}),
              StatusIs(kInvalid, HasSubstr("targets")));
  ASSERT_THAT(stage.Recompute(4), IsOk());
  EXPECT_THAT(stage.Recompute(4), StatusIs(kPrecondition, HasSubstr("microbatch 4 kept no input")));
  ASSERT_THAT(stage->BackwardInput(MicrobatchId(4), 0, Tensor(), 1.0f), IsOk());
  ASSERT_THAT(stage->BackwardWeight(MicrobatchId(4)), IsOk());
}

TEST_P(BackendConformance, Step_WrongVersion_IsRefused) {
  StageWithTokens stage(*this);
  const std::vector<float> ones(7, 1.0f);
  Stage::StepOptions step;
  step.gradient_scales = ones;
  EXPECT_THAT(stage->Step(2, step), StatusIs(kPrecondition, HasSubstr("version 2")));
  EXPECT_THAT(stage->Step(1, step), IsOk());
  EXPECT_EQ(stage->version(), 1);
  EXPECT_THAT(stage->Step(1, step), StatusIs(kPrecondition, HasSubstr("current one is 1")));
}

TEST_P(BackendConformance, Load_WrongTensors_AreNamedAndChangeNothing) {
  StageWithTokens stage(*this);
  const std::vector<std::string> before = stage->LayerDigests();
  std::vector<NamedArray> arrays = stage->LayerWeights(1);
  arrays[0].values.assign(arrays[0].values.size(), 9.0f);

  std::vector<NamedArray> missing = arrays;
  missing.pop_back();
  EXPECT_THAT(stage->LoadLayerWeights(1, missing),
              StatusIs(kInvalid, HasSubstr("h.0.attn.c_proj.bias is missing")));
  std::vector<NamedArray> unexpected = arrays;
  unexpected.push_back({"h.9.bias", {1}, {0.0f}});
  EXPECT_THAT(stage->LoadLayerWeights(1, unexpected), StatusIs(kInvalid, HasSubstr("h.9.bias")));
  std::vector<NamedArray> reshaped = arrays;
  reshaped[2].shape = {108, 36};
  EXPECT_THAT(stage->LoadLayerWeights(1, reshaped),
              StatusIs(kInvalid, AllOf(HasSubstr("[108, 36]"), HasSubstr("[36, 108]"))));
  std::vector<NamedArray> truncated = arrays;
  truncated[2].values.resize(5);
  EXPECT_THAT(stage->LoadLayerWeights(1, truncated), StatusIs(kInvalid, HasSubstr("5 values")));
  EXPECT_THAT(stage->LoadLayerOptimizerState(1, arrays),
              StatusIs(kInvalid, HasSubstr("h.0.ln_1.weight.exp_avg is missing")));
  EXPECT_EQ(stage->LayerDigests(), before);
}

}  // namespace
}  // namespace penstock
