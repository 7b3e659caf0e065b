// Ranges of the numbers that families are made of.
//
// Plain functions. Errors: InvalidArgument starting with the field.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace penstock {

// "heads: is 5; expected a whole number from 1 to 4".
absl::Status CheckRange(absl::string_view field, int64_t value, int64_t max);
// "dropout: is 1; expected a number of at least 0 and below 1".
absl::Status CheckProbability(absl::string_view field, double value);

}  // namespace penstock
