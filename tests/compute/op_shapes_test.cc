// What each op says of inputs and settings that do not fit, and what it makes of those that do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "model/describe.h"
#include "model/graph_builder.h"
#include "tests/compute/op_case.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

ValueType F32(std::vector<int64_t> dims) { return {DType::kF32, std::move(dims)}; }
ValueType I32(std::vector<int64_t> dims) { return {DType::kI32, std::move(dims)}; }

absl::StatusOr<OpResult> Infer(const std::string& name, const Attributes& given,
                               const std::vector<ValueType>& inputs) {
  const Op& op = **FindOp(name);
  absl::StatusOr<Attributes> attributes = Complete(op.attributes, given);
  if (!attributes.ok()) return attributes.status();
  return op.infer({*attributes, inputs});
}

struct Mistake {
  std::string op;
  Attributes attributes;
  std::vector<ValueType> inputs;
  std::string message;
};

TEST(OpShapes, Mistakes_SayWhatWouldFit) {
  const std::vector<Mistake> mistakes = {
      {"linear", {}, {F32({4})}, "outputs: missing"},
      {"linear",
       {{"outputs", int64_t{3}}},
       {I32({4})},
       "i32 [4] does not fit: expected f32 [..., inputs]"},
      {"linear",
       {{"outputs", int64_t{3}}, {"layout", std::string("OI")}},
       {F32({4})},
       "expected one of outputs_first, inputs_first"},
      {"relu", {}, {I32({4})}, "i32 [4] does not fit: expected f32"},
      {"gelu", {{"approximate", std::string("none")}}, {F32({4})}, "expected one of tanh, erf"},
      {"add", {}, {F32({4}), F32({1, 4})}, "do not fit: expected f32 of equal shapes"},
      {"mul", {}, {F32({4}), F32({5})}, "f32 [4] and f32 [5] do not fit"},
      {"concat", {}, {F32({2, 4}), F32({3, 4})}, "differ in the last dimension alone"},
      {"slice", {{"from", int64_t{2}}, {"to", int64_t{2}}}, {F32({4})}, "to: is 2; expected more"},
      {"slice", {{"from", int64_t{2}}, {"to", int64_t{5}}}, {F32({4})}, "f32 [..., 5 or more]"},
      {"select", {{"index", int64_t{3}}}, {F32({3, 2})}, "more than 3 time steps"},
      {"select", {}, {F32({3})}, "f32 [time, ...]"},
      {"flatten", {}, {I32({3, 2})}, "expected f32"},
      {"reshape",
       {{"dims", std::vector<int64_t>{2, 2}}},
       {F32({3, 2})},
       "f32 of 4 elements, for f32 [2, 2]"},
      {"dropout", {}, {F32({3})}, "probability: missing"},
      {"dropout", {{"probability", 1.0}}, {F32({3})}, "probability: is 1"},
      {"dropout",
       {{"probability", 0.5}, {"kind", std::string("locked")}},
       {F32({3})},
       "f32 [time, ...]"},
      {"embedding",
       {{"vocabulary", int64_t{3}}, {"width", int64_t{2}}},
       {F32({3})},
       "ids i32 [...]"},
      {"positions", {{"context", int64_t{2}}}, {F32({3, 4})}, "at most 2 time steps"},
      {"layer_norm", {{"width", int64_t{3}}}, {F32({4})}, "f32 [..., 3], the width"},
      {"cross_entropy",
       {},
       {F32({5, 4}), I32({4})},
       "logits f32 [..., classes] and targets i32 [...]"},
      {"mse", {}, {F32({4}), F32({5})}, "both f32 of one shape"},
      {"lstm", {}, {F32({3, 4})}, "hidden: missing"},
      {"lstm", {{"hidden", int64_t{2}}}, {F32({4})}, "f32 [time, width]"},
      {"lstm",
       {{"hidden", int64_t{2}}},
       {F32({3, 4}), I32({3})},
       "f32 [3, 4] and i32 [3] do not fit: expected f32 [time, width], and lengths i32 []"},
      {"lstm",
       {{"hidden", int64_t{2}}, {"bidirectional", true}, {"reverse", true}},
       {F32({3, 4})},
       "reads both ways anyway"},
      {"lstm",
       {{"hidden", int64_t{2}}, {"carried", true}, {"bidirectional", true}},
       {F32({3, 4})},
       "carried: is true together with bidirectional"},
      {"lstm",
       {{"hidden", int64_t{2}}, {"carried", true}, {"reverse", true}},
       {F32({3, 4})},
       "carried: is true together with reverse"},
      {"lstm",
       {{"hidden", int64_t{2}}, {"carried", true}},
       {F32({3, 4}), I32({})},
       "leave lengths or carried out"},
      {"additive_attention",
       {{"units", int64_t{2}}},
       {F32({3, 4}), F32({4})},
       "a memory f32 [time, width]"},
      {"additive_attention",
       {{"units", int64_t{2}}},
       {F32({1 << 20, 4}), F32({1 << 20, 4})},
       "keeps weights [1048576, 1048576] of a sample, 1.1e+12 elements; at most 8.59e+09"},
      {"additive_attention",
       {{"units", int64_t{1} << 24}},
       {F32({1 << 10, 4}), F32({3, 4})},
       "keeps mapped queries [1024, 16777216]"},
      {"additive_attention",
       {{"units", int64_t{1} << 24}},
       {F32({3, 4}), F32({1 << 10, 4})},
       "keeps a mapped memory [1024, 16777216]"},
      {"mlp_branch",
       {{"width", int64_t{4}}, {"hidden", int64_t{1} << 24}},
       {F32({1 << 10, 4})},
       "keeps the expansion [1024, 16777216]"},
      {"gpt_head",
       {{"vocabulary", int64_t{1} << 24}, {"width", int64_t{4}}},
       {F32({1 << 10, 4}), I32({1 << 10})},
       "keeps logits [1024, 16777216]"},
      {"attention", {{"heads", int64_t{4}}}, {F32({3, 18})}, "does not divide the width (6)"},
      {"attention", {{"heads", int64_t{2}}}, {F32({3, 16})}, "side by side f32 [time, 3 width]"},
      {"attention",
       {{"heads", int64_t{2}}},
       {F32({3, 4}), F32({5, 4}), F32({6, 4})},
       "keys and values of one time"},
      {"attention",
       {{"heads", int64_t{8}}, {"key_value_heads", int64_t{3}}},
       {F32({3, 24})},
       "key_value_heads: is 3, which does not divide heads (8)"},
      {"attention",
       {{"heads", int64_t{8}}, {"key_value_heads", int64_t{2}}},
       {F32({3, 32})},
       "side by side f32 [time, 6 width / 4]"},
      {"attention",
       {{"heads", int64_t{8}}, {"key_value_heads", int64_t{2}}},
       {F32({3, 16}), F32({3, 16}), F32({3, 16})},
       "keys and values of one time f32 [time, width / 4]"},
      {"attention",
       {{"heads", int64_t{8}}, {"key_value_heads", int64_t{2}}},
       {F32({3, 18})},
       "heads: is 8, which does not divide the width (12)"},
      {"attention",
       {{"heads", int64_t{2}}, {"window", int64_t{3}}},
       {F32({3, 6})},
       "window: is 3 without causal; set causal: true"},
      {"rope", {}, {F32({3, 4})}, "head_size: missing"},
      {"rope",
       {{"head_size", int64_t{3}}},
       {F32({3, 6})},
       "head_size: is 3; expected an even number"},
      {"rope",
       {{"head_size", int64_t{4}}},
       {F32({3, 6})},
       "f32 [3, 6] does not fit: expected f32 [time, width] with a width that is a multiple of 4"},
      {"rope", {{"head_size", int64_t{4}}}, {F32({3, 2, 4})}, "f32 [time, width]"},
      {"rope", {{"head_size", int64_t{4}}}, {F32({3, 4}), I32({4})}, "positions i32 [time]"},
      {"rope",
       {{"head_size", int64_t{4}}, {"factor", 8.0}},
       {F32({3, 4})},
       "factor: does nothing without scaling; set it, or leave this out"},
      {"rope",
       {{"head_size", int64_t{4}}, {"scaling", std::string("linear")}},
       {F32({3, 4})},
       "factor: missing; scaling: linear needs it"},
      {"rope",
       {{"head_size", int64_t{4}},
        {"scaling", std::string("linear")},
        {"factor", 2.0},
        {"original_context", int64_t{64}}},
       {F32({3, 4})},
       "original_context: does nothing with scaling: linear"},
      {"rope",
       {{"head_size", int64_t{4}},
        {"scaling", std::string("llama3")},
        {"factor", 2.0},
        {"low_frequency_factor", 4.0},
        {"high_frequency_factor", 4.0},
        {"original_context", int64_t{64}}},
       {F32({3, 4})},
       "high_frequency_factor: is 4; expected more than low_frequency_factor (4)"},
  };
  for (const Mistake& mistake : mistakes) {
    EXPECT_THAT(Infer(mistake.op, mistake.attributes, mistake.inputs),
                StatusIs(kInvalid, HasSubstr(mistake.message)))
        << mistake.op;
  }
}

