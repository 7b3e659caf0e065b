#include "model/families/ranges.h"

#include "absl/strings/str_cat.h"

namespace penstock {

absl::Status CheckRange(absl::string_view field, int64_t value, int64_t max) {
  if (value >= 1 && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, ": is ", value,
                                                 value == 0 ? " or missing" : "",
                                                 "; expected a whole number from 1 to ", max));
}

absl::Status CheckProbability(absl::string_view field, double value) {
  if (value >= 0.0 && value < 1.0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": is ", value, "; expected a number of at least 0 and below 1"));
}

}  // namespace penstock
