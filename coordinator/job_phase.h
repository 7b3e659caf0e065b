// JobPhase: what a job does at the moment, as an object that has the state that this takes and no other.
//
// An event goes in, the next phase comes out, or null: this phase goes on. A phase adds what it wants done to its job
// as effects. Events that do not concern a phase leave it as it is. The phases of training are in training_phases.h,
// those of measuring in profile_job.cc; this header has what both share.
//
// State machines without clock or I/O (effects.h); thread-compatible.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/blame.h"
#include "coordinator/crew.h"
#include "coordinator/effects.h"
#include "coordinator/job_run.h"
#include "penstock/v1/cluster.pb.h"

namespace penstock {

class Queued;

using NextPhase = std::unique_ptr<JobPhase>;

class JobPhase {
 public:
  // `crew`: the workers that the job has; may be null. REQUIRES: `job` outlives the phase.
  explicit JobPhase(JobRun& job, std::unique_ptr<Crew> crew = nullptr)
      : job_(job), crew_(std::move(crew)) {}
  virtual ~JobPhase() = default;
  JobPhase(const JobPhase&) = delete;
  JobPhase& operator=(const JobPhase&) = delete;

  // ---- Events. REQUIRES, of those with the index of a worker: the crew has it.
  // The job comes into the phase. Called first, and once.
  virtual NextPhase Enter(Now) { return nullptr; }
  // An effect that is no call is answered. The phase may take what it wants from `answer`.
  virtual NextPhase OnAnswer(EffectAnswer& answer, Now now);
  virtual NextPhase OnResponse(int32_t, const WorkerResponse&, Now) { return nullptr; }
  // A worker that was to start tells of it.
  virtual NextPhase OnEvent(int32_t, const v1::RunEvent&, Now) { return nullptr; }
  virtual NextPhase OnWorkerLost(const std::string& worker, uint64_t incarnation,
                                 const std::string& reason, Now now);
  // The worker has told of its run: in a heartbeat, or with a report. `is_held`: the run waits for a cut.
  virtual NextPhase OnHeard(int32_t, bool /*is_held*/, Now) { return nullptr; }
  // A worker comes further, with actions or with data that it fetches: while others wait for it to prepare, the time that it
  // has for that begins again.
  void OnComesFurther(Now now);
  // A process of this name has made itself known, which may be another than that of the crew: that is lost then.
  NextPhase OnRegistered(const std::string& worker, uint64_t incarnation, Now now);
  // The job is to end as soon as it can without losing a step; JobRun::cancel_reason says why. Here: at once.
  virtual NextPhase Cancel(Now now);
  // The job is to drain and go back to the queue; Crew::return_reason says why. REQUIRES: CanReturn().
  virtual NextPhase Return(Now) { return nullptr; }
  // The job ends in `state` without its workers' consent.
  virtual NextPhase End(v1::JobState state, Now /*now*/) { return EndNow(state); }
  virtual NextPhase Tick(Now now);
  // It waits, and these workers are free. Called before it is begun on any.
  virtual NextPhase OnFree(const std::vector<WorkerOffer>& /*free*/, Now) { return nullptr; }
  // It WantsMore, and these workers are free, for which no other job waits.
  virtual NextPhase OnSpare(const std::vector<WorkerOffer>& /*free*/, Now) { return nullptr; }
  // Returns whether the worker was to join with the next attempt, which it does no longer.
  virtual bool DropJoining(const std::string& /*worker*/) { return false; }
  // Something happened to a run that the phase has under way.
  virtual NextPhase GoOn(Now) { return nullptr; }

  // ---- Looking.
  // Returns whether a job in this state can be in the phase.
  virtual bool Fits(v1::JobState state) const {
    return state == v1::JOB_STATE_PREPARING || state == v1::JOB_STATE_RECOVERING;
  }
  virtual bool CanReturn() const { return job_.IsSaved(); }
  // Returns whether it is time to go on with more workers, if there are enough.
  virtual bool WantsMore(Now) const { return false; }
  // Returns whether the job recovers, and those behind it wait whatever it waits for.
  virtual bool HoldsBack(Now) const { return false; }
  // Returns this phase if the job waits, or null.
  virtual const Queued* queued() const { return nullptr; }
  // Returns whether the job has ended and no worker is taken any more.
  virtual bool over() const { return false; }
  Crew* crew() const { return crew_.get(); }
  // Returns the names of the workers that are taken.
  virtual std::vector<std::string> InUse() const {
    return crew_ == nullptr ? std::vector<std::string>() : crew_->InUse();
  }
  // Adds to the record what a coordinator needs to go on with the attempt after a restart, if it can.
  virtual void WriteRun(v1::GetJobResponse&) const {}
  // Returns the run that it has under way, or null.
  virtual JobRun* run() { return nullptr; }
  // Returns the time when Tick next has something to do.
  virtual std::optional<int64_t> NextDeadlineNs() const;

