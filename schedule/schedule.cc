#include "schedule/schedule.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
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
  if (program.size() == 0 || program.At(program.size() - 1).op != Op::kFlush) {
    return error("does not end with FLUSH");
  }
  return absl::OkStatus();
}

// Of every part that several stages have, all of them.
std::vector<ReduceGroup> GroupsOfParts(const Topology& topology) {
  std::vector<ReduceGroup> groups;
  for (int32_t part = 0; part < topology.parts(); ++part) {
    ReduceGroup group{.quantity = ReduceGroup::Quantity::kWeight,
                      .operation = ReduceGroup::Operation::kCopy};
    for (int32_t id = 0; id < topology.stages(); ++id) {
      if (topology.PartOf(StageId(id)) == part) group.stages.emplace_back(id);
    }
    if (group.stages.size() > 1) groups.push_back(std::move(group));
  }
  return groups;
}

bool Copies(const ReduceGroup& group) { return group.operation == ReduceGroup::Operation::kCopy; }

absl::Status CheckRounds(const Topology& topology) {
  const Topology::Rounds& rounds = topology.rounds;
  std::vector<ReduceGroup> copying;
  std::copy_if(topology.groups.begin(), topology.groups.end(), std::back_inserter(copying), Copies);
  if (rounds == Topology::Rounds()) {
    if (copying.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "a group that copies weights makes sense where pipelines go there and back alone");
  }
  if (rounds.microbatches < 1 || rounds.step < 1 || rounds.step % rounds.microbatches != 0 ||
      rounds.step / rounds.microbatches < topology.pipelines) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rounds of ", rounds.microbatches, " microbatches do not make a step of ", rounds.step,
        " through ", topology.pipelines, " pipelines; each needs a round of its own"));
  }
  if (topology.depth() % 2 == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a pipeline there and back has an odd number of stages, got ", topology.depth()));
  }
  if (!topology.recomputes.empty()) {
    return absl::InvalidArgumentError(
        "which stages recompute is not to be said where pipelines go there and back");
  }
  if (copying == GroupsOfParts(topology)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "where pipelines go there and back, the stages of each part are a group that copies weights, "
      "in the order of the parts");
}

absl::Status CheckReplicas(const Topology& topology) {
  if (!topology.replicated()) return absl::OkStatus();
  const std::vector<int32_t>& first = topology.first_of_place;
  const auto error = [](absl::string_view problem) {
    return absl::InvalidArgumentError(absl::StrCat("the replicas of stages ", problem));
  };
  const bool ascending =
      std::adjacent_find(first.begin(), first.end(), std::greater_equal<>()) == first.end();
  if (first.size() < 2 || first.front() != 0 || first.back() != topology.stages() || !ascending) {
    return error(absl::StrCat("must be one or more for each place, ", topology.stages(),
                              " together, as many as there are stages"));
  }
  if (topology.pipelines != 1 || topology.there_and_back()) {
    return error("must be those of a single pipeline, which does not go there and back");
  }
  if (topology.workers != topology.stages()) {
    return error(absl::StrCat("must each be alone on a worker, but ", topology.stages(),
                              " stages are on ", topology.workers, " workers"));
  }
  if (topology.cycle() > kCycleMax) {
    return error(absl::StrCat("begin anew together only after more than ", kCycleMax,
                              " microbatches, the least common multiple of their numbers; numbers "
                              "with common divisors would do"));
  }
  size_t group = 0;
  for (int32_t place = 0; place < topology.depth(); ++place) {
    if (topology.ReplicasAt(place) == 1) continue;
    std::vector<StageId> members;
    for (int32_t id = first[place]; id < first[place + 1]; ++id) members.emplace_back(id);
    if (group < topology.groups.size() && topology.groups[group].stages == members &&
        topology.groups[group].quantity == ReduceGroup::Quantity::kGradient) {
      ++group;
      continue;
    }
    return error(absl::StrCat(
        "at each place must be a group that combines gradients, in the order of the places and "
        "before other groups; those at place ",
        place, " are none"));
  }
  return absl::OkStatus();
}

}  // namespace

int64_t Topology::cycle() const {
  if (replicated()) return CycleOf(ReplicasOf(*this));
  return there_and_back() ? rounds.step : pipelines;
}

std::vector<StageId> Topology::All(Neighbour neighbour, StageId stage) const {
  std::vector<StageId> all;
  const int64_t first = replicated() ? ReplicaOf(stage) : PipelineOf(stage);
  for (int64_t microbatch = first;; microbatch += StrideOf(stage)) {
    const StageId next = (this->*neighbour)(stage, microbatch);
    if (next.value < 0 || (!all.empty() && next == all.front())) return all;
    all.push_back(next);
    if (!replicated()) return all;
  }
}

StageId Topology::SumTo(StageId stage) const {
  if (!there_and_back() || pipelines == 1 || !DoesBackward(stage)) return StageId(-1);
  if (PipelineOf(stage) + 1 < pipelines) return StageId(stage.value + depth());
  const bool begins_anew = rounds.step / rounds.microbatches > pipelines;
  return StageId(begins_anew ? DepthOf(stage) : -1);
}

