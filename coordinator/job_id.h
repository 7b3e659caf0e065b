// The IDs of jobs: "gpt-12-kzvpt" is the twelfth job named gpt, with letters that were drawn for it, so that no job has
// the ID of an earlier one although the coordinator has lost its records. IDs of old records have no letters.
//
// Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace penstock {

// The letters of a drawn number.
std::string LettersOf(uint32_t drawn);

struct NumberedName {
  absl::string_view name;  // of the job, part of the ID
  int64_t number = 0;
};

// Takes an ID apart. Absent: it is none.
std::optional<NumberedName> ParseJobId(absl::string_view job_id);

}  // namespace penstock
