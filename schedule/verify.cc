// Long ranges. A program repeats its period, so most of a long run is the same over and over, and
// Verify leaves copies of the period out. Let P(k) be the moment when every worker has passed
// exactly k copies of its period, and suppose that
//
//   (1) every program shifts by the same number of microbatches from copy to copy, which is a multiple
//       of those after which the pipelines that they go through in turn start over,
//   (2) the run gets to P(k-1) and P(k) when nobody goes beyond them, and
//   (3) the state at P(k) (machines, channels, what is complete) is that at P(k-1), shifted: the
//       microbatches by the shift, the versions of each stage by its updates in one copy.
//
// The rules of machines and channels do not change under such a shift, so the interleaving that led
// from P(k-1) to P(k) leads on from P(k) to P(k+1), whose state is again the same, and so on: by
// induction all states P(k+n) are shifts of P(k). What is left of the programs after P(k+n) in the
// full schedule is what is left after P(k) in a schedule with n copies fewer (Shorten), shifted. So
// the full schedule runs through, or blocks, or breaks a rule in its rest exactly where the short
// one does (for one interleaving, and because the network is determinate, for all). The peaks in
// each of the copies left out are those in copy k; the sums grow with each by what copy k added.
//
// Where weights are sampled, the versions that microbatches read are no part of the state: it decides nothing but the counts of
// staleness and versions. The samples are functions of the microbatch's number, which is another in
// the short schedule, so these counts are taken over the whole range by themselves (CountDraws).
//
// In a synchronous schedule every step ends drained and k = 2; pipedream with S stages gets there
// when the versions of the warm-up have been replaced, after about S copies.
#include "schedule/verify.h"

#include <algorithm>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "schedule/completeness.h"
#include "schedule/run.h"

