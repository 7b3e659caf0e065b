#include "job/run_schedule.h"

#include "base/status.h"
#include "schedule/digest.h"

namespace penstock {

MicrobatchRange RangeOfSteps(const ResolvedJob& job, int64_t from_step, int64_t to_step) {
  return {.first = from_step * job.microbatches, .count = (to_step - from_step) * job.microbatches};
}

absl::StatusOr<std::string> DigestOfRun(const ResolvedJob& job, const ScheduleOptions& options,
                                        int64_t first_step, absl::Span<const Cut> cuts) {
  ScheduleDigest digest;
  int64_t from_step = first_step;
  for (const Cut& cut : cuts) {
    PENSTOCK_ASSIGN_OR_RETURN(
        const Schedule schedule,
        BuildSchedule(*job.method, options, RangeOfSteps(job, from_step, cut.step)));
    digest.Add(schedule);
    if (cut.validate) {
      digest.Add(BuildEvaluation(options.topology, {.first = 0, .count = job.validation_batches}));
    }
    from_step = cut.step;
  }
  return digest.Hex();
}

}  // namespace penstock
