// What the two residual branches of a transformer block have in common.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "model/op.h"
#include "model/ops/parameters.h"

namespace penstock::ops {

inline constexpr AttributeSpec kBranchDropout = {
    "dropout", AttributeKind::kNumber, "the probability to drop a value in training", "0", 0.0,
    0.999999};
inline constexpr AttributeSpec kExpansionDeviation = {
    .name = "deviation",
    .kind = AttributeKind::kNumber,
    .help = "the deviation of the expansion's first weights",
    .otherwise = "0.02",
    .min = 0.0,
    .max = 1e6,
    .use = AttributeUse::kInitialWeights};
inline constexpr AttributeSpec kProjectionDeviation = {
    .name = "projection_deviation",
    .kind = AttributeKind::kNumber,
    .help = "the deviation of the projection's first weights",
    .otherwise = "0.02",
    .min = 0.0,
    .max = 1e6,
    .use = AttributeUse::kInitialWeights};

inline constexpr absl::string_view kBranchLayouts[] = {"inputs_first", "outputs_first"};
inline constexpr AttributeSpec kBranchLayout = {
    .name = "layout",
    .kind = AttributeKind::kWord,
    .help = "of both weights: inputs_first as GPT-2 has it, or outputs_first as PyTorch's Linear",
    .otherwise = "inputs_first",
    .words = kBranchLayouts,
    .use = AttributeUse::kKernelsAddedLater};

// What the layer norm of a branch adds to the variance.
inline constexpr double kBranchEpsilon = 1e-5;

struct BranchNames {
  absl::string_view norm, expansion, projection;
};

// Parameters in order: norm gain and bias, expansion weight and bias, projection weight and bias.
inline absl::StatusOr<OpResult> InferBranch(const OpArguments& a, const BranchNames& names,
                                            int64_t expanded, int64_t projected) {
  const int64_t width = a.attributes.integer("width");
  const ValueType& input = a.inputs[0];
  if (input.dtype != DType::kF32 || input.dims.size() != 2 || input.dims[1] != width) {
    return ShapesDoNotFit(a.inputs, absl::StrCat("f32 [time, ", width, "], the width"));
  }
  const bool outputs_first = a.attributes.word("layout") == "outputs_first";
  const auto matrix = [&](absl::string_view name, int64_t inputs, int64_t outputs,
                          absl::string_view deviation) {
    return OfMap(Matrix(absl::StrCat(name, ".weight"),
                        outputs_first ? std::vector<int64_t>{outputs, inputs}
                                      : std::vector<int64_t>{inputs, outputs},
                        a.attributes.number(deviation)),
                 inputs);
  };
  const auto bias = [](absl::string_view name, int64_t inputs, int64_t outputs) {
    return OfMap(Bias(absl::StrCat(name, ".bias"), outputs), inputs);
  };
  return OpResult{.output = input,
                  .parameters = {Gain(absl::StrCat(names.norm, ".weight"), width),
                                 Bias(absl::StrCat(names.norm, ".bias"), width),
                                 matrix(names.expansion, width, expanded, "deviation"),
                                 bias(names.expansion, width, expanded),
                                 matrix(names.projection, projected, width, "projection_deviation"),
                                 bias(names.projection, projected, width)}};
}

}  // namespace penstock::ops
