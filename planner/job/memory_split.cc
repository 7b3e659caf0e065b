#include "planner/job/memory_split.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "job/run/message_bytes.h"
#include "job/run/run_schedule.h"
#include "job/run/ties.h"
#include "planner/job/candidate_judge.h"
#include "planner/job/profiled_graph.h"

namespace penstock {
namespace {

// How often the cuts are made again for less memory.
constexpr int kAttempts = 6;

JudgedCandidate Rejected(JudgedCandidate draft, std::string why) {
  draft.rejected = std::move(why);
  return draft;
}

bool HasOneStageOnEachWorker(const CandidateJudge& judge) {
  const Topology& topology = judge.topology();
  return topology.form == Topology::Form::kPipelines && topology.pipelines == 1 &&
         topology.stages() == topology.workers;
}

// Returns the job's layers, in its order.
absl::StatusOr<NodeChain> ChainOfJob(const CandidateJudge& judge) {
  const ResolvedJob& job = judge.job();
  PENSTOCK_ASSIGN_OR_RETURN(const ProfiledGraph profiled,
                            GraphOfProfile(judge.input().profile, job.microbatch_samples));
  std::map<std::string, int> places;
  for (int i = 0; i < profiled.layers; ++i) places[profiled.graph.nodes[i].id] = i;
  const std::vector<bool> may_begin = PlacesToCut(job);
  NodeChain chain;
  for (int layer = 0; layer < job.model.size(); ++layer) {
    const LayerMemory& memory = profiled.memory[places.at(job.model.layers[layer].name)];
    const StageCosts& costs = judge.layer_costs()[layer];
    const bool is_last = layer + 1 == job.model.size();
    chain.push_back(
        {.forward_s = costs.forward_s,
         .backward_s = costs.backward_input_s + costs.backward_weight_s,
         .weight_bytes = memory.weight_bytes,
         .state_bytes = memory.state_bytes,
         .saved_bytes = memory.stash_bytes,
         .boundary_bytes = is_last ? 0.0 : static_cast<double>(ActivationBytesAt(job, layer + 1)),
         .may_end_stage = is_last || may_begin[layer + 1]});
  }
  return chain;
}

// Returns the places of the pipeline as the schedule and the weight policy have them: microbatches in flight, versions.
// What a worker holds beside what a chain counts (buffers, messages, scratch memory) is taken off its memory.
absl::StatusOr<std::vector<StagePlace>> PlacesOf(const CandidateJudge& judge,
                                                 const NodeChain& chain,
                                                 const StagePlacement& placement) {
  const ScheduleOptions options = ScheduleOptionsOf(judge.job(), judge.topology());
  PENSTOCK_ASSIGN_OR_RETURN(
      const std::vector<StageCounts> counts,
      CountsOfRun(judge.job(), options, 0, CutsOf(judge.draft().spec, 0, {})));
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<WorkerMemory> memory, judge.Memory(placement.layers));
  std::vector<StagePlace> places;
  for (size_t at = 0; at < placement.layers.size(); ++at) {
    const PlanWorker& worker = judge.input().cluster.workers[placement.workers[at]];
    const WorkerMemory& held = memory[at];
    const auto weights = static_cast<double>(held.weights);
    const auto older = static_cast<double>(held.stashed_weights + held.predicted_weights);
    places.push_back({.speed = worker.speed,
                      .memory_bytes = worker.memory_bytes,
                      .in_flight = static_cast<int>(counts[at].activations_peak),
                      .versions = weights > 0 ? 1 + older / weights : 1});
  }
  const StageMemory counted(chain, {.places = places});
  for (size_t at = 0; at < places.size(); ++at) {
    const LayerRange& layers = placement.layers[at];
    const double bytes = counted.BytesOfAllKept(layers.first, layers.end(), static_cast<int>(at));
    places[at].memory_bytes -= static_cast<double>(memory[at].total()) - bytes;
  }
  return places;
}

// Returns the cuts as layers, and the stages that recompute.
StagePlacement PlacementOf(const ChainPartition& partition, const std::vector<int>& workers,
                           RecomputeChoice& recompute) {
  StagePlacement placement = {.workers = workers};
  recompute = {};
  int first = 0;
  for (size_t at = 0; at < partition.ends.size(); ++at) {
    placement.layers.push_back({first, partition.ends[at] - first});
    first = partition.ends[at];
    if (partition.charges[at].Count(TensorUse::kRecomputed) > 0) {
      recompute.places.push_back(static_cast<int32_t>(at));
    }
  }
  if (recompute.places.size() == partition.ends.size()) recompute = {.all = true};
  return placement;
}

// Takes what a worker lacks off its place. Returns whether one lacks any.
bool TakeWhatLacks(const PlanningInput& input, const JudgedCandidate& judged,
                   std::vector<StagePlace>& places) {
  bool lacks = false;
  for (size_t at = 0; at < places.size(); ++at) {
    const double more = static_cast<double>(judged.memory[at].total()) -
                        input.cluster.workers[judged.workers[at]].memory_bytes;
    if (more <= 0) continue;
    places[at].memory_bytes -= more;
    lacks = true;
  }
  return lacks;
}

}  // namespace

absl::StatusOr<JudgedCandidate> SplitForMemory(const PlanningInput& input,
                                               const Candidate& candidate, ChainPlanner planner) {
  Candidate own = candidate;
  own.recompute = {};
  PENSTOCK_ASSIGN_OR_RETURN(CandidateJudge judge, CandidateJudge::Of(input, own));
  if (!judge.may_run()) return judge.draft();
  if (!HasOneStageOnEachWorker(judge)) {
    return Rejected(judge.draft(),
                    "has several stages on a worker, or replicas; cuts for the memory of workers "
                    "are for one stage on each");
  }
  PENSTOCK_ASSIGN_OR_RETURN(const StagePlacement evenly, judge.Evenly());
  PENSTOCK_ASSIGN_OR_RETURN(const NodeChain chain, ChainOfJob(judge));
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<StagePlace> places, PlacesOf(judge, chain, evenly));
  JudgedCandidate judged = judge.draft();
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const StageMemory memory(chain, {.places = places, .choice = TensorChoice::kWholeStage});
    const absl::StatusOr<ChainPartition> partition =
        planner == ChainPlanner::kDawnPiper ? PartitionByHalves(memory) : BestPartition(memory);
    if (!partition.ok()) {
      if (judged.is_placed()) return judged;
      return Rejected(std::move(judged), std::string(partition.status().message()));
    }
    const StagePlacement placement = PlacementOf(*partition, evenly.workers, own.recompute);
    PENSTOCK_ASSIGN_OR_RETURN(judge, CandidateJudge::Of(input, own));
    if (!judge.may_run()) return judge.draft();
    judged = judge.Judge(placement);
    if (!judged.lacks_memory || !TakeWhatLacks(input, judged, places)) return judged;
  }
  return judged;
}

}  // namespace penstock
