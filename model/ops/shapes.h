// What ops ask of the shapes of their inputs.
#pragma once

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "model/op.h"

namespace penstock::ops {

// True for f32 with `dims_min` dimensions or more.
inline bool IsF32(const ValueType& type, size_t dims_min = 0) {
  return type.dtype == DType::kF32 && type.dims.size() >= dims_min;
}

// A type whose last dimension is `width`.
inline ValueType WithWidth(ValueType type, int64_t width) {
  type.dims.back() = width;
  return type;
}

// One whole number for a sample: how many of its time steps count.
inline bool AreLengths(const ValueType& type) {
  return type.dtype == DType::kI32 && type.dims.empty();
}

// Whether targets i32 [...] belong to logits f32 [..., classes].
inline bool AreTargetsOf(const ValueType& logits, const ValueType& targets) {
  return IsF32(logits, 1) && targets.dtype == DType::kI32 &&
         targets.dims.size() + 1 == logits.dims.size() &&
         std::equal(targets.dims.begin(), targets.dims.end(), logits.dims.begin());
}

// Of ops whose time is that of reading and writing memory.
inline OpCost NoProducts(const OpArguments& /*arguments*/) { return {}; }

// Errors: InvalidArgument, unless all inputs are f32 of one shape.
inline absl::StatusOr<OpResult> InferElementwise(const OpArguments& a) {
  const bool all_equal = std::all_of(a.inputs.begin(), a.inputs.end(),
                                     [&](const ValueType& type) { return type == a.inputs[0]; });
  if (!all_equal || !IsF32(a.inputs[0])) {
    return ShapesDoNotFit(a.inputs, a.inputs.size() == 1 ? "f32" : "f32 of equal shapes");
  }
  return OpResult{.output = a.inputs[0]};
}

}  // namespace penstock::ops
