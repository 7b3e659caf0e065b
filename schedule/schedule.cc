#include "schedule/schedule.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "schedule/block_draws.h"

namespace penstock {
namespace {

// The largest microbatch of a list; 0 if it has none.
int64_t LargestMicrobatch(const ActionList& list) {
  int64_t largest = 0;
  for (const Action& action : list) largest = std::max(largest, action.microbatch);
  return largest;
}

absl::Status CheckProgram(const Program& program, int32_t worker) {
  const auto error = [worker](absl::string_view problem) {
    return absl::InvalidArgumentError(absl::StrCat("the program of worker ", worker, " ", problem));
  };
  const auto period_size = static_cast<int64_t>(program.period.size());
  if (program.repeats < 0 || program.shift < 0) return error("has a negative repeat or shift");
  if (program.repeats >
      kMicrobatchMax / std::max<int64_t>(1, std::max(period_size, program.shift))) {
    return error(absl::StrCat("repeats too often: ", program.repeats, " times"));
  }
  const int64_t shifted = program.repeats * program.shift;
  const int64_t largest =
      std::max({LargestMicrobatch(program.prologue), LargestMicrobatch(program.epilogue),
                LargestMicrobatch(program.period)});
  if (largest >= kMicrobatchMax - shifted) {
    return error(absl::StrCat("reaches microbatch ", largest, ", shifted by up to ", shifted,
                              "; expected numbers below ", kMicrobatchMax));
  }
  if (program.size() == 0 || program.At(program.size() - 1).kind != ActionKind::kFlush) {
    return error("does not end with FLUSH");
  }
  return absl::OkStatus();
}

}  // namespace

absl::string_view CompletenessName(Completeness completeness) {
  switch (completeness) {
    case Completeness::kTrain:
      return "train";
    case Completeness::kEvaluate:
      return "evaluate";
  }
  PENSTOCK_CHECK(false);
}

absl::Status CheckDraws(const WeightPolicy& policy, const Topology& topology) {
  if (!policy.draws()) return absl::OkStatus();
  if (topology.form == Topology::Form::kReplicas) {
    return absl::InvalidArgumentError(
        "where weights are sampled, an update of one stage follows every single microbatch, so "
        "that "
        "replicas have nothing to add up");
  }
  if (topology.pipelines > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("weights are sampled from the updates of one model, but there are ",
                     topology.pipelines, " pipelines"));
  }
  const int64_t least = topology.stages() - 1;
  if (policy.lag >= least) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the greatest delay is ", policy.lag, ", but on ", topology.stages(),
      " stages the forward of the first is ", least, " updates before the microbatch's own; ",
      least, " or more would do, and PipeDream's own is ", PipelineDelay(topology.stages())));
}

absl::Status CheckRange(const MicrobatchRange& range) {
  if (range.first >= 0 && range.count >= 1 && range.first < kMicrobatchMax &&
      range.count <= kMicrobatchMax - range.first) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("a range must hold at least one microbatch, numbered below ", kMicrobatchMax,
                   ", got ", range.count, " from ", range.first));
}

absl::Status CheckSchedule(const Schedule& schedule) {
  PENSTOCK_RETURN_IF_ERROR(CheckTopology(schedule.topology));
  PENSTOCK_RETURN_IF_ERROR(CheckDraws(schedule.weight_policy, schedule.topology));
  const MicrobatchRange& range = schedule.range;
  PENSTOCK_RETURN_IF_ERROR(CheckRange(range));
  if (static_cast<int32_t>(schedule.programs.size()) != schedule.topology.workers) {
    return absl::InvalidArgumentError(absl::StrCat("there are ", schedule.programs.size(),
                                                   " programs for ", schedule.topology.workers,
                                                   " workers"));
  }
  for (int32_t worker = 0; worker < schedule.topology.workers; ++worker) {
    PENSTOCK_RETURN_IF_ERROR(CheckProgram(schedule.programs[worker], worker));
  }
  return absl::OkStatus();
}

}  // namespace penstock
