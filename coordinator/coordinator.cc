#include "coordinator/coordinator.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/status.h"
#include "coordinator/adoption.h"
#include "coordinator/attempt_record.h"
#include "coordinator/job_id.h"
#include "coordinator/recovery_policy.h"
#include "job/open_job.h"
#include "job/profile/cluster_profile.h"

namespace penstock {
namespace {

constexpr size_t kIdempotencyKeyBytesMax = 256;
constexpr absl::string_view kCancelReason = "cancelled by the user";

absl::Status NoSuchJob(const std::string& job_id) {
  return absl::NotFoundError(absl::StrCat("there is no job \"", job_id.substr(0, 128), "\""));
}

// Says of a cancelled job that a restart has ended which of its steps are lost; nothing if it has not trained.
std::string WhatIsLost(const v1::GetJobResponse& record) {
  const v1::JobSummary& summary = record.summary();
  const bool trained = summary.state() == v1::JOB_STATE_RUNNING ||
                       summary.state() == v1::JOB_STATE_DRAINING ||
                       summary.state() == v1::JOB_STATE_RECOVERING;
  if (record.has_profile_spec() || summary.started_unix_ms() == 0 || !trained) return "";
  return absl::StrCat("; the coordinator was restarted before the job had ended, so ",
                      WhatIsLostOf(record.result()));
}

}  // namespace

Coordinator::Coordinator(const CoordinatorLimits& limits)
    : limits_(limits), membership_(limits.membership) {}

void Coordinator::Restore(std::vector<StoredJob> jobs, Now now) {
  size_t left = jobs.size();
  // A job whose end could not be stored any more may have had workers that another one has got since.
  std::map<std::string, int64_t> latest_epochs;  // of those under way, by worker
  for (const StoredJob& job : jobs) {
    if (IsTerminal(job.record.summary().state())) continue;
    for (const v1::RunWorker& worker : job.record.run().workers()) {
      int64_t& latest = latest_epochs[worker.name()];
      latest = std::max(latest, job.record.epoch());
    }
  }
  const auto has_its_workers = [&](const v1::GetJobResponse& record) {
    return std::all_of(record.run().workers().begin(), record.run().workers().end(),
                       [&](const v1::RunWorker& worker) {
                         return latest_epochs[worker.name()] == record.epoch();
                       });
  };
  for (StoredJob& job : jobs) {
    const v1::JobSummary& summary = job.record.summary();
    TakeId(summary.job_id());
    if (left-- <= LearnedSteps::kRunsMax) earlier_.steps.Learn(job.record);
    if (!job.idempotency_key.empty()) {
      job_of_key_[job.idempotency_key] = summary.job_id();
    }
    if (IsTerminal(summary.state())) {
      ended_[summary.job_id()] = summary;
      continue;
    }
    if (!job.record.cancel_reason().empty()) {
      EndAfterRestart(std::move(job), now);
      continue;
    }
    // A job that an older build stored lacks the keys that were added since.
    FillKnownDefaults(*job.record.mutable_spec());
    absl::StatusOr<ResolvedJob> resolved = ResolveSubmitted(job.record.spec());
    const bool goes_on =
        resolved.ok() && has_its_workers(job.record) && CanBeAdopted(job.record, *resolved);
    if (goes_on || (resolved.ok() && WaitsAgain(job.record, now))) {
      if (!goes_on) {
        job.record.clear_plan();  // of an attempt of that process, if it had any
        job.record.clear_run();
      }
      AddRun(job.record, job.last_sequence, *std::move(resolved));
      Find(job.record.summary().job_id())->OnRestart(now);
    } else {
      EndAfterRestart(std::move(job), now);
    }
  }
  if (!runs_.empty()) {
    all_returned_ns_ = now.monotonic_ns + limits_.run.adopt_timeout_ms * kNsPerMs;
  }
}

std::string Coordinator::NextId(const std::string& name) const {
  const auto last = last_numbers_.find(name);
  const int64_t number = last == last_numbers_.end() ? 1 : last->second + 1;
  return absl::StrCat(name, "-", number,
                      limits_.draw == nullptr ? "" : "-" + LettersOf(limits_.draw()));
}

void Coordinator::TakeId(const std::string& job_id) {
  order_.push_back(job_id);
  const std::optional<NumberedName> parts = ParseJobId(job_id);
  if (!parts.has_value()) return;
  int64_t& last = last_numbers_[std::string(parts->name)];
  last = std::max(last, parts->number);
}

bool Coordinator::WaitsAgain(v1::GetJobResponse& record, Now now) {
  v1::JobSummary& summary = *record.mutable_summary();
  if (summary.state() == v1::JOB_STATE_QUEUED) return true;
  if (summary.state() == v1::JOB_STATE_PREPARING && !record.has_plan()) {
    summary.set_state(v1::JOB_STATE_QUEUED);
    summary.set_reason("the coordinator was restarted before the job was planned");
    return true;
  }
  // Builds that kept no epoch did not say either why a job drained: it may have been cancelled.
  const bool drained_to_return = summary.state() == v1::JOB_STATE_DRAINING && record.epoch() > 0;
  const bool under_way = summary.state() == v1::JOB_STATE_PREPARING ||
                         summary.state() == v1::JOB_STATE_RUNNING ||
                         summary.state() == v1::JOB_STATE_RECOVERING || drained_to_return;
  if (!under_way || record.has_profile_spec()) return false;
  const bool has_snapshot = record.snapshots_size() > 0;
  // It lost a worker before its first snapshot.
  const bool begins_again =
      summary.state() == v1::JOB_STATE_RECOVERING && record.result().snapshot_step() == 0;
  if (!IsSaved(record) && !Recovers(record.spec()) && !has_snapshot && !begins_again) return false;
  ResumeOwn(record.result(), *record.mutable_spec()->mutable_checkpoint());
  if (record.has_result()) {
    const v1::Attempt* const open = OpenAttempt(*record.mutable_result());
    const bool has_failed = open != nullptr && open->detected_ms() > 0;
    EndAttemptRecord(
        has_failed ? v1::ATTEMPT_CAUSE_RUN_FAILED : v1::ATTEMPT_CAUSE_COORDINATOR_RESTARTED, "",
        has_failed ? summary.reason() : "the coordinator was restarted", now.unix_ms,
        *record.mutable_result());
  }
  // A job that recovers goes on doing so.
  if (summary.state() != v1::JOB_STATE_RECOVERING) summary.set_state(v1::JOB_STATE_QUEUED);
  summary.clear_estimated_remaining_seconds();
  summary.set_reason(absl::StrCat("the coordinator was restarted; the job ",
                                  IsSaved(record) ? "goes on from its last checkpoint"
                                  : has_snapshot  ? "goes on from its last snapshot"
                                                  : "begins again where it began"));
  return true;
}

void Coordinator::EndAfterRestart(StoredJob job, Now now) {
  v1::JobSummary& summary = *job.record.mutable_summary();
  const std::string what_is_lost = WhatIsLost(job.record);
  const std::string cancel_reason = job.record.cancel_reason();
  job.record.clear_cancel_reason();
  job.record.clear_run();
  summary.set_ended_unix_ms(now.unix_ms);
  summary.clear_reason();
  summary.clear_estimated_remaining_seconds();
  if (cancel_reason.empty()) {
    summary.set_state(v1::JOB_STATE_FAILED);
    summary.set_error(absl::StrCat("the coordinator was restarted while the job was under way",
                                   AdviceToGoOn(job.record.spec(), job.record.result())));
  } else {
    summary.set_state(v1::JOB_STATE_CANCELLED);
    summary.set_reason(cancel_reason + what_is_lost);
  }
  v1::JobEvent event;
  event.set_sequence(job.last_sequence + 1);
  event.set_unix_ms(now.unix_ms);
  *event.mutable_state_changed() = summary;
  ended_[summary.job_id()] = summary;
  effects_.push_back(PublishEvent{summary.job_id(), std::move(event)});
  effects_.push_back(SaveJob{std::move(job.record), std::move(job.idempotency_key)});
}

void Coordinator::AddRun(const v1::GetJobResponse& record, int64_t last_sequence, ResolvedJob job) {
  const std::string job_id = record.summary().job_id();
  runs_[job_id] =
      JobRun::Make(record, last_sequence, std::move(job), limits_.run, earlier_, effects_);
  if (record.summary().state() == v1::JOB_STATE_RECOVERING) {
    WaitFirst(job_id);
  } else if (!record.has_run()) {
    waiting_.push_back(job_id);
  }
}

absl::StatusOr<v1::RegisterWorkerResponse> Coordinator::RegisterWorker(
    const v1::RegisterWorkerRequest& request, Now now) {
  const absl::StatusOr<std::optional<Departure>> registered =
      membership_.Register(request, now.monotonic_ns);
  if (absl::IsAlreadyExists(registered.status())) {
    if (const auto stream = membership_.Doubt(request.name(), now.monotonic_ns))
      Probe(request.name(), *stream);
  }
  PENSTOCK_ASSIGN_OR_RETURN(const std::optional<Departure> departure, registered);
  if (departure.has_value()) {
    OnDeparture(*departure, now);
  }
  for (auto& [job_id, run] : runs_) {
    run->OnRegistered(request.name(), request.incarnation(), now);
  }
  Settle(now);
  v1::RegisterWorkerResponse response;
  response.set_heartbeat_interval_ms(membership_.HeartbeatIntervalMs());
  response.set_heartbeat_timeout_ms(limits_.membership.heartbeat_timeout_ms);
  response.set_term(TermOf(limits_.run.epochs_from));
  return response;
}

absl::Status Coordinator::CheckJobId(const std::string& job_id) {
  constexpr size_t kBytesMax = 128;
  if (job_id.size() <= kBytesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a job's ID has at most ", kBytesMax,
                                                 " letters, this has ", job_id.size(),
                                                 ": `penstock list` shows them"));
}

