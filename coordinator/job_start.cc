// JobRun: from the queue to training.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "coordinator/job_run.h"
#include "coordinator/start_query.h"
#include "job/defaults.h"
#include "job/job_trace.h"
#include "job/open_job.h"
#include "schedule/block_delay.h"

namespace penstock {

void JobRun::Begin(absl::Span<const WorkerOffer> workers, Now now) {
  // Later than that of any earlier attempt, also by a coordinator that lost its records and gives the
  // same id again, while workers remember which epochs are over.
  epoch_ = std::max(epoch_ + 1, now.unix_ms);
  parts_.clear();
  for (const WorkerOffer& worker : workers) {
    parts_.push_back({.worker = worker});
  }
  record_.mutable_summary()->clear_reason();
  phase_ = Phase::kFinding;
  SetState(v1::JOB_STATE_PREPARING, now);
  if (is_profile()) {
    return BeginProfile(now);
  }
  const v1::CheckpointSpec& checkpoint = spec().checkpoint();
  if (checkpoint.directory().empty() && checkpoint.resume().empty()) {
    return On(StartFound{FoundStart{}, nullptr}, now);
  }
  effects_.push_back(FindCheckpoint{id(), StartQueryOf(spec(), job_)});
}

void JobRun::On(StartFound found, Now now) {
  if (phase_ != Phase::kFinding) {
    return;
  }
  if (!found.start.ok()) {
    return Fail(absl::StrCat("cannot start: ", found.start.status().message()), now);
  }
  start_ = *found.start;
  lease_ = std::move(found.lease);
  for (const std::string& note : start_.notes) {
    Log(note, now);
  }
  if (!start_.checkpoint.empty()) {
    Log(absl::StrCat("continues after step ", start_.step, " from ", start_.checkpoint), now);
  }
  KeepSavedSplit(now);
  if (NeedsPlanning()) return BeginPlanning(now);
  KeepPlaces();
  GoOnPlanned(now);
}

bool JobRun::NeedsPlanning() const {
  if (!SplitIsOpen(spec(), job_)) return false;
  if (MethodIsOpen(spec()) || !spec().pipeline().has_stages()) {
    return MethodIsOpen(spec()) || parts_.size() > 1;
  }
  const int32_t stages = spec().pipeline().stages();
  return stages > 1 && stages < job_.chain.size();  // else there is one split
}

void JobRun::KeepSavedSplit(Now now) {
  if (start_.checkpoint.empty() || start_.stage_layers.empty() || !SplitIsOpen(spec(), job_))
    return;
  v1::JobSpec kept = spec();
  v1::PipelineSpec& pipeline = *kept.mutable_pipeline();
  if (MethodIsOpen(spec())) SetMethod(start_.method, /*keeps_optimizer=*/false, kept);
  if (pipeline.method() != start_.method) return;
  const auto stages = static_cast<int32_t>(start_.stage_layers.size());
  if (pipeline.has_stages() && pipeline.stages() != stages) return;
  pipeline.set_stages(stages);
  pipeline.mutable_stage_layers()->Assign(start_.stage_layers.begin(), start_.stage_layers.end());
  FillDefaults(kept);
  absl::StatusOr<ResolvedJob> job = ResolveJob(kept);
  if (!job.ok() || job->WorkersOf(stages) != static_cast<int64_t>(parts_.size())) return;
  Log(absl::StrCat("keeps the layers that the checkpoint was trained with, ",
                   absl::StrJoin(start_.stage_layers, "-")),
      now);
  *record_.mutable_spec() = std::move(kept);
  record_.mutable_summary()->set_method(spec().pipeline().method());
  job_ = *std::move(job);
}

void JobRun::KeepPlaces() {
  if (record_.planning().candidates().empty() || NamesWorkers()) return;
  const auto& places = record_.planning().candidates(0).workers();
  std::vector<Part> kept(parts_.size());
  std::vector<Part> others;
  for (Part& part : parts_) {
    const auto at = std::find(places.begin(), places.end(), part.worker.name) - places.begin();
    if (at < std::min<int64_t>(places.size(), static_cast<int64_t>(kept.size()))) {
      kept[at] = std::move(part);
    } else {
      others.push_back(std::move(part));
    }
  }
  auto other = others.begin();
  for (Part& part : kept) {
    if (part.worker.name.empty()) part = std::move(*other++);
  }
  parts_ = std::move(kept);
}

void JobRun::BeginPlanning(Now now) {
  phase_ = Phase::kPlanning;
  std::vector<WorkerOffer> workers;
  for (const Part& part : parts_) workers.push_back(part.worker);
  record_.clear_plan();  // of an attempt before, whose workers may be others
  planning_ = std::make_unique<JobPlanning>(id(), spec(), job_, std::move(workers), epoch_, limits_,
                                            links_);
  planning_->Begin(now);
  GoOnPlanning(now);
}

void JobRun::On(const CandidatesJudged& judged, Now now) {
  if (phase_ != Phase::kPlanning) return;
  planning_->OnCandidates(judged.plan, now);
  GoOnPlanning(now);
}

void JobRun::GoOnPlanning(Now now) {
  if (planning_ == nullptr) return;
  planning_->GoOn(now);
  for (v1::JobEvent& event : planning_->TakeEvents()) Publish(std::move(event), now);
  for (CoordinatorEffect& effect : planning_->TakeEffects()) {
    if (auto* const call = std::get_if<CallWorker>(&effect)) call->trace = JobTraceOf(record_);
    effects_.push_back(std::move(effect));
  }
  if (planning_->Stopped()) {
    planning_.reset();
    if (phase_ == Phase::kPlanning) return WaitAgain(std::exchange(return_reason_, ""), now);
    return CheckAllGone();
  }
  if (planning_->outcome().has_value() && phase_ == Phase::kPlanning) EndPlanning(now);
}

void JobRun::EndPlanning(Now now) {
  constexpr int64_t kPlanningsMax = 3;
  JobPlanning::Outcome outcome = *planning_->outcome();
  BeginAfter(planning_->epoch());
  planning_.reset();
  if (!outcome.lost.empty()) {
    if (++plannings_ >= kPlanningsMax) {
      return Fail(
          absl::StrCat("cannot be planned, after ", plannings_, " attempts: ", outcome.lost), now);
    }
    rests_until_ns_ = now.monotonic_ns + limits_.rest_ms * kNsPerMs;
    return WaitAgain(outcome.lost, now);
  }
  if (!outcome.failed.ok()) {
    return Fail(absl::StrCat("cannot be planned: ", outcome.failed.message()), now);
  }
  epoch_ = std::max(epoch_ + 1, now.unix_ms);  // later than those of the planning's runs
  if (!outcome.chosen.has_value()) {
    Log(absl::StrCat("its layers are split by estimated cost, for they could not be planned by "
                     "measurement: ",
                     outcome.estimate_why),
        now);
    return GoOnPlanned(now);
  }
  *record_.mutable_spec() = std::move(outcome.chosen->spec);
  *record_.mutable_planning() = std::move(outcome.chosen->record);
  record_.mutable_summary()->set_method(spec().pipeline().method());
  absl::StatusOr<ResolvedJob> job = ResolveJob(spec());
  if (!job.ok()) return Fail(absl::StrCat("cannot be planned: ", job.status().message()), now);
  job_ = *std::move(job);
  parts_.clear();
  for (WorkerOffer& worker : outcome.chosen->workers)
    parts_.push_back({.worker = std::move(worker)});
  GoOnPlanned(now);
}

void JobRun::WaitAgain(const std::string& reason, Now now) {
  parts_.clear();
  leavers_.clear();
  lease_.reset();
  phase_ = Phase::kQueued;
  record_.mutable_summary()->set_reason(reason);
  SetState(v1::JOB_STATE_QUEUED, now);
}

void JobRun::GoOnPlanned(Now now) {
  phase_ = Phase::kFinding;
  if (spec().feedback().replan() == "auto" && !spec().has_prediction()) {
    Log("feedback.replan is auto, but the job has no prediction to hold its steps against; "
        "`penstock plan -o` writes one",
        now);
  }
  const absl::Status planned = MakePlanAndRecordIt(now);
  if (!planned.ok()) {
    return Fail(absl::StrCat("cannot be planned: ", planned.message()), now);
  }
  PrepareAll();
}

absl::Status JobRun::MakePlanAndRecordIt(Now now) {
  const auto stopwatch_ns = [this] { return limits_.stopwatch_ns ? limits_.stopwatch_ns() : 0; };
  const int64_t began_ns = stopwatch_ns();
  std::vector<WorkerOffer> workers;
  for (const Part& part : parts_) {
    workers.push_back(part.worker);
  }
  PENSTOCK_ASSIGN_OR_RETURN(*record_.mutable_plan(),
                            MakePlan(spec(), job_, workers, start_.step, start_.extra_cuts));
  checkpoints_ = CheckpointTracker(static_cast<int32_t>(workers.size()));
  const auto stages = static_cast<int32_t>(job_.StagesOn(static_cast<int64_t>(workers.size())));
  const Topology topology = TopologyOf(job_, stages);
  if (std::exchange(began_, true)) {
    progress_.BeginAgain(topology.TellsSteps().value);
  } else {
    progress_ = RunProgress(start_.step, topology.TellsSteps().value);
    if (returned_) progress_.GoOnFrom(record_.result());
  }
  feedback_.Begin(spec(), record_.plan(), start_.step, start_.extra_cuts);
  std::vector<int64_t> cuts;
  for (const Cut& cut : CutsOf(spec(), start_.step, start_.extra_cuts)) cuts.push_back(cut.step);
  block_delay_ = BlockDelayWatch(job_, topology, start_.step, cuts);
  remaining_ = RemainingTime(job_.steps, cuts);
  validation_stage_ = topology.TellsEvaluations();
  record_.mutable_summary()->set_step(start_.step);

  v1::JobResult& result = *record_.mutable_result();
  result.set_job(spec().name());
  result.set_job_id(id());
  result.set_method(spec().pipeline().method());
  result.set_stages(stages);
  result.set_microbatches(job_.microbatches);
  result.set_checkpoint(start_.checkpoint);
  // The delay is that of the static order.
  if (job_.order == Order::kStatic) {
    const ScheduleOptions options = ScheduleOptionsOf(job_, topology);
    // A statistic: where it cannot be told, the job runs without.
    const absl::StatusOr<BlockDelay> delay = PredictBlockDelay(*job_.method, options);
    if (delay.ok()) {
      WriteBlockDelay(*delay, delay->max, *result.mutable_block_delay(),
                      *result.mutable_block_delays());
    }
  }
  result.set_planning_seconds(static_cast<double>(stopwatch_ns() - began_ns) * 1e-9);

  v1::JobEvent event;
  *event.mutable_planned() = record_.plan();
  Publish(std::move(event), now);
  Save();
  return absl::OkStatus();
}

void JobRun::PrepareAll() {
  phase_ = Phase::kPreparing;
  for (int32_t i = 0; i <= last_worker(); ++i) {
    v1::PrepareRunRequest request;
    request.set_job_id(id());
    request.set_epoch(epoch_);
    *request.mutable_spec() = spec();
    *request.mutable_plan() = record_.plan();
    request.set_worker_index(i);
    request.set_first_step(start_.step);
    request.set_checkpoint(start_.checkpoint);
    request.mutable_extra_cuts()->Assign(start_.extra_cuts.begin(), start_.extra_cuts.end());
    request.set_staging_tag(absl::StrCat(id(), "-", epoch_));
    if (profile_.has_value()) {
      *request.mutable_profile()->mutable_spec() = record_.profile_spec();
      request.mutable_profile()->set_times_layers(profile_->TimesLayers(i));
    }
    Call(i, std::move(request));
  }
}

void JobRun::OnResponse(int32_t worker_index,
                        const absl::StatusOr<v1::PrepareRunResponse>& prepared, Now now) {
  if (phase_ != Phase::kPreparing) {
    return;
  }
  if (!prepared.ok()) {
    return BlameCall(worker_index, "cannot prepare", prepared.status(), now);
  }
  if (prepared->schedule_digest() != record_.plan().schedule_digest()) {
    blame_.Own(worker_index,
               absl::StrCat("derives schedule ", prepared->schedule_digest(), ", the coordinator ",
                            record_.plan().schedule_digest(), "; run the same build on both"));
    return DecideBlame(now);
  }
  parts_[worker_index].prepared = true;
  if (!std::all_of(parts_.begin(), parts_.end(), [](const Part& p) { return p.prepared; })) {
    return;
  }
  phase_ = Phase::kStarting;
  for (int32_t i = 0; i <= last_worker(); ++i) {
    parts_[i].start_asked = true;
    v1::StartRunRequest request;
    request.set_job_id(id());
    request.set_epoch(epoch_);
    Call(i, std::move(request));
  }
}

void JobRun::OnResponse(int32_t worker_index, const absl::StatusOr<v1::StartRunResponse>& started,
                        Now now) {
  if (phase_ != Phase::kStarting) {
    return;
  }
  if (!started.ok()) {
    return BlameCall(worker_index, "cannot start", started.status(), now);
  }
  parts_[worker_index].started = true;
  if (std::all_of(parts_.begin(), parts_.end(), [](const Part& p) { return p.started; })) {
    EnterRunning(now);
  }
}

void JobRun::EnterRunning(Now now) {
  phase_ = Phase::kRunning;
  progressed_ns_ = now.monotonic_ns;
  block_delay_.Start(now);
  if (started_ns_ == 0) {  // else with another split before
    started_ns_ = now.monotonic_ns;
    record_.mutable_summary()->set_started_unix_ms(now.unix_ms);
  }
  if (!is_profile()) record_.mutable_result()->set_last_step_unix_ms(now.unix_ms);
  SetState(v1::JOB_STATE_RUNNING, now);
  NoteRecovery(now);
  if (!cancel_reason_.empty() || !return_reason_.empty()) {
    StartDrain(now);
  }
}

}  // namespace penstock