// Each input of every case that PyTorch has numbers for.
TEST(OpShapes, AnInputOfAnotherType_DoesNotFit) {
  for (const OpCase& op_case : ReadOpCases()) {
    for (size_t i = 0; i < op_case.inputs.size(); ++i) {
      std::vector<ValueType> inputs = op_case.InputTypes();
      inputs[i].dtype = inputs[i].dtype == DType::kI32 ? DType::kF32 : DType::kI32;
      EXPECT_THAT(Infer(op_case.op, op_case.attributes, inputs),
                  StatusIs(kInvalid, HasSubstr("not fit: expected ")))
          << op_case << ", input " << i;
    }
  }
}

TEST(OpShapes, Linear_StartsAsPyTorchDoesOrFromANormalDistribution) {
  using Init = ParameterSpec::Init;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const OpResult uniform,
                                Infer("linear", {{"outputs", int64_t{3}}}, {F32({7, 16})}));
  EXPECT_EQ(uniform.output, F32({7, 3}));
  ASSERT_EQ(uniform.parameters.size(), 2u);
  EXPECT_EQ(uniform.parameters[0].shape, (std::vector<int64_t>{3, 16}));
  for (const ParameterSpec& parameter : uniform.parameters) {
    EXPECT_EQ(parameter.init, Init::kUniform);
    EXPECT_EQ(parameter.init_scale, 0.25);
  }
  EXPECT_TRUE(uniform.parameters[0].decays);
  EXPECT_FALSE(uniform.parameters[1].decays);

  const Attributes attributes = {{"outputs", int64_t{3}},
                                 {"layout", std::string("inputs_first")},
                                 {"init", std::string("normal")},
                                 {"deviation", 0.1}};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const OpResult normal, Infer("linear", attributes, {F32({16})}));
  EXPECT_EQ(normal.parameters[0].shape, (std::vector<int64_t>{16, 3}));
  EXPECT_EQ(normal.parameters[0].init, Init::kNormal);
  EXPECT_EQ(normal.parameters[0].init_scale, 0.1);
  EXPECT_EQ(normal.parameters[1].init, Init::kZeros);
}