absl::Status Coordinator::Heartbeat(const v1::HeartbeatRequest& request, Now now) {
  absl::Status heard = CheckJobId(request.job_id());
  if (heard.ok()) {
    heard = membership_.Heartbeat(request.name(), request.incarnation(), now.monotonic_ns);
  }
  if (!heard.ok()) rejected_.Count(heard);
  PENSTOCK_RETURN_IF_ERROR(heard);
  if (!request.job_id().empty()) {
    JobRun* run = Find(request.job_id());
    const std::optional<int32_t> index =
        run == nullptr ? std::nullopt
                       : run->IndexOf(request.name(), request.incarnation(), request.epoch());
    if (index.has_value()) {
      ForgetOrphan(request.name(), now);
      const int64_t phases = run->phases_begun();
      const std::optional<int64_t> still_ns = run->OnHeartbeat(*index, request, now);
      if (still_ns.has_value()) losses_.Count(LossCause::kStuck, *still_ns);
      if (still_ns.has_value() || run->phases_begun() != phases) Settle(now);
    } else {
      rejected_.Count(Rejection::kStaleEpoch);
      OnOrphan(request, now);
    }
  } else {
    ForgetOrphan(request.name(), now);
  }
  return request.leaving() ? LetGo(request.name(), now) : absl::OkStatus();
}

