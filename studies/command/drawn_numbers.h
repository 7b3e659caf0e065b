// The file of DrawnNumbers: what studies/theory/draw_numbers.py writes.
//
// It is safetensors, all F64: "features" [rows, width], "targets" [rows] of 0 and 1, and for each number of stages S "noise.S"
// [numbers]; in its metadata "l2", and "published.S" where that is known.
//
// A plain function.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "studies/theory/studies.h"

namespace penstock {

// `name`: of the file, for errors and results. Errors: DataLoss as ParseSafetensors; InvalidArgument naming what is missing, or
// of another type or shape.
absl::StatusOr<DrawnNumbers> ParseDrawnNumbers(absl::string_view file, const std::string& name);

}  // namespace penstock