// An attention of before keys had heads and windows of their own is described as it was then.
TEST(OpShapes, HeadsOfKeysAndWindow_OfAnAttention_AreDescribedWhereTheyAreSet) {
  const auto describe = [](const Attributes& attributes) {
    GraphBuilder builder("layers");
    builder.AddPort({"x", F32({3, 16})});
    builder.AddPort({"y", F32({3, 8})});
    builder.BeginLayer("heads");
    builder.Add({.op = "attention", .attributes = attributes, .inputs = {"x"}});
    builder.BeginLayer("loss");
    builder.Add({.op = "mse", .inputs = {"heads", "y"}});
    const absl::StatusOr<ModelGraph> model = std::move(builder).Build();
    return model.ok() ? Describe(*model, model->layers[0]) : std::string(model.status().message());
  };
  EXPECT_EQ(describe({{"heads", int64_t{2}}, {"key_value_heads", int64_t{1}}, {"causal", true}}),
            "dot_product_attention(heads 2, causal true, key_value_heads 1) of f32 [3, 16]");
  EXPECT_EQ(
      describe({{"heads", int64_t{2}},
                {"key_value_heads", int64_t{1}},
                {"causal", true},
                {"window", int64_t{2}}}),
      "dot_product_attention(heads 2, causal true, key_value_heads 1, window 2) of f32 [3, 16]");
}

// A norm of before there was an epsilon to set is described as it was then.
TEST(OpShapes, Epsilon_OfALayerNorm_IsDescribedWhereItIsSet) {
  for (const double epsilon : {1e-5, 1e-6}) {
    GraphBuilder builder("layers");
    builder.AddPort({"x", F32({3, 4})});
    builder.AddPort({"y", F32({3, 4})});
    builder.BeginLayer("norm");
    builder.Add({.op = "layer_norm",
                 .attributes = {{"width", int64_t{4}}, {"epsilon", epsilon}},
                 .inputs = {"x"}});
    builder.BeginLayer("loss");
    builder.Add({.op = "mse", .inputs = {"norm", "y"}});
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph model, std::move(builder).Build());
    EXPECT_EQ(Describe(model, model.layers[0]), epsilon == 1e-5
                                                    ? "norm(width 4) of f32 [3, 4]"
                                                    : "norm(width 4, epsilon 1e-06) of f32 [3, 4]");
  }
}

}  // namespace
}  // namespace penstock