v1::HeartbeatResponse Coordinator::AnswerTo(const v1::HeartbeatRequest& request) const {
  constexpr int kJobsMax = 256;
  v1::HeartbeatResponse response;
  response.set_heartbeat_interval_ms(membership_.HeartbeatIntervalMs());
  for (const std::string& job_id : request.snapshot_jobs()) {
    const JobRun* const run = FindRun(job_id);
    if (run == nullptr || run->ended() || response.kept_size() >= kJobsMax) continue;
    v1::KeptSnapshots& kept = *response.add_kept();
    kept.set_job_id(job_id);
    kept.set_first_directory(run->FirstSnapshot());
  }
  return response;
}

absl::StatusOr<int64_t> Coordinator::Attach(const v1::AttachRequest& request, Now now) {
  absl::StatusOr<int64_t> stream =
      membership_.Attach(request.name(), request.incarnation(), now.monotonic_ns);
  if (!stream.ok()) rejected_.Count(stream.status());
  return stream;
}

void Coordinator::Detach(const std::string& worker, int64_t stream, Now now) {
  if (membership_.Detach(worker, stream, now.monotonic_ns)) Probe(worker, stream);
}

void Coordinator::Probe(const std::string& worker, int64_t stream) {
  effects_.push_back(ProbeWorker{worker, membership_.Find(worker)->registration.address(), stream});
}

