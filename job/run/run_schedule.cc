#include "job/run/run_schedule.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/status.h"
#include "job/run/agreement.h"
#include "job/run/recorded.h"
#include "schedule/digest.h"
#include "schedule/ready_order.h"
#include "schedule/verify.h"
#include "schedule/warm_up.h"

namespace penstock {
namespace {

// The versions that a stage keeps at most if it may have `in_flight` microbatches there at any time.
int64_t VersionsMax(const ResolvedJob& job, const ScheduleOptions& options, StageId stage,
                    int64_t in_flight) {
  const WeightPolicy policy = WeightPolicyOf(*job.method, options);
  const int64_t replicas = options.topology[stage].replicas;
  const int64_t of_update = std::max(job.microbatches_of_update(job.steps), replicas);
  if (policy.lag > 0 && policy.batch != of_update) {
    // What is read lacks the updates of the first stage that are late, and what its own update in progress would add.
    const int64_t lacks = (policy.lag + 1) * policy.batch - 1;
    return (lacks + of_update - 1) / of_update + 1;
  }
  return policy.weights->versions_max(policy, in_flight, of_update / replicas);
}

// A stage gets as many microbatches in flight as the job says, and no edge can be full then.
void BoundAnyOrder(const ResolvedJob& job, const ScheduleOptions& options, int32_t edge_capacity,
                   std::vector<StageCounts>& counts) {
  for (size_t id = 0; id < counts.size(); ++id) {
    StageCounts& stage = counts[id];
    stage.activations_peak =
        std::min<int64_t>(InFlightMax(job, stage.activations_peak), edge_capacity);
    stage.versions_peak =
        VersionsMax(job, options, StageId(static_cast<int32_t>(id)), stage.activations_peak);
  }
}

}  // namespace

MicrobatchRange RangeOfSteps(const ResolvedJob& job, int64_t from_step, int64_t to_step) {
  return {.first = from_step * job.microbatches, .count = (to_step - from_step) * job.microbatches};
}

RangeKey KeyOfSteps(const ResolvedJob& job, int64_t from_step, int64_t to_step) {
  const bool drains = job.DrainsAfter(from_step);
  return {.drains = drains,
          .steps = to_step - from_step,
          .drawn_from = job.draws() && !drains ? from_step : 0};
}

absl::StatusOr<Schedule> ScheduleOfSteps(const ResolvedJob& job, const ScheduleOptions& options,
                                         int64_t from_step, int64_t to_step) {
  const Method& method = job.MethodAfter(from_step);
  const MicrobatchRange range = RangeOfSteps(job, from_step, to_step);
  if (&method == job.method) return BuildSchedule(method, options, range);
  ScheduleOptions synchronous = options;
  synchronous.microbatches_per_update.reset();
  synchronous.weights = nullptr;
  synchronous.delta.reset();
  CombineGradientsAs(method, synchronous.topology);
  return BuildSchedule(method, synchronous, range);
}

absl::StatusOr<std::vector<StageLateness>> LatenessOf(const ResolvedJob& job,
                                                      const ScheduleOptions& options) {
  if (job.method->synchronous) {
    return std::vector<StageLateness>(options.topology.stages());
  }
  if (const WeightPolicy policy = WeightPolicyOf(*job.method, options); policy.draws()) {
    return std::vector<StageLateness>(options.topology.stages(), {.staleness = policy.lag});
  }
  // Until the first microbatch is back the pipeline fills; two updates later all is as it stays. With
  // replicas of stages at most four times as many microbatches as there are workers are on their way.
  const int64_t deeper = options.topology.form == Topology::Form::kReplicas ? 4 : 1;
  const int64_t steps = deeper * options.topology.stages() / job.microbatches + 4;
  PENSTOCK_ASSIGN_OR_RETURN(
      const Schedule schedule,
      BuildSchedule(*job.method, options, {.first = 0, .count = steps * job.microbatches}));
  PENSTOCK_ASSIGN_OR_RETURN(const VerifyReport report, Verify(schedule));
  std::vector<StageLateness> lateness;
  for (const StageCounts& counts : report.stages) {
    lateness.push_back({.staleness = counts.staleness.max,
                        .drift = counts.version_drift.max,
                        .rate_delay = static_cast<double>(counts.staleness.max)});
  }
  const bool equally_late =
      job.method->updates_each_microbatch || job.weights_read().old_reads != OldReads::kNone;
  const std::vector<int64_t> ahead = MicrobatchesAhead(ReplicasOf(options.topology));
  for (int32_t s = 0; s < options.topology.stages() && !equally_late; ++s) {
    const int64_t after = ahead[options.topology[StageId(s)].place];
    lateness[s].rate_delay = static_cast<double>(2 * after + 1) /
                             static_cast<double>(job.microbatches_of_update(job.steps));
  }
  return lateness;
}

absl::StatusOr<std::vector<StageCounts>> CountsOfRun(const ResolvedJob& job,
                                                     const ScheduleOptions& options,
                                                     int64_t first_step, absl::Span<const Cut> cuts,
                                                     int32_t edge_capacity) {
  // Ranges of one length differ by a shift only, so one of them is verified for all.
  std::map<RangeKey, VerifyReport> reports;
  std::vector<StageCounts> counts(options.topology.stages());
  int64_t from_step = first_step;
  for (const Cut& cut : cuts) {
    const RangeKey key = KeyOfSteps(job, from_step, cut.step);
    if (reports.count(key) == 0) {
      PENSTOCK_ASSIGN_OR_RETURN(const Schedule schedule,
                                ScheduleOfSteps(job, options, from_step, cut.step));
      PENSTOCK_ASSIGN_OR_RETURN(reports[key],
                                Verify(schedule, {.channel_capacity = edge_capacity}));
    }
    from_step = cut.step;
    const VerifyReport& report = reports[key];
    for (size_t s = 0; s < counts.size(); ++s) AddRange(report.stages[s], counts[s]);
  }
  if (job.order == Order::kRecorded) BoundAnyOrder(job, options, edge_capacity, counts);
  return counts;
}

absl::StatusOr<std::string> DigestOfRun(const ResolvedJob& job, const ScheduleOptions& options,
                                        int64_t first_step, absl::Span<const Cut> cuts) {
  ScheduleDigest digest;
  digest.AddText(AgreementOf(job));
  std::set<RangeKey> added;
  bool evaluation_added = false;
  const MicrobatchRange evaluation = {.first = 0, .count = job.validation_batches};
  int64_t from_step = first_step;
  for (const Cut& cut : cuts) {
    if (added.insert(KeyOfSteps(job, from_step, cut.step)).second) {
      PENSTOCK_ASSIGN_OR_RETURN(const Schedule schedule,
                                ScheduleOfSteps(job, options, from_step, cut.step));
      digest.Add(schedule);
    } else {
      digest.AddAgain("train", RangeOfSteps(job, from_step, cut.step));
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
