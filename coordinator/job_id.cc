#include "coordinator/job_id.h"

#include "absl/strings/numbers.h"

namespace penstock {
namespace {

// Without vowels and digits, so that they are neither words nor numbers.
constexpr absl::string_view kIdLetters = "bcdfghjkmnpqrstvwxyz";
constexpr size_t kIdLettersCount = 5;  // of 3.2 million

absl::string_view WithoutLetters(absl::string_view job_id) {
  const size_t dash = job_id.rfind('-');
  if (dash == absl::string_view::npos) return job_id;
  const absl::string_view last = job_id.substr(dash + 1);
  const bool is_drawn = last.size() == kIdLettersCount &&
                        last.find_first_not_of(kIdLetters) == absl::string_view::npos;
  return is_drawn ? job_id.substr(0, dash) : job_id;
}

}  // namespace

std::string LettersOf(uint32_t drawn) {
  std::string letters;
  for (size_t i = 0; i < kIdLettersCount; ++i) {
    letters += kIdLetters[drawn % kIdLetters.size()];
    drawn /= kIdLetters.size();
  }
  return letters;
}

std::optional<NumberedName> ParseJobId(absl::string_view job_id) {
  const absl::string_view numbered = WithoutLetters(job_id);
  const size_t dash = numbered.rfind('-');
  if (dash == absl::string_view::npos) return std::nullopt;
  NumberedName parts = {.name = numbered.substr(0, dash)};
  const absl::string_view digits = numbered.substr(dash + 1);
  if (digits.find_first_not_of("0123456789") != absl::string_view::npos ||
      !absl::SimpleAtoi(digits, &parts.number)) {
    return std::nullopt;
  }
  return parts;
}

}  // namespace penstock