void Coordinator::OnProbed(const ProbeWorker& probe, const absl::Status& answer, Now now) {
  const std::optional<Departure> departure =
      membership_.OnProbed(probe.worker, probe.stream, answer, now.monotonic_ns);
  if (!departure.has_value()) return;
  OnDeparture(*departure, now);
  Settle(now);
}

absl::Status Coordinator::LetGo(const std::string& worker, Now now) {
  const std::unordered_map<std::string, JobRun*> users = Users();
  const auto user = users.find(worker);
  if (user == users.end()) {
    membership_.Dismiss(worker);
    orphans_.erase(worker);
    Settle(now);  // a job may wait for it by name
    return absl::NotFoundError(absl::StrCat("worker ", worker, " has left"));
  }
  membership_.SetLeaving(worker);
  user->second->OnWorkerLeaving(worker, now);
  Settle(now);
  return absl::OkStatus();
}

void Coordinator::OnOrphan(const v1::HeartbeatRequest& request, Now now) {
  Orphan& orphan = orphans_[request.name()];
  if (orphan.incarnation != request.incarnation() || orphan.job_id != request.job_id() ||
      orphan.epoch != request.epoch()) {
    orphan = {.incarnation = request.incarnation(),
              .job_id = request.job_id(),
              .epoch = request.epoch(),
              .since_ns = now.monotonic_ns};
  }
  const int64_t stuck_ns = orphan.since_ns + limits_.run.stop_timeout_ms * kNsPerMs;
  if (!orphan.stuck && now.monotonic_ns >= stuck_ns) {
    orphan.stuck = true;
    Settle(now);  // what jobs wait for has changed
  }
  if (orphan.asked_ns.has_value() &&
      now.monotonic_ns - *orphan.asked_ns < limits_.orphan_stop_ms * kNsPerMs) {
    return;
  }
  orphan.asked_ns = now.monotonic_ns;
  v1::StopRunRequest stop;
  stop.set_job_id(request.job_id());
  stop.set_epoch(request.epoch());
  stop.set_reason("no job of the coordinator knows this run");
  stop.set_term(TermOf(limits_.run.epochs_from));
  effects_.push_back(CallWorker{request.job_id(), request.epoch(), -1, request.name(),
                                membership_.Find(request.name())->registration.address(),
                                std::move(stop)});
}

void Coordinator::ForgetOrphan(const std::string& worker, Now now) {
  const auto orphan = orphans_.find(worker);
  if (orphan == orphans_.end()) return;
  const bool was_stuck = orphan->second.stuck;
  orphans_.erase(orphan);
  if (was_stuck) Settle(now);
}

std::string Coordinator::WhyUnusable(const Member& member) const {
  const v1::RegisterWorkerRequest& worker = member.registration;
  const auto orphan = orphans_.find(worker.name());
  if (orphan == orphans_.end() || !orphan->second.stuck ||
      orphan->second.incarnation != worker.incarnation()) {
    return "";
  }
  return absl::StrCat("worker ", worker.name(), " does not stop its run of job ",
                      orphan->second.job_id,
                      ", which is over, and gets no work until it does; "
                      "restart the worker");
}