StageId Topology::SumFrom(StageId stage) const {
  if (!there_and_back() || pipelines == 1 || !DoesBackward(stage)) return StageId(-1);
  if (PipelineOf(stage) > 0) return StageId(stage.value - depth());
  const StageId last((pipelines - 1) * depth() + DepthOf(stage));
  return SumTo(last).value < 0 ? StageId(-1) : last;
}

std::vector<StageId> Topology::StagesOf(WorkerId worker) const {
  std::vector<StageId> result;
  for (int32_t stage = 0; stage < stages(); ++stage) {
    if (worker_of[stage] == worker) result.emplace_back(stage);
  }
  return result;
}

std::vector<WorkerId> Topology::WorkersOf(GroupId group) const {
  std::vector<WorkerId> result;
  for (const StageId stage : groups[group.value].stages) result.push_back(worker(stage));
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

Topology StraightPipeline(int32_t stages) { return LoopedPipeline(stages, stages); }

Topology LoopedPipeline(int32_t stages, int32_t workers) {
  Topology topology{.workers = workers};
  for (int32_t stage = 0; stage < stages; ++stage) topology.worker_of.emplace_back(stage % workers);
  return topology;
}

Topology VPipeline(int32_t workers) {
  Topology topology{.workers = workers};
  for (int32_t stage = 0; stage < 2 * workers; ++stage) {
    topology.worker_of.emplace_back(std::min(stage, 2 * workers - 1 - stage));
  }
  return topology;
}

Topology ReplicatedPipelines(int32_t depth, int32_t pipelines) {
  Topology topology{.workers = depth, .pipelines = pipelines};
  for (int32_t stage = 0; stage < depth * pipelines; ++stage) {
    topology.worker_of.emplace_back(stage % depth);
  }
  if (pipelines < 2) return topology;
  for (int32_t d = 0; d < depth; ++d) {
    ReduceGroup& replicas = topology.groups.emplace_back(ReduceGroup{
        .quantity = ReduceGroup::Quantity::kWeight, .operation = ReduceGroup::Operation::kMean});
    for (int32_t p = 0; p < pipelines; ++p) replicas.stages.emplace_back(p * depth + d);
  }
  return topology;
}

Topology ReplicatedStages(absl::Span<const int32_t> replicas, ReduceGroup::Operation operation) {
  const int32_t stages = std::accumulate(replicas.begin(), replicas.end(), 0);
  Topology topology = StraightPipeline(stages);
  if (stages == static_cast<int32_t>(replicas.size())) return topology;
  topology.first_of_place.push_back(0);
  for (const int32_t count : replicas) {
    const int32_t first = topology.first_of_place.back();
    topology.first_of_place.push_back(first + count);
    if (count == 1) continue;
    ReduceGroup& group = topology.groups.emplace_back(ReduceGroup{.operation = operation});
    for (int32_t id = first; id < first + count; ++id) group.stages.emplace_back(id);
  }
  return topology;
}

std::vector<int32_t> ReplicasOf(const Topology& topology) {
  std::vector<int32_t> replicas;
  for (int32_t place = 0; place < topology.depth(); ++place) {
    replicas.push_back(topology.ReplicasAt(place));
  }
  return replicas;
}

int64_t CycleOf(absl::Span<const int32_t> replicas) {
  int64_t cycle = 1;
  for (const int32_t count : replicas) {
    if (cycle <= kCycleMax) cycle = std::lcm(cycle, int64_t{count});
  }
  return std::min(cycle, kCycleMax + 1);
}

Topology RoundTripPipelines(int32_t parts, int32_t workers, int64_t step) {
  const int32_t slots = 2 * parts - 1;
  const int64_t round = std::min<int64_t>(workers, step);
  const int64_t pipelines = std::min<int64_t>(step / round, workers / std::gcd(slots, workers));
  Topology topology{.workers = workers,
                    .pipelines = static_cast<int32_t>(pipelines),
                    .rounds = {.microbatches = round, .step = step}};
  for (int64_t slot = 0; slot < pipelines * slots; ++slot) {
    topology.worker_of.emplace_back(static_cast<int32_t>(slot % workers));
  }
  topology.groups = GroupsOfParts(topology);
  return topology;
}

void TieEnds(Topology& topology) {
  const int32_t depth = topology.depth();
  if (topology.parts() < 2) return;
  if (topology.there_and_back() || topology.replicated()) {
    ReduceGroup ends;
    for (int32_t id = 0; id < topology.stages(); ++id) {
      const StageId stage(id);
      const bool reads_tokens =
          topology.replicated() ? topology.IsFirst(stage) : topology.EndsTheWayBack(stage);
      const bool end = topology.IsLast(stage) || reads_tokens;
      if (end && topology.Updates(stage)) ends.stages.push_back(stage);
    }
    topology.groups.push_back(std::move(ends));
    return;
  }
  for (int32_t first = 0; first < topology.stages(); first += depth) {
    topology.groups.push_back({.stages = {StageId(first), StageId(first + depth - 1)}});
  }
}

absl::Status CheckTopology(const Topology& topology) {
  if (topology.worker_of.empty()) {
    return absl::InvalidArgumentError("a pipeline needs at least one stage, but has none");
  }
  if (topology.pipelines < 1 || topology.stages() % topology.pipelines != 0) {
    return absl::InvalidArgumentError(absl::StrCat(topology.stages(), " stages cannot make ",
                                                   topology.pipelines,
                                                   " pipelines of equal depth"));
  }
  std::vector<bool> used(std::max(topology.workers, 0));
  for (int32_t stage = 0; stage < topology.stages(); ++stage) {
    const int32_t worker = topology.worker_of[stage].value;
    if (worker < 0 || worker >= topology.workers) {
      return absl::InvalidArgumentError(absl::StrCat("stage ", stage, " is on worker ", worker,
                                                     ", but there are ", topology.workers,
                                                     " workers"));
    }
    used[worker] = true;
  }
  const auto idle = std::find(used.begin(), used.end(), false);
  if (idle != used.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker ", idle - used.begin(), " of ", topology.workers, " has no stage"));
  }
  for (size_t group = 0; group < topology.groups.size(); ++group) {
    const std::vector<StageId>& stages = topology.groups[group].stages;
    const bool ascending =
        std::adjacent_find(stages.begin(), stages.end(), std::greater_equal<>()) == stages.end();
    if (stages.size() < 2 || !ascending || stages.front().value < 0 ||
        stages.back().value >= topology.stages()) {
      return absl::InvalidArgumentError(
          absl::StrCat("group ", group, " must list two or more of the ", topology.stages(),
                       " stages in ascending order"));
    }
  }
  PENSTOCK_RETURN_IF_ERROR(CheckRounds(topology));
  PENSTOCK_RETURN_IF_ERROR(CheckReplicas(topology));
  const std::vector<StageId>& recomputes = topology.recomputes;
  const bool ascending = std::adjacent_find(recomputes.begin(), recomputes.end(),
                                            std::greater_equal<>()) == recomputes.end();
  if (recomputes.empty() ||
      (ascending && recomputes.front().value >= 0 && recomputes.back().value < topology.stages())) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("the stages that recompute must be some of the ",
                                                 topology.stages(), " stages, in ascending order"));
}

