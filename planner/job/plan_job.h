// PlanJob: finds which method, how many stages, microbatches and layers of each, let a job run fastest, or in the least
// memory, on a cluster.
//
// Every method of the catalog, and an order that is searched for the candidate's times, is tried with every number of
// workers and every number of microbatches that divides the batch, where that changes nothing but rounding. Each is
// tried with and without recomputation, or recomputes only in the stages whose workers lack memory otherwise, and,
// where the method has them, with replicas of stages: as many of each, or as planner/graph/placement_planner.h has
// them. A candidate that lacks memory alone is also cut for the memory of its workers (planner/job/memory_split.h), by
// the best cuts and by DawnPiper's. The judge is planner/job/candidate.h. Then the best of each method is improved: layers move between
// neighbouring stages as long as the simulated step gets shorter, and a few placements are searched
// (planner/job/split_search.h). At last the placements of all candidates are searched for one that is better than the
// best, which ends with a proof for jobs of few layers, and with a bound for others.
//
// Where a model has branches and the job does not say `pipeline.layer_order`, candidates are also tried in the
// orders of layers that suit their numbers of stages best (planner/job/layer_orders.h). A candidate has one order:
// proofs and bounds do not rule out orders that were not tried.
//
// Pure functions but for the clock behind the budget.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/graph/time_budget.h"
#include "planner/job/candidate.h"

namespace penstock {

struct PlanJobOptions {
  // DawnPiper's cuts alone (planner/job/memory_split.h), which nothing improves; with one stage on each worker.
  bool as_dawnpiper = false;
  std::vector<std::string> methods;  // empty: all of the catalog, and searched
  std::vector<int32_t> stages;       // of the model, that may be chosen; empty: any number
  // Only the stages, their layers and their workers are chosen: microbatches and replicas are the job's, and so is
  // recomputation, unless the job has none and lacks the memory.
  bool only_placement = false;
  // Called with how many of how many candidates are judged.
  std::function<void(int done, int all)> progress = [](int, int) {};
  // Asked between candidates; its error ends the planning.
  std::function<absl::Status()> may_go_on = [] { return absl::OkStatus(); };
};

struct JobPlan {
  std::vector<JudgedCandidate> candidates;  // those that can run first, by the time of a step
  std::optional<int> fastest;               // among them; absent: none can run
  std::optional<int> smallest;              // in the memory of the worker that needs most
  bool in_time = true;                      // else some were not judged, or could still be improved
  double step_bound_s = 0;                  // no placement of a candidate has a shorter step
  bool is_fastest = false;  // it is proven that none has a shorter step than the fastest
  bool is_smallest =
      false;  // the same of the memory of the smallest, orders that were not searched for left out
};

// Lists the candidates for a job, in the order in which they are judged.
// Errors: NotFound for a method that there is not; InvalidArgument of ResolveJob, and if no candidate has such a number
// of stages.
absl::StatusOr<std::vector<Candidate>> EnumerateCandidates(const PlanningInput& input,
                                                           const PlanJobOptions& options,
                                                           TimeBudget& budget);

// Errors: those of EnumerateCandidates and JudgeCandidate; InvalidArgument of CheckCluster; that of may_go_on.
absl::StatusOr<JobPlan> PlanJob(const PlanningInput& input, const PlanJobOptions& options,
                                TimeBudget& budget);

}  // namespace penstock