absl::StatusOr<v1::ReportRunResponse> Coordinator::ReportRun(const v1::ReportRunRequest& request,
                                                             Now now) {
  JobRun* run = Find(request.job_id());
  const std::optional<int32_t> index =
      run == nullptr ? std::nullopt
                     : run->IndexOf(request.worker(), request.incarnation(), request.epoch());
  if (!index.has_value()) {
    rejected_.Count(Rejection::kStaleEpoch);
    return absl::AbortedError(absl::StrCat("run ", request.job_id(), " epoch ", request.epoch(),
                                           " of worker ", request.worker(), " is over"));
  }
  std::vector<const v1::RunEvent*> events;
  for (const v1::RunEvent& event : request.events()) {
    events.push_back(&event);
  }
  if (const absl::Status good = run->CheckReport(*index, request.first_sequence(), events);
      !good.ok()) {
    rejected_.Count(good);
    run->OnRefusedReport(*index, good, now);
    Settle(now);
    return Annotate(good, absl::StrCat("worker ", request.worker(), " in job ", request.job_id()));
  }
  const int64_t kept_from =
      request.has_kept_from() ? request.kept_from() : request.first_sequence();
  // One that has not registered yet would not be missed.
  const Member* const member = membership_.Find(request.worker());
  const bool is_there = member != nullptr && member->alive &&
                        member->registration.incarnation() == request.incarnation();
  if (is_there && run->OnReporting(*index, kept_from, now)) {
    Settle(now);
    return ReportRun(request, now);  // to what has become of the job
  }
  const int64_t had = run->NextSequence(*index) - request.first_sequence();
  rejected_.Count(Rejection::kDuplicate, std::clamp<int64_t>(had, 0, request.events_size()));
  v1::ReportRunResponse response;
  const int64_t phases = run->phases_begun();
  response.set_next_sequence(run->OnReport(*index, request.first_sequence(), events, now));
  if (run->IndexOf(request.worker(), request.incarnation(), request.epoch()).has_value()) {
    if (const auto stored = run->StoredSequence(*index)) response.set_stored_sequence(*stored);
  }
  // Each worker reports each step, and nearly all of these reports change nothing for those that wait.
  if (run->phases_begun() != phases || run->of_planning() || run->WantsMore(now)) Settle(now);
  return response;
}

v1::ListWorkersResponse Coordinator::ListWorkers(Now now) const {
  v1::ListWorkersResponse response;
  const std::unordered_map<std::string, JobRun*> users = Users();
  for (const auto& [name, member] : membership_.members()) {
    v1::WorkerSummary& worker = *response.add_workers();
    worker.set_name(name);
    worker.set_address(member.registration.address());
    worker.set_device(member.registration.device());
    worker.set_memory_bytes(member.registration.memory_bytes());
    worker.set_alive(member.alive);
    worker.set_leaving(member.leaving);
    worker.set_metrics_address(member.registration.metrics_address());
    worker.set_last_heartbeat_ms_ago((now.monotonic_ns - member.heard_ns) / kNsPerMs);
    if (const auto user = users.find(name); user != users.end()) {
      worker.set_job_id(user->second->id());
    } else if (const std::string reason = member.alive ? WhyUnusable(member) : "";
               !reason.empty()) {
      worker.set_job_id(orphans_.at(name).job_id);
      worker.set_unusable_reason(reason);
    }
  }
  return response;
}

absl::StatusOr<Submission> Coordinator::CheckSubmission(const v1::SubmitJobRequest& request,
                                                        Now now) const {
  return CheckNewJob(request.spec(), request.idempotency_key(), nullptr, now);
}

absl::StatusOr<Submission> Coordinator::CheckProfile(const v1::SubmitProfileRequest& request,
                                                     Now now) const {
  return CheckNewJob(request.spec(), request.idempotency_key(), &request.profile(), now);
}

