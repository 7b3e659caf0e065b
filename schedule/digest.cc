#include "schedule/digest.h"

#include "absl/strings/str_cat.h"
#include "schedule/lower.h"
#include "schedule/text.h"

namespace penstock {

ScheduleDigest::ScheduleDigest() {
  sha256_.Update(absl::StrCat("lowering ", kLoweringVersion, "\n"));
}

void ScheduleDigest::Add(const Schedule& schedule) { sha256_.Update(PrintSchedule(schedule)); }

void ScheduleDigest::AddAgain(absl::string_view name, MicrobatchRange range) {
  sha256_.Update(absl::StrCat("again ", name, " ", range.first, "+", range.count, "\n"));
}

std::string DigestOf(const Schedule& schedule) {
  ScheduleDigest digest;
  digest.Add(schedule);
  return digest.Hex();
}

}  // namespace penstock
