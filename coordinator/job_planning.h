// JobPlanning: how a job that leaves its split or its method open comes to its plan, on the workers that it has.
//
//   layer times that are known -> what is not known is measured -> candidates -> [a race] -> the outcome
//
// Without a race the method is chosen by the time that it is expected to take to a loss: its step, times the steps that
// earlier jobs let it be expected to need (planner/job/steps_to_loss.h). The bare shortest step never decides between
// methods that train differently, or numbers of stages with unlike delays.
//
// Measuring, and every heat of a race, is a run of its own that nobody sees in a list: a JobRun under the job's id with
// a suffix ("small-1.profile", "small-1.heat-3"), on the job's workers. A heat is a job like any other, with fewer
// steps and the learning rate of the whole job, so what raced is what will train.
//
// A job with a method is never lost to its planning: where its workers cannot be measured, its layers are split by
// estimate. Where a worker is lost, or does not stop a run, the outcome says so, and the job waits for other workers.
//
// A state machine without clock or I/O (effects.h); thread-compatible.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/effects.h"
#include "coordinator/known_links.h"
#include "coordinator/learned_steps.h"
#include "coordinator/profile_gatherer.h"
#include "job/resolve.h"
#include "penstock/v1/cluster.pb.h"
#include "planner/job/assign.h"
#include "planner/job/expected_time.h"
#include "planner/job/plan_job.h"
#include "planner/job/race.h"

namespace penstock {

class JobRun;
struct JobRunLimits;

// A worker that had not confirmed that it stopped a run when it was waited for no longer.
struct NotStopped {
  std::string worker;
  uint64_t incarnation = 0;
  std::string job_id;  // of the run: the job's, or that of a run of its planning
  int64_t epoch = 0;
};

// The knowledge from earlier jobs.
struct EarlierJobs {
  KnownLinks links;
  LearnedSteps steps;
};

class JobPlanning {
 public:
  // The job as it will run.
  struct Chosen {
    v1::JobSpec spec;
    std::vector<WorkerOffer> workers;  // by worker of the pipeline
    v1::JobPlanning record;
  };
  struct Outcome {
    std::optional<Chosen> chosen;
    std::string estimate_why;  // the job is split by estimate, because
    std::string lost;          // the worker that was lost, or does not stop, and why
    absl::Status failed;       // no plan can run
  };

  // `spec`: as it was submitted. `draft`: `spec` resolved, or its draft (job/open_job.h). `epoch`: the job's; those of
  // the runs are above it. REQUIRES: SplitIsOpen; `limits` and `earlier` outlive it.
  JobPlanning(std::string job_id, v1::JobSpec spec, ResolvedJob draft,
              std::vector<WorkerOffer> workers, int64_t epoch, const JobRunLimits& limits,
              EarlierJobs& earlier);
  ~JobPlanning();

  // ---- Events. Each may add effects, and events of the job.
  void Begin(Now now);
  void OnLayerTimesFound(const std::vector<std::optional<v1::DeviceProfile>>& known, Now now);
  void OnCandidates(const absl::StatusOr<JobPlan>& plan, Now now);
  void OnWorkerLost(const WorkerOffer& worker, const std::string& reason, Now now);
  // Ends what runs, for `reason`. There is no outcome after it.
  void Stop(const std::string& reason, Now now);
  void Tick(Now now);
  // Looks at what the run under way has come to. Called after every event, also of the run's own.
  void GoOn(Now now);

  // ---- Looking.
  // The run under way, or null. Its own events are its owner's to hand on.
  JobRun* run() { return run_.get(); }
  const JobRun* run() const { return run_.get(); }
  std::vector<std::string> InUse() const;
  std::optional<int64_t> NextDeadlineNs() const;
  // Set once, when nothing runs any more.
  const std::optional<Outcome>& outcome() const { return outcome_; }
  // Stopped, and nothing runs any more.
  bool Stopped() const { return stopped_ && run_ == nullptr; }
  // The largest epoch of its runs.
  int64_t epoch() const { return epoch_; }

  // These return what was added since the last call.
  CoordinatorEffects TakeEffects() { return std::exchange(effects_, {}); }
  std::vector<v1::JobEvent> TakeEvents() { return std::exchange(events_, {}); }
  std::vector<NotStopped> TakeNotStopped() { return std::exchange(not_stopped_, {}); }

 private:
  void Measure(Now now);
  void OnMeasured(const v1::ClusterProfile& profile, Now now);
  void AskForCandidates(Now now);
  // What was asked for last has not come in time.
  void OnNoAnswer(Now now);
  void BeginRace(Now now);
  void NextHeat(Now now);
  void EndHeat(Now now);
  void ChooseByRace(Now now);
  // Chooses the candidate that is expected to be the first at a loss; nothing races, for `why`.
  void ChooseByExpectedTime(const std::string& why, Now now);
  void LearnFromRace();
  void Choose(int candidate, const std::string& reason, Now now);
  // No candidate can run.
  void EndWithoutCandidate();
  // Splits by estimate if the method is known, else fails.
  void GiveUp(const std::string& why);

  // Starts `record` on `workers` as a run of its own.
  void Run(const std::string& suffix, v1::GetJobResponse record, ResolvedJob job,
           const std::vector<WorkerOffer>& workers, Now now);
  // Takes the effects of the run: what the coordinator has to do, what the job's watchers see, what heats lose.
  void TakeFromRun(Now now);
  // The run is over. Workers that do not stop it get no other, so the planning ends as if they were lost.
  void TakeNotStoppedFromRun();
  void Log(const std::string& text);
  bool method_is_open() const;
  // Returns the workers of a plan's candidate, in the order of the pipeline.
  std::vector<WorkerOffer> WorkersOf(const JudgedCandidate& judged) const;

  const std::string job_id_;
  const v1::JobSpec spec_;
  const ResolvedJob draft_;
  const std::vector<WorkerOffer> workers_;
  const JobRunLimits& limits_;
  EarlierJobs& earlier_;
  int64_t epoch_;

  v1::ProfileSpec profile_spec_;
  ProfileGatherer known_;  // what needs not be measured
  std::shared_ptr<PlanningInput> input_;
  std::optional<JobPlan> plan_;
  std::optional<Race> race_;
  std::vector<int> racers_;  // candidates of the plan
  std::optional<Race::Heat> heat_;
  std::vector<double> losses_;  // of the heat
  int heats_ = 0;
  bool race_is_over_ = false;               // its time is
  std::optional<ExpectedChoice> expected_;  // where the expected time decides

  std::unique_ptr<JobRun> run_;
  CoordinatorEffects run_effects_;
  std::string run_error_;
  std::string lost_;
  bool stopped_ = false;
  int64_t asked_ns_ = 0;                  // when the phase began that is timed
  std::optional<int64_t> answer_due_ns_;  // of the effect that is under way
  std::optional<int64_t> race_deadline_ns_;
  v1::JobPlanning record_;
  std::optional<Outcome> outcome_;
  CoordinatorEffects effects_;
  std::vector<v1::JobEvent> events_;
  std::vector<NotStopped> not_stopped_;
};

}  // namespace penstock