absl::StatusOr<Submission> Coordinator::CheckNewJob(const v1::JobSpec& spec, const std::string& key,
                                                    const v1::ProfileSpec* profile, Now now) const {
  if (key.size() > kIdempotencyKeyBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("idempotency_key: has ", key.size(),
                                                   " bytes; at most ", kIdempotencyKeyBytesMax));
  }
  if (const auto known = job_of_key_.find(key); !key.empty() && known != job_of_key_.end()) {
    return Submission{known->second, std::nullopt};
  }
  if (draining_) {
    // It begins as clients expect of a coordinator that they have reached (services/rpc/status.h).
    return absl::UnavailableError(
        "not done, because the coordinator is stopping and takes no new jobs");
  }
  if (waiting_.size() >= limits_.jobs_waiting_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat(waiting_.size(), " jobs wait already, which is the limit; try again later"));
  }

  SaveJob submitted{.idempotency_key = key};
  v1::GetJobResponse& record = submitted.record;
  *record.mutable_spec() = spec;
  FillKnownDefaults(*record.mutable_spec());
  v1::JobSummary& summary = *record.mutable_summary();
  summary.set_job_id(NextId(record.spec().name()));
  summary.set_name(record.spec().name());
  summary.set_method(record.spec().pipeline().method());
  summary.set_state(v1::JOB_STATE_QUEUED);
  summary.set_steps(record.spec().training().steps());
  summary.set_submitted_unix_ms(now.unix_ms);
  if (profile != nullptr) {
    PENSTOCK_RETURN_IF_ERROR(CheckProfileSpec(*profile));
    *record.mutable_spec() = DraftOf(record.spec());
    MakeProfileRecord(*profile, record);
  }
  PENSTOCK_RETURN_IF_ERROR(ResolveSubmitted(record.spec()).status());
  return Submission{summary.job_id(), std::move(submitted)};
}

void Coordinator::AddJob(const SaveJob& submitted, Now now) {
  absl::StatusOr<ResolvedJob> resolved = ResolveSubmitted(submitted.record.spec());
  PENSTOCK_CHECK(resolved.ok());
  const std::string job_id = submitted.record.summary().job_id();
  TakeId(job_id);
  if (!submitted.idempotency_key.empty()) {
    job_of_key_[submitted.idempotency_key] = job_id;
  }
  AddRun(submitted.record, 0, *std::move(resolved));
  Settle(now);
}

absl::StatusOr<std::optional<SaveJob>> Coordinator::CheckCancel(const std::string& job_id) const {
  PENSTOCK_RETURN_IF_ERROR(FindSummary(job_id).status());
  const JobRun* const run = FindRun(job_id);
  if (run == nullptr || run->ended() || !run->cancel_reason().empty()) return std::nullopt;
  SaveJob cancelled{run->Record()};
  cancelled.record.set_cancel_reason(std::string(kCancelReason));
  return cancelled;
}

absl::StatusOr<v1::CancelJobResponse> Coordinator::CancelJob(const std::string& job_id, Now now) {
  if (JobRun* run = Find(job_id); run != nullptr) {
    run->Cancel(std::string(kCancelReason), now);
    Settle(now);
  }
  PENSTOCK_ASSIGN_OR_RETURN(const v1::JobSummary summary, FindSummary(job_id));
  v1::CancelJobResponse response;
  response.set_state(summary.state());
  return response;
}

v1::ListJobsResponse Coordinator::ListJobs() const {
  v1::ListJobsResponse response;
  int64_t bytes = 0;
  for (auto job_id = order_.rbegin(); job_id != order_.rend(); ++job_id) {
    const absl::StatusOr<v1::JobSummary> summary = FindSummary(*job_id);
    if (!summary.ok()) {
      continue;
    }
    constexpr int64_t kFramingBytes = 8;
    bytes += static_cast<int64_t>(summary->ByteSizeLong()) + kFramingBytes;
    if (bytes > limits_.list_bytes_max) {
      break;
    }
    *response.add_jobs() = *summary;
  }
  return response;
}

JobRun* Coordinator::Find(const std::string& job_id) {
  if (const auto run = runs_.find(job_id); run != runs_.end()) {
    deadlines_.erase(run->second.get());
    return run->second.get();
  }
  // A run of a job's planning has the job's id with a suffix, and no job's name has a dot.
  const auto planned = runs_.find(job_id.substr(0, job_id.rfind('.')));
  if (planned != runs_.end()) deadlines_.erase(planned->second.get());
  JobRun* const run = planned == runs_.end() ? nullptr : planned->second->planning_run();
  return run != nullptr && run->id() == job_id ? run : nullptr;
}

const JobRun* Coordinator::FindRun(const std::string& job_id) const {
  const auto run = runs_.find(job_id);
  return run == runs_.end() ? nullptr : run->second.get();
}

