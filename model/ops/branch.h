// What the two residual branches of a transformer block have in common.
#pragma once

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
  const double deviation = a.attributes.number("deviation");
  const double projection_deviation = a.attributes.number("projection_deviation");
  return OpResult{
      .output = input,
      .parameters = {Gain(absl::StrCat(names.norm, ".weight"), width),
                     Bias(absl::StrCat(names.norm, ".bias"), width),
                     Matrix(absl::StrCat(names.expansion, ".weight"), {width, expanded}, deviation),
                     Bias(absl::StrCat(names.expansion, ".bias"), expanded),
                     Matrix(absl::StrCat(names.projection, ".weight"), {projected, width},
                            projection_deviation),
                     Bias(absl::StrCat(names.projection, ".bias"), width)}};
}

}  // namespace penstock::ops
