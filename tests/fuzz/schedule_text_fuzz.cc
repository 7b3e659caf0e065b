// Schedules as text, PyTorch's CSV among them: one whose form is right is printed and read as the same, with whole
// backwards merged as well, and the verifier judges it without coming to harm.
#include <algorithm>
#include <string>

#include "schedule/pipelining_csv.h"
#include "schedule/text.h"
#include "schedule/verify.h"
#include "tests/fuzz/fuzz_target.h"

namespace penstock {
namespace {

// So that one input takes milliseconds: the verifier walks through what is short in the text.
bool IsQuicklyVerified(const Schedule& schedule) {
  constexpr int64_t kActionsMax = 2000;
  return schedule.range.count <= 256 && schedule.topology.stages() <= 64 &&
         std::all_of(schedule.programs.begin(), schedule.programs.end(),
                     [](const Program& program) { return program.size() <= kActionsMax; });
}

}  // namespace
}  // namespace penstock

PENSTOCK_FUZZ_TARGET(schedule_text) {
  using namespace penstock;
  const absl::string_view text = FuzzBytes(data, size).rest();
  const std::string note = NoteOnOldNames(text);
  const absl::StatusOr<Schedule> schedule = ParseSchedule(text);
  if (!schedule.ok() || !CheckSchedule(*schedule).ok()) return 0;
  FuzzAccepted();
  PENSTOCK_CHECK(schedule->range.first >= 0 && schedule->range.end() <= kMicrobatchMax);
  const std::string printed = PrintSchedule(*schedule);
  for (const bool merged : {false, true}) {
    const absl::StatusOr<Schedule> again =
        ParseSchedule(PrintSchedule(*schedule, {.merge_backward = merged}));
    PENSTOCK_CHECK(again.ok() && CheckSchedule(*again).ok());
    PENSTOCK_CHECK(PrintSchedule(*again) == printed);
  }
  if (!IsQuicklyVerified(*schedule)) return 0;
  const bool complete = Verify(*schedule).ok();
  const absl::StatusOr<std::string> csv = PrintPipeliningCsv(*schedule);
  // What has no pass at all leaves no line.
  if (complete && csv.ok()) PENSTOCK_CHECK(ParseSchedule(*csv).ok());
  return 0;
}
