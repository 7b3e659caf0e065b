// Helpers for absl::Status, the only way Penstock reports errors.
//
// A message says who, where, what was expected, what came, and what to do. A caller that knows more
// than its callee adds it in front with Annotate.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace penstock {

// Returns `status` with "`context`: " in front of its message; OK stays OK.
absl::Status Annotate(const absl::Status& status, absl::string_view context);

}  // namespace penstock

#define PENSTOCK_CONCAT_INNER(a, b) a##b
#define PENSTOCK_CONCAT(a, b) PENSTOCK_CONCAT_INNER(a, b)

// Returns from the enclosing function when `expression` is an error.
#define PENSTOCK_RETURN_IF_ERROR(expression)      \
  do {                                            \
    absl::Status penstock_status_ = (expression); \
    if (!penstock_status_.ok()) [[unlikely]] {    \
      return penstock_status_;                    \
    }                                             \
  } while (false)

// Assigns the value of a StatusOr to `target` (which may be a declaration), or returns its error.
#define PENSTOCK_ASSIGN_OR_RETURN(target, expression) \
  PENSTOCK_ASSIGN_OR_RETURN_IMPL(PENSTOCK_CONCAT(penstock_result_, __LINE__), target, expression)
#define PENSTOCK_ASSIGN_OR_RETURN_IMPL(result, target, expression) \
  auto result = (expression);                                      \
  if (!result.ok()) [[unlikely]] {                                 \
    return result.status();                                        \
  }                                                                \
  target = std::move(result).value()
