// ParseLibsvm: data sets of the LIBSVM collection, as a logistic regression.
//
// A line is a row: a label, then INDEX:VALUE pairs with indices from 1 in rising order; what is not named
// is 0. Blank lines, blanks at the ends of lines, and "\r\n" are fine. Labels are 0 or -1 and 1.
//
// A pure function.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "studies/theory/problem.h"

namespace penstock {

// Features are kept dense, so their number is limited: rows times the largest index. The optimum is
// found with a Hessian of as many rows and columns as there are features.
inline constexpr int64_t kLibsvmValuesMax = 64 << 20;
inline constexpr int64_t kLibsvmIndexMax = 1 << 12;

// `name` is the problem's and stands in front of errors; the optimum is not filled in.
// Errors: InvalidArgument with line, column, what was expected and what came.
absl::StatusOr<Problem> ParseLibsvm(absl::string_view text, absl::string_view name, double l2);

}  // namespace penstock
