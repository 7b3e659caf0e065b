#include "coordinator/job_run.h"

#include <algorithm>
#include <filesystem>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "base/utf8.h"
#include "coordinator/job_phase.h"
#include "coordinator/profile_job.h"
#include "coordinator/report_check.h"
#include "coordinator/training_job.h"
#include "job/job_trace.h"

namespace penstock {

namespace {

std::string Normalised(const std::string& directory) {
  const std::filesystem::path normal = std::filesystem::path(directory).lexically_normal();
  return normal.has_filename() ? normal.string() : normal.parent_path().string();
}

}  // namespace

std::unique_ptr<JobRun> JobRun::Make(const v1::GetJobResponse& record, int64_t last_sequence,
                                     ResolvedJob job, const JobRunLimits& limits,
                                     EarlierJobs& earlier, CoordinatorEffects& effects) {
  if (record.has_profile_spec()) {
    return std::make_unique<ProfileJob>(record, last_sequence, std::move(job), limits, effects);
  }
  return std::make_unique<TrainingJob>(record, last_sequence, std::move(job), limits, earlier,
                                       effects);
}

JobRun::JobRun(const v1::GetJobResponse& record, int64_t last_sequence, ResolvedJob job,
               const JobRunLimits& limits, CoordinatorEffects& effects)
    : summary_(record.summary()),
      spec_(record.spec()),
      resolved_(std::move(job)),
      directory_(Normalised(spec_.checkpoint().directory())),
      traceparent_(record.traceparent()),
      trace_(JobTraceOf(record)),
      limits_(limits),
      effects_(effects),
      last_sequence_(last_sequence),
      epoch_(record.epoch()),
      phase_(std::make_unique<Queued>(*this)) {}

JobRun::~JobRun() = default;

// ---------------------------------------------------------------------------------------- looking

v1::GetJobResponse JobRun::Record() const {
  v1::GetJobResponse record;
  *record.mutable_summary() = summary_;
  *record.mutable_spec() = spec_;
  record.set_traceparent(traceparent_);
  record.set_epoch(epoch_);
  if (!ended()) record.set_cancel_reason(cancel_reason_);
  WriteTo(record);
  phase_->WriteRun(record);
  return record;
}

int64_t JobRun::WorkersNeeded() const {
  return phase_->queued()->workers_before().value_or(FewestWorkers());
}

bool JobRun::TakesAllFree() const {
  return !phase_->queued()->workers_before().has_value() && WantsAllFree();
}

int64_t JobRun::WorkersOf(int64_t free) const {
  return phase_->queued()->workers_before().value_or(WorkersAmong(free));
}

bool JobRun::queued() const { return phase_->queued() != nullptr; }
int64_t JobRun::rests_until_ns() const { return phase_->queued()->rests_until_ns(); }
bool JobRun::HoldsBack(Now now) const { return phase_->HoldsBack(now); }
bool JobRun::CanReturn() const { return phase_->CanReturn(); }
bool JobRun::WantsMore(Now now) const { return phase_->WantsMore(now); }
JobRun* JobRun::planning_run() const { return phase_->run(); }
bool JobRun::Over() const { return phase_->over(); }
std::vector<std::string> JobRun::InUse() const { return phase_->InUse(); }
std::optional<int64_t> JobRun::NextDeadlineNs() const { return phase_->NextDeadlineNs(); }

std::optional<int32_t> JobRun::IndexOf(const std::string& worker, uint64_t incarnation,
                                       int64_t epoch) const {
  const Crew* const crew = phase_->crew();
  if (crew == nullptr || crew->epoch() != epoch) return std::nullopt;
  return crew->Find(worker, incarnation);
}

int64_t JobRun::NextSequence(int32_t worker_index) const {
  return phase_->crew()->parts()[worker_index].next_sequence;
}

std::optional<int64_t> JobRun::StoredSequence(int32_t worker_index) const {
  if (!IsKept()) return std::nullopt;
  return phase_->crew()->parts()[worker_index].stored_sequence;
}

absl::Status JobRun::CheckInvariants() const {
  absl::Status status = CheckSteps();
  if (const Crew* crew = phase_->crew()) status.Update(crew->CheckInvariants());
  if (ended() != (summary_.ended_unix_ms() != 0)) {
    status = absl::InternalError("has ended without an end time, or has one too early");
  } else if (!phase_->Fits(state())) {
    status = absl::InternalError("its phase and its state differ");
  }
  return Annotate(status, absl::StrCat("job ", id()));
}

// ----------------------------------------------------------------------------------------- events

void JobRun::Become(NextPhase next, Now now) {
  while (next != nullptr) {
    phase_ = std::move(next);
    ++phases_begun_;
    next = phase_->Enter(now);
  }
}

void JobRun::OnFree(const std::vector<WorkerOffer>& free, Now now) {
  Become(phase_->OnFree(free, now), now);
}

void JobRun::OnSpare(const std::vector<WorkerOffer>& free, Now now) {
  Become(phase_->OnSpare(free, now), now);
}

std::unique_ptr<JobPhase> JobRun::AfterRestart(Now) { return nullptr; }

void JobRun::OnRestart(Now now) { Become(AfterRestart(now), now); }

void JobRun::Wait(const std::string& reason, Now now) {
  if (summary_.reason() == reason) return;
  summary_.set_reason(reason);
  SetWaiting(now);
}

void JobRun::Begin(absl::Span<const WorkerOffer> workers, Now now) {
  NextEpoch(now);
  summary_.clear_reason();
  if (!recovering()) SetState(v1::JOB_STATE_PREPARING, now);
  Become(FirstPhase(std::make_unique<Crew>(*this, std::vector(workers.begin(), workers.end()))),
         now);
}

void JobRun::OnAnswer(EffectAnswer answer, Now now) {
  const auto* const call = std::get_if<CallAnswer>(&answer);
  if (call == nullptr) return Become(phase_->OnAnswer(answer, now), now);
  const Crew* const crew = phase_->crew();
  if (crew == nullptr || call->epoch != crew->epoch() || call->worker_index < 0 ||
      call->worker_index >= crew->size()) {
    return;
  }
  Become(phase_->OnResponse(call->worker_index, call->response, now), now);
}

absl::Status JobRun::CheckReport(int32_t worker_index, int64_t first_sequence,
                                 absl::Span<const v1::RunEvent* const> events) const {
  constexpr int64_t kSequenceMax = int64_t{1} << 62;
  if (first_sequence < 0 || first_sequence > kSequenceMax) {
    return absl::InvalidArgumentError(absl::StrCat("reports events from number ", first_sequence,
                                                   " on; expected 0 to ", kSequenceMax));
  }
  const int64_t next = NextSequence(worker_index);
  for (const v1::RunEvent* event : events) {
    if (first_sequence++ < next) continue;
    absl::Status good = CheckEventSize(*event, resolved_.model.size());
    good.Update(CheckEvent(worker_index, *event));
    PENSTOCK_RETURN_IF_ERROR(good);
  }
  return absl::OkStatus();
}

void JobRun::OnRefusedReport(int32_t worker_index, const absl::Status& refused, Now now) {
  Crew& crew = *phase_->crew();
  if (ended() || crew.parts()[worker_index].done) return;
  crew.blame().Own(worker_index, std::string(refused.message()));
  Become(phase_->Tick(now), now);
}

int64_t JobRun::OnReport(int32_t worker_index, int64_t first_sequence,
                         absl::Span<const v1::RunEvent* const> events, Now now) {
  const int64_t epoch = phase_->crew()->epoch();
  int64_t next = NextSequence(worker_index);
  for (const v1::RunEvent* event : events) {
    if (first_sequence++ != next) continue;
    Crew* const crew = phase_->crew();
    const bool is_over = crew == nullptr || crew->epoch() != epoch;  // an event before has ended it
    const bool counts = !is_over && !ended() && crew->parts()[worker_index].start_asked;
    if (counts && !MayTake(*event)) break;
    ++next;
    if (!is_over) crew->parts()[worker_index].next_sequence = next;
    if (!counts) continue;
    progressed_ns_ = now.monotonic_ns;
    Become(phase_->OnEvent(worker_index, *event, now), now);
  }
  return next;
}

std::optional<int64_t> JobRun::OnHeartbeat(int32_t worker_index,
                                           const v1::HeartbeatRequest& heartbeat, Now now) {
  Become(phase_->OnHeard(worker_index, heartbeat.held(), now), now);
  if (phase_->crew() == nullptr) return std::nullopt;
  Crew& crew = *phase_->crew();
  Crew::Part& part = crew.parts()[worker_index];
  part.heartbeats.OnHeartbeat(now.monotonic_ns);
  if (FailsForLink(worker_index, heartbeat, now)) return std::nullopt;
  const int64_t actions_done = heartbeat.actions_done();
  if (std::exchange(part.actions_done, actions_done) != actions_done) {
    progressed_ns_ = now.monotonic_ns;
    if (actions_done > 0) phase_->OnComesFurther(now);
  }
  std::optional<int64_t> still_ns = part.pulse.OnHeartbeat(
      heartbeat.pulse(), PulseWatch::LimitNs(StepSeconds()), now.monotonic_ns);
  const std::optional<int64_t> unsteady_ns = part.unsteady_pulse.OnHeartbeat(
      heartbeat.unsteady_pulse(), PulseWatch::UnsteadyLimitNs(StepSeconds()), now.monotonic_ns);
  if (!still_ns.has_value()) still_ns = unsteady_ns;
  if (!still_ns.has_value() || ended() || part.done || part.stuck) return std::nullopt;
  part.stuck = true;
  crew.blame().Own(worker_index,
                   absl::StrFormat("is stuck: it has neither gone on nor waited for another worker "
                                   "for %.1f s, in action %d of its run",
                                   1e-9 * static_cast<double>(*still_ns), actions_done + 1),
                   v1::ATTEMPT_CAUSE_STALLED);
  Become(phase_->Tick(now), now);
  return still_ns;
}

bool JobRun::FailsForLink(int32_t worker_index, const v1::HeartbeatRequest& heartbeat, Now now) {
  Crew& crew = *phase_->crew();
  if (ended() || crew.blame().any()) return false;
  Crew::Part& reporter = crew.parts()[worker_index];
  for (const v1::SilentLink& link : heartbeat.silent_links()) {
    for (Crew::Part& peer : crew.parts()) {
      const bool is_dead = peer.worker.name == link.peer() && &peer != &reporter && !peer.lost &&
                           LinkWatch::IsDead(reporter.heartbeats, peer.heartbeats, link.silent_ms(),
                                             now.monotonic_ns);
      if (!is_dead) continue;
      if (!OnDeadLink(reporter.worker.name, peer.worker.name, now)) return false;
      reporter.at_dead_link = peer.at_dead_link = true;
      crew.blame().Own(
          Blame::kNobody,
          absl::StrFormat("the link between workers %s (%s) and %s (%s) is dead: %s has heard "
                          "nothing over it for %.1f s, while both reach the coordinator",
                          reporter.worker.name, reporter.worker.address, peer.worker.name,
                          peer.worker.address, reporter.worker.name,
                          1e-3 * static_cast<double>(link.silent_ms())),
          v1::ATTEMPT_CAUSE_UNREACHABLE);
      Become(phase_->Tick(now), now);
      return true;
    }
  }
  return false;
}

void JobRun::OnWorkerLost(const std::string& worker, uint64_t incarnation,
                          const std::string& reason, Now now) {
  phase_->DropJoining(worker);
  OnGone(worker, incarnation);
  Become(phase_->OnWorkerLost(worker, incarnation, reason, now), now);
}

void JobRun::OnRegistered(const std::string& worker, uint64_t incarnation, Now now) {
  OnOtherProcess(worker, incarnation);
  Become(phase_->OnRegistered(worker, incarnation, now), now);
}

bool JobRun::OnReporting(int32_t worker_index, int64_t kept_from, Now now) {
  Crew& crew = *phase_->crew();
  if (!crew.adopted() || ended() || crew.blame().any()) return false;
  const int64_t phases = phases_begun_;
  if (kept_from > NextSequence(worker_index)) {
    crew.blame().Own(Blame::kNobody,
                     absl::StrCat("the coordinator was restarted, and worker ",
                                  crew.parts()[worker_index].worker.name,
                                  " no longer has what it reported before that was not stored"),
                     v1::ATTEMPT_CAUSE_COORDINATOR_RESTARTED);
    Become(phase_->Tick(now), now);
  } else {
    Become(phase_->OnHeard(worker_index, /*is_held=*/false, now), now);
  }
  return phases_begun_ != phases;
}

void JobRun::OnStored() {
  if (Crew* const crew = phase_->crew()) crew->OnStored();
  OnRecordStored();
}

void JobRun::OnWorkerLeaving(const std::string& worker, Now now) {
  if (phase_->DropJoining(worker) || ended() || !phase_->crew()->OnLeaving(worker)) return;
  if (CanReturn()) return Return(absl::StrCat("worker ", worker, " is leaving"), now);
  Log(absl::StrCat("worker ", worker,
                   " is leaving, and ends with what the job has not done by then: ", WhyNotSaved()),
      now);
}

void JobRun::Cancel(const std::string& reason, Now now) {
  if (ended() || !cancel_reason_.empty()) return;
  cancel_reason_ = reason;
  Save();  // also where the phase does nothing yet
  Become(phase_->Cancel(now), now);
}

void JobRun::Stop(const std::string& reason, Now now) {
  if (ended()) return;
  cancel_reason_ = reason;
  Become(phase_->JobPhase::Cancel(now), now);
}

void JobRun::Return(const std::string& reason, Now now) {
  Crew* const crew = phase_->crew();
  if (crew == nullptr || ended() || !cancel_reason_.empty() || !crew->return_reason().empty()) {
    return;
  }
  crew->SetReturnReason(reason);
  Become(phase_->Return(now), now);
}

void JobRun::Tick(Now now) { Become(phase_->Tick(now), now); }
void JobRun::GoOnPlanning(Now now) { Become(phase_->GoOn(now), now); }

// ----------------------------------------------------------------------------------- for its phases

void JobRun::SetSpec(v1::JobSpec spec, ResolvedJob resolved) {
  spec_ = std::move(spec);
  resolved_ = std::move(resolved);
  summary_.set_method(spec_.pipeline().method());
}

void JobRun::Save() {
  SaveJob save{Record()};
  Crew* const crew = phase_->crew();
  if (crew != nullptr && save.record.has_run()) crew->OnSaved();
  OnRecordSaved();
  Add(std::move(save));
}

int64_t JobRun::NextEpoch(Now now) {
  const int64_t first =
      limits_.epochs_from > 0 ? limits_.epochs_from : std::max<int64_t>(1, now.unix_ms);
  // The time counts only where a job begins. A term counts whenever it is later.
  epoch_ = epoch_ == 0 ? first : std::max(epoch_ + 1, limits_.epochs_from);
  Save();
  return epoch_;
}

void JobRun::SetState(v1::JobState state, Now now) {
  summary_.set_state(state);
  summary_.clear_estimated_remaining_seconds();  // until the next step, if there is one
  if (state == v1::JOB_STATE_SUCCEEDED) summary_.set_estimated_remaining_seconds(0);
  if (ended()) {
    summary_.set_ended_unix_ms(now.unix_ms);
    ended_ns_ = now.monotonic_ns;
  }
  v1::JobEvent event;
  *event.mutable_state_changed() = summary_;
  Publish(std::move(event), now);
  Save();
}

void JobRun::SetWaiting(Now now) {
  SetState(recovering() ? v1::JOB_STATE_RECOVERING : v1::JOB_STATE_QUEUED, now);
}

void JobRun::AddNotStopped(const Crew& crew) {
  for (const WorkerOffer& worker : crew.StillTaken(/*reachable=*/false)) {
    AddNotStopped({.worker = worker.name,
                   .incarnation = worker.incarnation,
                   .job_id = id(),
                   .epoch = crew.epoch()});
  }
}

void JobRun::SetRunning(Now now) {
  progressed_ns_ = now.monotonic_ns;
  if (started_ns_ == 0) started_ns_ = now.monotonic_ns;  // else an attempt before has run
  if (summary_.started_unix_ms() == 0) summary_.set_started_unix_ms(now.unix_ms);
  SetState(v1::JOB_STATE_RUNNING, now);
}

void JobRun::Publish(v1::JobEvent event, Now now) {
  if (ended() && !event.has_state_changed()) return;
  event.set_sequence(++last_sequence_);
  event.set_unix_ms(now.unix_ms);
  Add(PublishEvent{id(), std::move(event)});
}

void JobRun::Log(const std::string& text, Now now) {
  v1::JobEvent event;
  event.set_log(CleanUtf8(text, kTextBytesMax));
  Publish(std::move(event), now);
}

}  // namespace penstock