namespace penstock {
namespace {

std::vector<StageCounts> CountsOf(const Schedule& schedule, const Interpreter& interpreter) {
  std::vector<StageCounts> counts;
  for (int32_t id = 0; id < schedule.topology.stages(); ++id) {
    const StageId stage(id);
    counts.push_back(interpreter.machine(schedule.topology.worker(stage)).counts(stage));
  }
  return counts;
}

int64_t ActionsOf(const Schedule& schedule) {
  int64_t actions = 0;
  for (const Program& program : schedule.programs) actions += program.size();
  return actions;
}

// The end of a run with channels of one capacity.
struct Outcome {
  bool completes = false;
  std::vector<StageCounts> stages;        // if it completes
  bool larger_channels_may_help = false;  // if not
  std::string blocked;
  int64_t actions_run = 0;
};

absl::StatusOr<Outcome> RunAll(const Schedule& schedule, int32_t channel_capacity) {
  CompletenessCheck check(schedule);
  Interpreter interpreter(schedule, channel_capacity, check);
  PENSTOCK_ASSIGN_OR_RETURN(const bool done, interpreter.RunToEnd());
  Outcome outcome{.completes = done, .actions_run = check.actions()};
  if (done) {
    PENSTOCK_RETURN_IF_ERROR(check.CheckComplete());
    outcome.stages = CountsOf(schedule, interpreter);
  } else {
    outcome.larger_channels_may_help = interpreter.BlockedOnFullChannel();
    outcome.blocked = interpreter.DescribeBlocked();
  }
  return outcome;
}

// The effect of every further copy of the period, once that is always the same.
struct SteadyState {
  int64_t copies = 0;               // run until it was found: the k above
  std::vector<StageCounts> before;  // at P(k-1)
  std::vector<StageCounts> after;   // at P(k)
  int64_t actions_run = 0;
};

std::optional<SteadyState> FindSteadyState(const Schedule& schedule, int32_t channel_capacity) {
  const std::vector<Program>& programs = schedule.programs;
  const int64_t shift = programs.front().shift;
  int64_t repeats = programs.front().repeats;
  // Under any other shift the pipelines would change places.
  if (shift % schedule.topology.cycle != 0) return std::nullopt;
  for (const Program& program : programs) {
    if (program.shift != shift || program.period.empty()) return std::nullopt;
    repeats = std::min(repeats, program.repeats);
  }
  CompletenessCheck check(schedule);
  Interpreter interpreter(schedule, channel_capacity, check);
  SteadyState steady;
  std::vector<int64_t> previous_state;
  const int64_t copies_max = std::min(repeats, int64_t{4} * schedule.topology.stages() + 16);
  for (steady.copies = 1; steady.copies <= copies_max; ++steady.copies) {
    const absl::StatusOr<bool> reached = interpreter.RunToPeriod(steady.copies);
    if (!reached.ok() || !*reached) return std::nullopt;
    const int64_t origin = schedule.range.first + steady.copies * shift;
    std::vector<int64_t> state;
    interpreter.AppendRelativeState(origin, state);
    check.AppendRelativeState(origin, state);
    steady.after = CountsOf(schedule, interpreter);
    if (state == previous_state) {
      steady.actions_run = check.actions();
      return steady;
    }
    previous_state = std::move(state);
    steady.before = std::move(steady.after);
  }
  return std::nullopt;
}

// `schedule` with `copies` copies of the period fewer.
Schedule Shorten(Schedule schedule, int64_t copies) {
  for (Program& program : schedule.programs) {
    program.repeats -= copies;
    for (Action& action : program.epilogue) {
      if (HasMicrobatch(action.kind)) action.microbatch -= copies * program.shift;
    }
  }
  schedule.range.count -= copies * schedule.programs.front().shift;
  return schedule;
}

void AddCopies(int64_t copies, const StalenessCount& before, const StalenessCount& after,
               StalenessCount& total) {
  total.updates += copies * (after.updates - before.updates);
  total.sum += copies * (after.sum - before.sum);
  total.microbatches += copies * (after.microbatches - before.microbatches);
}

// Counts sampled reads over the whole range, microbatch by microbatch. REQUIRES: the schedule
// is right, so that on every stage forwards, W and UPDATE come in the order of the microbatches. How
// they interleave does not matter: what is read and kept follows from the updates alone.
void CountDraws(const Schedule& schedule, StageId stage, StageCounts& counts) {
  VersionLedger versions(schedule.weight_policy, schedule.topology, stage);
  StalenessCount staleness;
  int64_t peak = versions.live();
  for (int64_t m = schedule.range.first; m < schedule.range.end(); ++m) {
    const int64_t read = versions.BeginForward(m);
    const int64_t delay = versions.current() - read;
    ++staleness.updates;
    ++staleness.microbatches;
    staleness.max = std::max(staleness.max, delay);
    staleness.sum += delay;
    versions.EndBackward(read);
    versions.Update(versions.Moves(m));
    peak = std::max(peak, versions.live());
  }
  counts.staleness = staleness;
  counts.versions_live = versions.live();
  counts.versions_peak = peak;
}

absl::Status CountAllDraws(const Schedule& schedule, const VerifyLimits& limits,
                           std::vector<StageCounts>& stages) {
  if (!schedule.weight_policy.draws() || !limits.counts_draws) return absl::OkStatus();
  const auto draws = static_cast<double>(schedule.range.count) * static_cast<double>(stages.size());
  if (draws > static_cast<double>(limits.actions_max)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the delays of ", schedule.range.count, " microbatches on ", stages.size(),
                     " stages are sampled, more than the ", limits.actions_max,
                     " that are counted one by one; put cuts between them"));
  }
  for (size_t s = 0; s < stages.size(); ++s) {
    CountDraws(schedule, StageId(static_cast<int32_t>(s)), stages[s]);
  }
  return absl::OkStatus();
}

// RunAll, leaving out copies of the period where that provably changes nothing.
absl::StatusOr<Outcome> RunShortened(const Schedule& schedule, int32_t channel_capacity,
                                     const VerifyLimits& limits) {
  const std::optional<SteadyState> steady = FindSteadyState(schedule, channel_capacity);
  absl::StatusOr<Outcome> outcome;
  if (steady.has_value()) {
    int64_t omitted = INT64_MAX;
    for (const Program& program : schedule.programs) {
      omitted = std::min(omitted, program.repeats - steady->copies);
    }
    outcome = RunAll(Shorten(schedule, omitted), channel_capacity);
    if (outcome.ok() && outcome->completes) {
      outcome->actions_run += steady->actions_run;
      for (size_t i = 0; i < outcome->stages.size(); ++i) {
        StageCounts& total = outcome->stages[i];
        const StageCounts& before = steady->before[i];
        const StageCounts& after = steady->after[i];
        AddCopies(omitted, before.staleness, after.staleness, total.staleness);
        AddCopies(omitted, before.version_drift, after.version_drift, total.version_drift);
      }
      PENSTOCK_RETURN_IF_ERROR(CountAllDraws(schedule, limits, outcome->stages));
      return outcome;
    }
  }
  // In full: there is no steady state, or there is a mistake and its place shall be named as it is.
  if (ActionsOf(schedule) <= limits.actions_max) return RunAll(schedule, channel_capacity);
  if (!steady.has_value()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the programs have no steady state and ", ActionsOf(schedule),
                     " actions, more than the ", limits.actions_max, " that are run one by one"));
  }
  if (!outcome.ok()) {
    return Annotate(outcome.status(), "numbered as if the range were shorter");
  }
  return outcome;
}

