#include "job/run_schedule.h"

#include <set>

#include "base/status.h"
#include "job/agreement.h"
#include "schedule/digest.h"

namespace penstock {

MicrobatchRange RangeOfSteps(const ResolvedJob& job, int64_t from_step, int64_t to_step) {
  return {.first = from_step * job.microbatches, .count = (to_step - from_step) * job.microbatches};
}

absl::StatusOr<std::string> DigestOfRun(const ResolvedJob& job, const ScheduleOptions& options,
                                        int64_t first_step, absl::Span<const Cut> cuts) {
  ScheduleDigest digest;
  digest.AddText(AgreementOf(job));
  std::set<int64_t> added;  // lengths
  bool evaluation_added = false;
  const MicrobatchRange evaluation = {.first = 0, .count = job.validation_batches};
  int64_t from_step = first_step;
  for (const Cut& cut : cuts) {
    const MicrobatchRange range = RangeOfSteps(job, from_step, cut.step);
    if (added.insert(range.count).second) {
      PENSTOCK_ASSIGN_OR_RETURN(const Schedule schedule,
                                BuildSchedule(*job.method, options, range));
      digest.Add(schedule);
    } else {
      digest.AddAgain("train", range);
    }
    if (cut.validate && !evaluation_added) {
      digest.Add(BuildEvaluation(options.topology, evaluation));
      evaluation_added = true;
    } else if (cut.validate) {
      digest.AddAgain("evaluate", evaluation);
    }
    from_step = cut.step;
  }
  return digest.Hex();
}

}  // namespace penstock
