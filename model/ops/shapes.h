// What ops ask of the shapes of their inputs.
#pragma once

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
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

// A whole number for each of a sample's time steps.
inline bool AreOfSteps(const ValueType& type, int64_t time) {
  return type.dtype == DType::kI32 && type.dims.size() == 1 && type.dims[0] == time;
}

// Whether targets i32 [...] belong to logits f32 [..., classes].
inline bool AreTargetsOf(const ValueType& logits, const ValueType& targets) {
  return IsF32(logits, 1) && targets.dtype == DType::kI32 &&
         targets.dims.size() + 1 == logits.dims.size() &&
         std::equal(targets.dims.begin(), targets.dims.end(), logits.dims.begin());
}

// For what an op keeps of a sample beside its inputs and its output: `what`, [rows, columns].
// Errors: InvalidArgument, if it is larger than a value may be.
inline absl::Status CheckKept(absl::string_view what, int64_t rows, int64_t columns) {
  // Counted in a double because it may not fit an integer.
  const double elements = static_cast<double>(rows) * static_cast<double>(columns);
  if (elements <= static_cast<double>(kValueElementsMax)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "keeps %s [%d, %d] of a sample, %.3g elements; at most %.3g are possible: use smaller sizes",
      std::string(what), rows, columns, elements, static_cast<double>(kValueElementsMax)));
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
