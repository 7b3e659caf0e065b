// PlanForJob: the plan of a job from a profile to the candidate that is chosen, for the commands that need one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "penstock/v1/job.pb.h"
#include "planner/job/measured_cluster.h"
#include "planner/job/plan_job.h"
#include "planner/job/race.h"
#include "planner/job/stage_picture.h"
#include "planner/job/step_reasons.h"
#include "services/cli/console.h"
#include "services/cli/coordinator_client.h"
#include "services/cli/interrupt.h"

namespace penstock {

// Of a profile's file, of one device or of a cluster; of one device there are no workers.
// Errors: those of reading it.
absl::StatusOr<MeasuredCluster> ReadMeasuredCluster(const std::string& path);

// The coordinator's workers profile the model of `spec`, which is complete. Errors: those of ProfileCluster.
absl::StatusOr<MeasuredCluster> MeasureCluster(CoordinatorClient& client, const v1::JobSpec& spec,
                                               Interrupt& interrupt, Console& console);

inline constexpr double kRaceSecondsMax = 600;

struct RaceChoice {
  std::optional<double> until_loss;
  int64_t steps = 0;                 // of the fastest candidate, at most; 0: a quarter of the job's
  double limit_s = kRaceSecondsMax;  // of this machine's time
  std::string data_root;             // absolute: where the job's text lies
};

struct PlanChoice {
  std::vector<std::string> methods;  // empty: all
  std::vector<int32_t> stages;       // empty: any number
  double budget_s = 10.0;
  std::optional<RaceChoice> race;
  bool explains = false;
};

// What raced, in the order of `candidates`.
struct JobRace {
  std::vector<int> candidates;  // of the plan
  RaceResult result;

  std::optional<int> winner() const {
    if (!result.winner.has_value()) return std::nullopt;
    return candidates[*result.winner];
  }
};

struct PlannedJob {
  JobPlan plan;
  Cluster cluster;
  std::optional<JobRace> race;
  std::optional<StagePicture> picture;  // of the chosen one
  std::optional<StepReasons> reasons;   // of its step, if they were asked for

  // The race's first, or without a race the fastest; null if none can run, or all failed.
  const JudgedCandidate* chosen() const;
};

// `input.spec` as it is written. Errors: those of PlanJob; of the job's text; an interrupt's.
absl::StatusOr<PlannedJob> PlanForJob(PlanningInput input, const PlanChoice& choice,
                                      Interrupt& interrupt, Console& console);

}  // namespace penstock