// Finds the smallest sufficient capacity: doubling, then bisection. More capacity never hurts a
// Kahn network, and where nobody waits for a full channel it does not help either. A long range whose steady
// state the narrow channels hide is tried with wider ones, too: all workers can be exactly at the
// ends of their periods only if what is on its way then has room.
template <typename RunWithCapacity>
absl::StatusOr<VerifyReport> VerifyWith(const Schedule& schedule, const VerifyLimits& limits,
                                        RunWithCapacity run) {
  PENSTOCK_RETURN_IF_ERROR(CheckSchedule(schedule));
  VerifyReport report{.actions = ActionsOf(schedule)};
  int32_t blocks = 0;  // the largest capacity known to block
  int32_t completes = 1;
  absl::StatusOr<Outcome> outcome;
  while (true) {
    outcome = run(completes);
    const bool too_long = absl::IsResourceExhausted(outcome.status());
    if (!too_long || completes >= limits.channel_capacity) {
      PENSTOCK_RETURN_IF_ERROR(outcome.status());
      report.actions_run += outcome->actions_run;
      if (outcome->completes) break;
    } else {
      outcome = Outcome{.larger_channels_may_help = true};
    }
    if (!outcome->larger_channels_may_help) {
      return absl::FailedPreconditionError(absl::StrCat("deadlock: ", outcome->blocked));
    }
    if (completes >= limits.channel_capacity) {
      return absl::FailedPreconditionError(
          absl::StrCat("deadlock with channels of ", completes, " messages: ", outcome->blocked));
    }
    blocks = completes;
    completes = std::min(2 * completes, limits.channel_capacity);
  }
  while (completes - blocks > 1) {
    const int32_t middle = blocks + (completes - blocks) / 2;
    const absl::StatusOr<Outcome> attempt = run(middle);
    if (absl::IsResourceExhausted(attempt.status())) {
      blocks = middle;
      continue;
    }
    PENSTOCK_RETURN_IF_ERROR(attempt.status());
    report.actions_run += attempt->actions_run;
    (attempt->completes ? completes : blocks) = middle;
  }
  report.channel_capacity_min = completes;
  report.stages = std::move(outcome->stages);
  return report;
}

}  // namespace

bool IsDeadlock(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) && absl::StartsWith(status.message(), "deadlock");
}

absl::StatusOr<VerifyReport> Verify(const Schedule& schedule, const VerifyLimits& limits) {
  return VerifyWith(schedule, limits, [&](int32_t channel_capacity) {
    return RunShortened(schedule, channel_capacity, limits);
  });
}

absl::StatusOr<VerifyReport> VerifyAndDraw(const Schedule& schedule, const VerifyLimits& limits) {
  absl::StatusOr<VerifyReport> report = Verify(schedule, limits);
  const bool broken = report.status().code() == absl::StatusCode::kFailedPrecondition;
  if (!broken || ActionsOf(schedule) > limits.actions_max) return report;
  CompletenessCheck check(schedule);
  Interpreter interpreter(schedule, limits.channel_capacity, check);
  const absl::StatusOr<bool> done = interpreter.RunToEnd();
  const std::string drawing = interpreter.DrawFailure();
  if (done.ok() || drawing.empty()) return report;
  return absl::FailedPreconditionError(absl::StrCat(done.status().message(), "\n", drawing));
}

absl::StatusOr<VerifyReport> VerifyWithoutShortcut(const Schedule& schedule,
                                                   const VerifyLimits& limits) {
  return VerifyWith(schedule, limits,
                    [&](int32_t channel_capacity) { return RunAll(schedule, channel_capacity); });
}

}  // namespace penstock
