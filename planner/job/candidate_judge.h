// CandidateJudge: what one candidate is worth, for any placement of its stages.
//
// What does not depend on the placement, such as the schedule, is made once, so that a search through many
// placements pays for a simulation each.
//
// Plain values and pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "job/resolve.h"
#include "planner/job/candidate.h"
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
  const ResolvedJob& job() const { return job_; }
  const Topology& topology() const { return options_.topology; }
  // By layer, on a worker of speed 1.
  const std::vector<StageCosts>& layer_costs() const { return layer_costs_; }

  // The fastest workers in the cluster's order, and the layers cut so that the slowest stage is as fast as can be.
  absl::StatusOr<StagePlacement> Evenly() const;
  // What the simulator counts in.
  v1::DeviceTimes TimesOn(const std::vector<int>& workers) const;
  // Of a step in a long run. `times`: those on the placement's workers.
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
  CandidateJudge(const PlanningInput& input, const Candidate& candidate)
      : input_(&input), draft_{.candidate = candidate} {}

  // The job as the candidate runs it, if the cluster has enough workers. Errors: what rejects the candidate.
  absl::StatusOr<ResolvedJob> Resolve();
  // The schedule, and what it says. Errors: what rejects the candidate.
  absl::Status Prepare();
  // Time and memory of the placement. Errors: what rejects it.
  absl::Status Fill(JudgedCandidate& judged) const;
  // What the job will be held against when it runs.
  static void Predict(JudgedCandidate& judged);

  const PlanningInput* input_;
  JudgedCandidate draft_;
  ResolvedJob job_;
  ScheduleOptions options_;
  StepsToSimulate steps_;
  v1::DeviceTimes times_;  // of the profile
  std::vector<StageCosts> layer_costs_;
};

}  // namespace penstock