std::string ToString(const WeightPolicy& policy) {
  switch (policy.kind) {
    case WeightPolicy::Kind::kSingle:
      return "single";
    case WeightPolicy::Kind::kStash:
      return "stash";
    case WeightPolicy::Kind::kDelayed:
      return absl::StrCat("delayed:", policy.batch, ":", policy.lag);
    case WeightPolicy::Kind::kPredicted:
      return absl::StrCat("predicted:", policy.batch);
    case WeightPolicy::Kind::kAligned:
      return absl::StrCat("aligned:", policy.batch);
    case WeightPolicy::Kind::kCorrected:
      return "corrected";
    case WeightPolicy::Kind::kDrawn:
      return absl::StrCat("drawn:", policy.lag, ":", policy.seed);
  }
  PENSTOCK_CHECK(false);
}

absl::StatusOr<WeightPolicy> ParseWeightPolicy(absl::string_view text) {
  for (const WeightPolicy& policy :
       {kSingleVersion, kStashedVersions, WeightPolicy{WeightPolicy::Kind::kCorrected}}) {
    if (text == ToString(policy)) return policy;
  }
  WeightPolicy delayed{.kind = WeightPolicy::Kind::kDelayed};
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
  const auto is_number = [](absl::string_view part, int64_t& number) {
    return absl::SimpleAtoi(part, &number) && number >= 1 && number < kMicrobatchMax;
  };
  if (parts.size() == 3 && parts[0] == "delayed" && is_number(parts[1], delayed.batch) &&
      is_number(parts[2], delayed.lag)) {
    return delayed;
  }
  for (const WeightPolicy::Kind kind :
       {WeightPolicy::Kind::kPredicted, WeightPolicy::Kind::kAligned}) {
    WeightPolicy moved{.kind = kind};
    if (parts.size() == 2 && is_number(parts[1], moved.batch) && text == ToString(moved)) {
      return moved;
    }
  }
  WeightPolicy drawn{.kind = WeightPolicy::Kind::kDrawn};
  if (parts.size() == 3 && absl::SimpleAtoi(parts[1], &drawn.lag) && drawn.lag >= 0 &&
      drawn.lag < kMicrobatchMax && absl::SimpleAtoi(parts[2], &drawn.seed) &&
      text == ToString(drawn)) {
    return drawn;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", text,
      "\": expected single, stash, delayed:<microbatches>:<versions>, predicted:<microbatches>, "
      "aligned:<microbatches>, corrected, or drawn:<versions>:<seed>"));
}

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
  if (topology.replicated()) {
    return absl::InvalidArgumentError(
        "weights are drawn by stage and microbatch, which replicas of a stage do not know of each "
        "other");
  }
  if (topology.pipelines > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("weights are drawn from the updates of one model, but there are ",
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
