// CandidateJudge: what one candidate is worth, for any placement of its stages.
//
// Everything that does not depend on the placement, such as the schedule, is made once, so that a search through many
// placements pays for a simulation each. With the method searched each placement has an order of its own; job() and
// topology() are then those of its draft (job/open_job.h).
//
// Plain values and pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "job/resolve.h"
#include "planner/job/candidate.h"
#include "planner/job/searched_order.h"
#include "planner/job/timed_split.h"
#include "schedule/schedule.h"
#include "schedule/simulate.h"

namespace penstock {

class CandidateJudge {
 public:
  // `input` must outlive it.
  // Errors: InvalidArgument if the profile is not of the job's model, or has no microbatches of that size.
  static absl::StatusOr<CandidateJudge> Of(const PlanningInput& input, const Candidate& candidate);

  // Returns whether some placement may run, as far as the method's rules, the workers and the layers go; if not,
  // draft() is the candidate with the reason in `rejected`.
  bool may_run() const { return draft_.runs(); }
  // Returns the candidate without what a placement adds.
  const JudgedCandidate& draft() const { return draft_; }

  // All below REQUIRES: may_run().

  const PlanningInput& input() const { return *input_; }
  const ResolvedJob& job() const { return run_.job; }
  const Topology& topology() const { return run_.options.topology; }
  // Returns whether the order of a step is searched for each placement: a better one may then exist than was found.
  bool searches_order() const;
  // By layer, on a worker of speed 1.
  const std::vector<StageCosts>& layer_costs() const { return layer_costs_; }

  // Places it on the fastest workers in the cluster's order, with the layers cut so that the slowest stage is fastest.
  absl::StatusOr<StagePlacement> Evenly() const;
  // Returns the times that the simulator uses.
  v1::DeviceTimes TimesOn(const std::vector<int>& workers) const;
  // Returns the time of a step in a long run, infinite where a stage begins with a layer that it may not (CheckParts), so
  // that a search that moves layers goes on. `times`: on the placement's workers. An order is searched only briefly.
  absl::StatusOr<double> StepSeconds(const v1::DeviceTimes& times,
                                     const std::vector<LayerRange>& layers) const;
  // Returns the memory by worker of the pipeline.
  absl::StatusOr<std::vector<WorkerMemory>> Memory(const std::vector<LayerRange>& layers) const;
  // Returns the most stashes that a stage at each place has at once, wherever they are. Not of an order that is searched.
  std::vector<int64_t> StashesPeaks() const;
  // Errors: ResourceExhausted, naming the worker, if one has less, and the layer where a single one is too large for it.
  absl::Status CheckMemory(const std::vector<WorkerMemory>& memory,
                           const std::vector<int>& workers) const;

  // Judges the placement; `rejected` says what makes it impossible.
  JudgedCandidate Judge(const StagePlacement& placement) const;

 private:
  // A job with what is made of it for any placement that has the same groups of stages with shared parameters.
  struct Runnable {
    ResolvedJob job;
    ScheduleOptions options;
    StepsToSimulate steps;
  };

  CandidateJudge(const PlanningInput& input, const Candidate& candidate)
      : input_(&input), draft_{.candidate = candidate} {}

  // Returns the job as the candidate runs it, if the cluster has enough workers. Errors: what rejects the candidate.
  absl::StatusOr<ResolvedJob> Resolve();
  // Makes the schedule, and takes what it says. Errors: what rejects the candidate.
  absl::Status Prepare(ResolvedJob job);
  absl::StatusOr<Runnable> RunnableOf(ResolvedJob job, absl::Span<const LayerRange> layers) const;
  // Returns the run for these layers: `run_`, or `other` where their shared parameters make other groups.
  // Errors: those of CheckParts.
  absl::StatusOr<const Runnable*> RunWith(absl::Span<const LayerRange> layers,
                                          Runnable& other) const;
  // Sets how late its gradients are.
  static absl::Status SetDelays(const Runnable& run, JudgedCandidate& judged);
  // Returns the draft with an order searched for these times.
  absl::StatusOr<Runnable> WithOrder(const v1::DeviceTimes& times,
                                     const std::vector<LayerRange>& layers,
                                     const OrderSearch& search) const;
  absl::StatusOr<std::vector<WorkerMemory>> MemoryOf(const Runnable& run,
                                                     const std::vector<LayerRange>& layers) const;
  // Fills in time and memory of the placement. Errors: what rejects it.
  absl::Status Fill(const Runnable& run, JudgedCandidate& judged) const;
  // Fills them in for the layers of the placement.
  absl::Status FillInRun(JudgedCandidate& judged) const;
  // Fills them in with a searched order, in as much room as the memory leaves.
  absl::Status FillInOrder(JudgedCandidate& judged) const;
  // Writes the prediction that the job is compared with when it runs.
  static void Predict(JudgedCandidate& judged);

  const PlanningInput* input_;
  JudgedCandidate draft_;
  Runnable run_;
  v1::DeviceTimes times_;  // of the profile
  std::vector<StageCosts> layer_costs_;
};

}  // namespace penstock
