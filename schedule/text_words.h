// The words of the text form that printing and parsing share, and those that its parts print.
#pragma once

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"
#include "schedule/schedule.h"

namespace penstock {

inline constexpr absl::string_view kScheduleTextHeader = "# penstock schedule 1";

inline bool IsScheduleNameCharacter(char c) {
  return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-';
}

inline absl::string_view QuantityName(ReduceGroup::Quantity quantity) {
  return quantity == ReduceGroup::Quantity::kGradient ? "gradient" : "weight";
}
inline constexpr ReduceGroup::Operation kReduceOperations[] = {
    ReduceGroup::Operation::kSum, ReduceGroup::Operation::kMean, ReduceGroup::Operation::kCopy};
inline absl::string_view OperationName(ReduceGroup::Operation operation) {
  switch (operation) {
    case ReduceGroup::Operation::kSum:
      return "sum";
    case ReduceGroup::Operation::kMean:
      return "mean";
    case ReduceGroup::Operation::kCopy:
      return "copy";
  }
  return "";
}

// Appends the actions with commas between them; `merge_backward`: as ScheduleTextOptions has it.
void AppendActions(const ActionList& list, bool merge_backward, std::string& text);

}  // namespace penstock
