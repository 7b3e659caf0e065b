// Ops of image networks: shapes, parameters, first weights, errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "model/op.h"
#include "model/window.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<OpResult> InferOp(const std::string& name, const Attributes& given,
                                 const ValueType& input) {
  const Op* op = *FindOp(name);
  absl::StatusOr<Attributes> attributes = Complete(op->attributes, given);
  if (!attributes.ok()) return attributes.status();
  return op->infer({*attributes, {&input, 1}});
}

ValueType Image(int64_t height, int64_t width, int64_t channels) {
  return {DType::kF32, {height, width, channels}};
}

TEST(Conv2d, Settings_GiveTheShapesOfPyTorch) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const OpResult result,
                                InferOp("conv2d",
                                        {{"channels", int64_t{10}},
                                         {"kernel", std::vector<int64_t>{3, 2}},
                                         {"stride", std::vector<int64_t>{2, 3}},
                                         {"padding", std::vector<int64_t>{2, 1}},
                                         {"dilation", std::vector<int64_t>{2, 1}},
                                         {"groups", int64_t{2}}},
                                        Image(11, 12, 4)));
  EXPECT_EQ(result.output, Image(6, 5, 10));
  ASSERT_EQ(result.parameters.size(), 2u);
  EXPECT_EQ(result.parameters[0].name, "weight");
  EXPECT_THAT(result.parameters[0].shape, ElementsAre(10, 2, 3, 2));
  EXPECT_TRUE(result.parameters[0].decays);
  EXPECT_EQ(result.parameters[1].name, "bias");
  EXPECT_THAT(result.parameters[1].shape, ElementsAre(10));
  EXPECT_FALSE(result.parameters[1].decays);
}

TEST(Conv2d, FirstWeights_AreThoseOfPyTorchOrOfResNets) {
  const Attributes conv = {{"channels", int64_t{8}}, {"kernel", int64_t{3}}};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const OpResult uniform, InferOp("conv2d", conv, Image(5, 5, 4)));
  for (const ParameterSpec& parameter : uniform.parameters) {
    EXPECT_EQ(parameter.init, ParameterSpec::Init::kUniform);
    EXPECT_DOUBLE_EQ(parameter.init_scale, 1.0 / 6.0);  // of 36 inputs
  }
  Attributes kaiming = conv;
  kaiming.Set("init", std::string("kaiming"));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const OpResult normal, InferOp("conv2d", kaiming, Image(5, 5, 4)));
  EXPECT_EQ(normal.parameters[0].init, ParameterSpec::Init::kNormal);
  EXPECT_DOUBLE_EQ(normal.parameters[0].init_scale, 1.0 / 6.0);  // 2 of 72 outputs
  EXPECT_EQ(normal.parameters[1].init, ParameterSpec::Init::kZeros);
}

TEST(Conv2d, Cost_CountsProductsOfGroups) {
  const Op* op = *FindOp("conv2d");
  const ValueType image = Image(56, 56, 64);
  const Attributes attributes = *Complete(op->attributes, {{"channels", int64_t{32}},
                                                           {"kernel", int64_t{3}},
                                                           {"padding", int64_t{1}},
                                                           {"groups", int64_t{4}}});
  const OpCost cost = op->cost({attributes, {&image, 1}});
  EXPECT_DOUBLE_EQ(cost.forward_flops, 2.0 * 56 * 56 * 32 * 16 * 9);
  EXPECT_DOUBLE_EQ(cost.backward_input_flops, cost.forward_flops);
  EXPECT_DOUBLE_EQ(cost.backward_weight_flops, cost.forward_flops);
}

TEST(Conv2d, WhatDoesNotFit_IsNamed) {
  const Attributes conv = {{"channels", int64_t{8}}, {"kernel", int64_t{7}}};
  EXPECT_THAT(InferOp("conv2d", conv, Image(5, 5, 4)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a kernel of 7 x 7")));
  EXPECT_THAT(InferOp("conv2d", conv, {DType::kU8, {9, 9, 3}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("u8 [9, 9, 3]")));
  Attributes groups = conv;
  groups.Set("groups", int64_t{3});
  EXPECT_THAT(InferOp("conv2d", groups, Image(9, 9, 4)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("groups: 3")));
}

TEST(Window, Same_PadsMoreBehind) {
  const Op* op = *FindOp("conv2d");
  const Attributes attributes = *Complete(op->attributes, {{"channels", int64_t{1}},
                                                           {"kernel", int64_t{4}},
                                                           {"stride", std::vector<int64_t>{1, 3}},
                                                           {"same", true}});
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Window window, WindowOf(attributes, Image(6, 7, 1)));
  EXPECT_EQ(
      window.height,
      (Window::Axis{.inputs = 6, .kernel = 4, .stride = 1, .before = 1, .after = 2, .outputs = 6}));
  EXPECT_EQ(
      window.width,
      (Window::Axis{.inputs = 7, .kernel = 4, .stride = 3, .before = 1, .after = 2, .outputs = 3}));
}

TEST(Pools, Stride_IsTheKernelUnlessSaid) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      OpResult result,
      InferOp("max_pool", {{"kernel", std::vector<int64_t>{2, 3}}}, Image(7, 7, 5)));
  EXPECT_EQ(result.output, Image(3, 2, 5));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      result,
      InferOp("avg_pool", {{"kernel", int64_t{3}}, {"stride", int64_t{1}}}, Image(7, 7, 5)));
  EXPECT_EQ(result.output, Image(5, 5, 5));
}

