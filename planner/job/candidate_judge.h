// CandidateJudge: what one candidate is worth, for any placement of its stages.
//
// What does not depend on the placement, such as the schedule, is made once, so that a search through many
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

  // Whether some placement may run, as far as the method's rules, the workers and the layers go; if not, the
  // candidate with the reason in `rejected` is draft().
  bool may_run() const { return draft_.runs(); }
  // Without what a placement says.
  const JudgedCandidate& draft() const { return draft_; }

  // All below REQUIRES: may_run().

  const PlanningInput& input() const { return *input_; }
  const ResolvedJob& job() const { return run_.job; }
  const Topology& topology() const { return run_.options.topology; }
  // Whether the order of a step is searched for each placement: then a placement might have a better one than was found.
  bool searches_order() const;
  // By layer, on a worker of speed 1.
  const std::vector<StageCosts>& layer_costs() const { return layer_costs_; }

  // The fastest workers in the cluster's order, and the layers cut so that the slowest stage is as fast as can be.
  absl::StatusOr<StagePlacement> Evenly() const;
  // What the simulator counts in.
  v1::DeviceTimes TimesOn(const std::vector<int>& workers) const;
  // Of a step in a long run. `times`: those on the placement's workers. An order is searched for a moment only.
  absl::StatusOr<double> StepSeconds(const v1::DeviceTimes& times,
                                     const std::vector<LayerRange>& layers) const;
  // By worker of the pipeline.
  absl::StatusOr<std::vector<WorkerMemory>> Memory(const std::vector<LayerRange>& layers) const;
  // ResourceExhausted, naming the worker, if one has less.
  absl::Status CheckMemory(const std::vector<WorkerMemory>& memory,
                           const std::vector<int>& workers) const;

  // With what makes the placement impossible in `rejected`.
  JudgedCandidate Judge(const StagePlacement& placement) const;

 private:
  // A job with what is made of it for any placement.
  struct Runnable {
    ResolvedJob job;
    ScheduleOptions options;
    StepsToSimulate steps;
  };

  CandidateJudge(const PlanningInput& input, const Candidate& candidate)
      : input_(&input), draft_{.candidate = candidate} {}

  // The job as the candidate runs it, if the cluster has enough workers. Errors: what rejects the candidate.
  absl::StatusOr<ResolvedJob> Resolve();
  // The schedule, and what it says. Errors: what rejects the candidate.
  absl::Status Prepare(ResolvedJob job);
  absl::StatusOr<Runnable> RunnableOf(ResolvedJob job) const;
  // How late its gradients are.
  static absl::Status SetDelays(const Runnable& run, JudgedCandidate& judged);
  // The draft in an order for these times.
  absl::StatusOr<Runnable> WithOrder(const v1::DeviceTimes& times,
                                     const std::vector<LayerRange>& layers,
                                     const OrderSearch& search) const;
  absl::StatusOr<std::vector<WorkerMemory>> MemoryOf(const Runnable& run,
                                                     const std::vector<LayerRange>& layers) const;
  // Time and memory of the placement. Errors: what rejects it.
  absl::Status Fill(const Runnable& run, JudgedCandidate& judged) const;
  // The same with an order that is searched, in as much room as the memory leaves.
  absl::Status FillInOrder(JudgedCandidate& judged) const;
  // What the job will be held against when it runs.
  static void Predict(JudgedCandidate& judged);

  const PlanningInput* input_;
  JudgedCandidate draft_;
  Runnable run_;
  v1::DeviceTimes times_;  // of the profile
  std::vector<StageCosts> layer_costs_;
};

}  // namespace penstock
