// y = x W + b over the last dimension.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "model/ops/list.h"
#include "model/ops/parameters.h"
#include "model/ops/shapes.h"

namespace penstock::ops {
namespace linear {
namespace {

constexpr absl::string_view kLayouts[] = {"outputs_first", "inputs_first"};
constexpr absl::string_view kInits[] = {"uniform", "normal", "zeros"};

constexpr AttributeSpec kAttributes[] = {
    {"outputs", AttributeKind::kInteger, "the size of the last dimension of the result"},
    {"bias", AttributeKind::kFlag, "whether a bias is added", "true"},
    {.name = "layout",
     .kind = AttributeKind::kWord,
     .help = "of the weight: outputs_first as PyTorch's Linear has it, or inputs_first",
     .otherwise = "outputs_first",
     .words = kLayouts},
    {.name = "init",
     .kind = AttributeKind::kWord,
     .help = "of the weight: uniform below 1/sqrt(inputs), the bias too, as in PyTorch; normal "
             "with a bias of zeros; or zeros",
     .otherwise = "uniform",
     .words = kInits,
     .use = AttributeUse::kInitialWeights},
    BoundSpec("where init is uniform: of the first weights on both sides; 0: 1/sqrt(inputs)"),
    {.name = "deviation",
     .kind = AttributeKind::kNumber,
     .help = "of the first weights, where init is normal",
     .otherwise = "0.02",
     .min = 0.0,
     .max = 1e6,
     .use = AttributeUse::kInitialWeights},
};

absl::StatusOr<OpResult> Infer(const OpArguments& a) {
  const ValueType& input = a.inputs[0];
  if (!IsF32(input, 1)) return ShapesDoNotFit(a.inputs, "f32 [..., inputs]");
  const int64_t inputs = input.dims.back();
  const int64_t outputs = a.attributes.integer("outputs");
  const bool outputs_first = a.attributes.word("layout") == "outputs_first";
  const bool is_uniform = a.attributes.word("init") == "uniform";
  const double given = a.attributes.number("bound");
  const double bound = given > 0.0 ? given : 1.0 / std::sqrt(static_cast<double>(inputs));

  OpResult result = {.output = WithWidth(input, outputs)};
  ParameterSpec weight = Matrix(
      "weight",
      outputs_first ? std::vector<int64_t>{outputs, inputs} : std::vector<int64_t>{inputs, outputs},
      a.attributes.number("deviation"));
  ParameterSpec bias = Bias("bias", outputs);
  if (a.attributes.word("init") == "zeros") {
    weight.init = ParameterSpec::Init::kZeros;
  } else {
    weight = OfMap(std::move(weight), inputs);
    bias = OfMap(std::move(bias), inputs);
  }
  result.parameters.push_back(is_uniform ? Uniform(std::move(weight), bound) : std::move(weight));
  if (a.attributes.flag("bias")) {
    result.parameters.push_back(is_uniform ? Uniform(std::move(bias), bound) : std::move(bias));
  }
  return result;
}

OpCost Cost(const OpArguments& a) {
  const auto inputs = static_cast<double>(a.inputs[0].dims.back());
  const double rows = static_cast<double>(a.inputs[0].elements()) / inputs;
  const double product =
      ProductFlops(rows, inputs, static_cast<double>(a.attributes.integer("outputs")));
  return {product, product, product};
}

}  // namespace
}  // namespace linear

constinit const Op kLinear = {
    .name = "linear",
    .described_as = "linear",
    .help = "a matrix product over the last dimension, then a bias",
    .attributes = linear::kAttributes,
    .infer = linear::Infer,
    .cost = linear::Cost,
};

}  // namespace penstock::ops