absl::StatusOr<v1::JobSummary> Coordinator::FindSummary(const std::string& job_id) const {
  if (const JobRun* run = FindRun(job_id); run != nullptr) {
    return run->summary();
  }
  const auto ended = ended_.find(job_id);
  if (ended == ended_.end()) {
    return NoSuchJob(job_id);
  }
  return ended->second;
}

bool Coordinator::Log(const std::string& job_id, const std::string& text, Now now) {
  JobRun* const run = Find(job_id);
  if (run == nullptr || run->ended()) return false;
  run->Log(text, now);
  return true;
}

void Coordinator::OnAnswer(const std::string& job_id, EffectAnswer answer, Now now) {
  if (JobRun* run = Find(job_id); run != nullptr) {
    run->OnAnswer(std::move(answer), now);
    Settle(now);
  }
}

void Coordinator::Tick(Now now) {
  deadlines_.clear();
  if (all_returned_ns_.has_value() && *all_returned_ns_ <= now.monotonic_ns) {
    all_returned_ns_.reset();
    for (auto& [job_id, run] : runs_) {
      run->OnAllReturned([&](const std::string& worker, uint64_t incarnation) {
        const Member* const member = membership_.Find(worker);
        return member != nullptr && member->alive &&
               member->registration.incarnation() == incarnation;
      });
    }
  }
  for (const Departure& departure : membership_.Expire(now.monotonic_ns)) {
    OnDeparture(departure, now);
  }
  for (auto& [job_id, run] : runs_) {
    run->Tick(now);
  }
  Settle(now);
}

std::optional<int64_t> Coordinator::NextDeadlineNs() const {
  std::optional<int64_t> next = membership_.NextExpiryNs();
  for (const auto& [job_id, run] : runs_) {
    const auto [known, is_new] = deadlines_.try_emplace(run.get());
    if (is_new) known->second = run->NextDeadlineNs();
    const std::optional<int64_t>& deadline = known->second;
    if (deadline.has_value()) {
      next = std::min(next.value_or(*deadline), *deadline);
    }
  }
  for (const std::optional<int64_t>& deadline : {settled_ns_, all_returned_ns_}) {
    if (deadline.has_value()) next = std::min(next.value_or(*deadline), *deadline);
  }
  return next;
}

void Coordinator::Drain(Now now) {
  draining_ = true;
  for (auto& [job_id, run] : runs_) {
    if (run->queued()) continue;
    if (run->CanReturn()) {
      run->Return("the coordinator was stopped", now);
    } else {
      run->Cancel("the coordinator was stopped", now);
    }
  }
  Settle(now);
}

bool Coordinator::Drained() const { return draining_ && runs_.size() == waiting_.size(); }

void Coordinator::OnStored() {
  for (auto& [job_id, run] : runs_) {
    run->OnStored();
  }
}

CoordinatorEffects Coordinator::TakeEffects() { return std::exchange(effects_, {}); }

void Coordinator::OnDeparture(const Departure& departure, Now now) {
  losses_.Count(departure.cause, departure.detection_ns);
  deadlines_.clear();
  for (auto& [job_id, run] : runs_) {
    run->OnWorkerLost(departure.worker, departure.incarnation, departure.reason, now);
  }
}

absl::Status Coordinator::CheckInvariants() const {
  PENSTOCK_RETURN_IF_ERROR(membership_.CheckInvariants());
  for (const auto& [job_id, run] : runs_) {
    PENSTOCK_RETURN_IF_ERROR(run->CheckInvariants());
    const auto known = deadlines_.find(run.get());
    if (known == deadlines_.end()) continue;
    // One that is too early only wakes the coordinator.
    constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
    if (run->NextDeadlineNs().value_or(kNever) < known->second.value_or(kNever)) {
      return absl::InternalError(absl::StrCat("the deadline of ", job_id, " is known too late"));
    }
  }
  const std::unordered_map<std::string, JobRun*> users = Users();
  for (const auto& [job_id, run] : runs_) {
    for (const std::string& worker : run->InUse()) {
      const std::string& other = users.at(worker)->id();
      if (other == job_id) continue;
      return absl::InternalError(
          absl::StrCat("worker ", worker, " is taken by ", other, " and ", job_id));
    }
  }
  return absl::OkStatus();
}

}  // namespace penstock