 protected:
  // Ends the job; the workers that have heard of it are stopped.
  NextPhase EndNow(v1::JobState state);
  // Ends the job with an error.
  virtual NextPhase Fail(const std::string& error, Now now);
  // Ends the job, or what it does, if one of its workers has failed. Here: fails the job once it is settled which one
  // failed first.
  virtual NextPhase FailIfBlamed(Now now);
  // Returns when FailIfBlamed has something to do, by what is known so far.
  virtual std::optional<int64_t> DecidesAtNs() const { return crew_->blame().DecideAtNs(); }
  // Says who failed and why, for people.
  std::string TextOf(const Blame::Verdict& verdict) const;
  // Names the worker, for people.
  virtual std::string NameOf(int32_t worker_index) const;
  // Returns whether the workers show progress, or are stuck.
  virtual bool Works() const { return false; }
  // They have been stuck for too long, as `error` says.
  virtual NextPhase OnStalled(const std::string& error, Now now) { return Fail(error, now); }
  // From now on the phase waits for others, which `reason` says in the job's summary, and for at most `limit_ms`. What it
  // waited for before has come.
  void Await(const std::string& reason, int64_t limit_ms, Now now);
  // What it waited for has come.
  void StopAwaiting();
  // It has waited for `seconds` in vain. REQUIRES, of phases that call Await: they override it.
  virtual NextPhase OnOverdue(int64_t /*seconds*/, Now) { return nullptr; }
  // Waits until the crew is launched, which has just been asked to prepare or has answered.
  void AwaitLaunch(Now now);
  // Lists a few of the names, and the number of the others.
  static std::string AFewOf(std::vector<std::string> names);
  // Names those that have not prepared, or not started.
  std::string NamesOfMissing() const;
  // Says that they have not for `seconds`, and advises a user if the job ends with that.
  std::string WhatIsLate(int64_t seconds, bool ends) const;
  // Fails the job because of them.
  NextPhase FailAsLate(int64_t seconds, Now now);

  JobRun& job_;
  std::unique_ptr<Crew> crew_;

 private:
  int64_t StalledAtNs() const;
  void OnWithheld(const PrepareWithheld& news, Now now);

  std::optional<int64_t> due_ns_;  // of what it waits for
  int64_t limit_ms_ = 0;
  bool awaits_launch_ = false;
  bool awaits_start_ = false;
};

// How a job waits that was begun before.
struct WaitTerms {
  std::string reason;
  // It is not begun again before this.
  int64_t rests_until_ns = 0;
  // Until `workers_until_ns`, or for as long as it waits, it wants as many workers as it had.
  std::optional<int64_t> workers_before = std::nullopt;
  int64_t workers_until_ns = 0;
  // Until then those behind it wait as well, whatever it waits for.
  int64_t holds_back_until_ns = 0;
};

// Waits for workers. A job that recovers stays in that state.
class Queued : public JobPhase {
 public:
  // The job was just submitted, or was taken over from an earlier process.
  using JobPhase::JobPhase;
  // The job comes back to the queue.
  Queued(JobRun& job, WaitTerms terms) : JobPhase(job), terms_(std::move(terms)) {}

  int64_t rests_until_ns() const { return terms_.rests_until_ns; }
  std::optional<int64_t> workers_before() const { return terms_.workers_before; }

  NextPhase Enter(Now now) override;
  NextPhase Tick(Now now) override;
  bool Fits(v1::JobState state) const override {
    return state == v1::JOB_STATE_QUEUED || state == v1::JOB_STATE_RECOVERING;
  }
  bool HoldsBack(Now now) const override { return now.monotonic_ns < terms_.holds_back_until_ns; }
  const Queued* queued() const override { return this; }
  std::optional<int64_t> NextDeadlineNs() const override;

 protected:
  const WaitTerms& terms() const { return terms_; }
  // It has waited for as many workers as it had until the time that it was to.
  virtual void OnWaited() { terms_.workers_before.reset(); }

 private:
  WaitTerms terms_;
};

// The job has ended. Workers that are left are stopped: until each has confirmed it, is lost, or the time is over.
class Ended final : public JobPhase {
 public:
  Ended(JobRun& job, v1::JobState state, std::unique_ptr<Crew> crew)
      : JobPhase(job, std::move(crew)), state_(state) {}

  NextPhase Enter(Now now) override;
  NextPhase OnResponse(int32_t worker_index, const WorkerResponse& response, Now now) override;
  NextPhase OnWorkerLost(const std::string& worker, uint64_t incarnation, const std::string& reason,
                         Now now) override;
  NextPhase Tick(Now now) override;
  bool Fits(v1::JobState state) const override { return IsTerminal(state); }
  bool over() const override { return crew_ == nullptr; }
  std::optional<int64_t> NextDeadlineNs() const override {
    return std::min(retry_ns_, deadline_ns_);
  }

 private:
  void AskToStop(Now now);
  // No worker is taken any more. Called once.
  void LetCrewGo();

  const v1::JobState state_;
  int64_t retry_ns_ = 0;
  int64_t deadline_ns_ = 0;
};

}  // namespace penstock