TEST(Pools, Padding_IsAtMostHalfTheKernel) {
  for (const char* pool : {"max_pool", "avg_pool"}) {
    EXPECT_THAT(InferOp(pool, {{"kernel", int64_t{3}}, {"padding", int64_t{2}}}, Image(7, 7, 5)),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("padding: is 2")));
  }
}

TEST(AvgPool, ItsWindows_AreSaidInOneWay) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(OpResult result,
                                InferOp("avg_pool", {{"global", true}}, Image(7, 7, 5)));
  EXPECT_EQ(result.output, Image(1, 1, 5));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(result,
                                InferOp("avg_pool", {{"outputs", int64_t{6}}}, Image(7, 9, 5)));
  EXPECT_EQ(result.output, Image(6, 6, 5));
  const auto one_of =
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("one of kernel, global and outputs"));
  EXPECT_THAT(InferOp("avg_pool", {}, Image(7, 7, 5)), one_of);
  EXPECT_THAT(InferOp("avg_pool", {{"global", true}, {"kernel", int64_t{2}}}, Image(7, 7, 5)),
              one_of);
}

// A kernel without a width was none for the shapes, and one for the kernels that compute, which then divided by 0.
TEST(AvgPool, HalfAKernel_IsRefused) {
  const auto half = [](const std::string& name, int64_t height, int64_t width) {
    return InferOp("avg_pool", {{"global", true}, {name, std::vector<int64_t>{height, width}}},
                   Image(7, 7, 5));
  };
  const auto is_refused = [](const std::string& message) {
    return StatusIs(absl::StatusCode::kInvalidArgument,
                    HasSubstr(message + "; expected a height and a width of at least 1"));
  };
  EXPECT_THAT(half("kernel", 3, 0), is_refused("kernel: is [3, 0]"));
  EXPECT_THAT(half("kernel", 0, 3), is_refused("kernel: is [0, 3]"));
  EXPECT_THAT(half("outputs", 2, 0), is_refused("outputs: is [2, 0]"));
  EXPECT_TRUE(half("kernel", 0, 0).ok());
}

TEST(Pools, KernelsWithoutASide_AreRefused) {
  for (const char* op : {"max_pool", "conv2d"}) {
    Attributes given = {{"kernel", std::vector<int64_t>{3, 0}}};
    if (op == std::string("conv2d")) given.Set("channels", int64_t{4});
    EXPECT_THAT(InferOp(op, given, Image(7, 7, 5)),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("kernel: is 0")));
  }
  // Kernels are made from attributes that were checked, but windows do not rely on it.
  const Attributes unchecked = {{"kernel", std::vector<int64_t>{3, 0}},
                                {"stride", std::vector<int64_t>{0, 0}},
                                {"padding", std::vector<int64_t>{0, 0}}};
  EXPECT_THAT(WindowOf(unchecked, Image(7, 7, 5)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("kernel: is [3, 0]")));
}

TEST(Norms, Channels_AreTheLastDimension) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const OpResult batch, InferOp("batch_norm", {}, Image(3, 4, 6)));
  EXPECT_EQ(batch.output, Image(3, 4, 6));
  ASSERT_EQ(batch.buffers.size(), 2u);
  EXPECT_EQ(batch.buffers[0], (BufferSpec{"running_mean", {6}, 0.0}));
  EXPECT_EQ(batch.buffers[1], (BufferSpec{"running_var", {6}, 1.0}));
  EXPECT_THAT(InferOp("group_norm", {{"groups", int64_t{4}}}, Image(3, 4, 6)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("in 4 groups")));
}

TEST(Image, MeanAndDeviation_AreForAllChannelsOrForEach) {
  const ValueType bytes = {DType::kU8, {8, 9, 3}};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const OpResult result,
      InferOp("image", {{"mean", 0.5}, {"deviation", std::vector<double>{0.25, 0.5, 1.0}}}, bytes));
  EXPECT_EQ(result.output, Image(8, 9, 3));
  EXPECT_THAT(InferOp("image", {{"mean", std::vector<double>{0.5, 0.5}}}, bytes),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("mean: has 2 numbers")));
}

TEST(Attributes, Numbers_MayBeWrittenAsWholeOnesOrAsOne) {
  const AttributeSpec spec = {.name = "mean",
                              .kind = AttributeKind::kNumbers,
                              .otherwise = "[0.5, 2]",
                              .min = 0.25,
                              .sizes = 2};
  const auto complete = [&](const AttributeValue& value) {
    return Complete({&spec, 1}, {{"mean", value}});
  };
  EXPECT_THAT(Complete({&spec, 1}, {})->numbers("mean"), ElementsAre(0.5, 2.0));
  EXPECT_THAT(complete(int64_t{3})->numbers("mean"), ElementsAre(3.0, 3.0));
  EXPECT_THAT(complete(0.75)->numbers("mean"), ElementsAre(0.75, 0.75));
  EXPECT_THAT(complete(std::vector<int64_t>{1, 2})->numbers("mean"), ElementsAre(1.0, 2.0));
  EXPECT_EQ(ToString(*complete(std::vector<double>{0.5, 2.0})->Find("mean")), "[0.5, 2]");
  EXPECT_THAT(complete(std::vector<double>{1.0}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("has 1 numbers")));
  EXPECT_THAT(complete(std::vector<double>{1.0, 0.125}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is 0.125")));
}

}  // namespace
}  // namespace penstock
