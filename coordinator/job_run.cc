#include "coordinator/job_run.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/utf8.h"
#include "job/job_trace.h"
#include "job/profile/cluster_profile.h"

namespace penstock {

JobRun::JobRun(v1::GetJobResponse record, int64_t last_sequence, ResolvedJob job,
               JobRunLimits limits, KnownLinks& links, CoordinatorEffects& effects)
    : record_(std::move(record)),
      job_(std::move(job)),
      limits_(limits),
      effects_(effects),
      last_sequence_(last_sequence),
      blame_(limits.blame_grace_ms * kNsPerMs),
      returned_(record_.summary().step() > 0),
      links_(links) {}

v1::GetJobResponse JobRun::Record() const {
  v1::GetJobResponse record = record_;
  if (!record.has_plan() || is_profile()) {
    return record;
  }
  v1::JobResult& result = *record.mutable_result();
  progress_.WriteTo(result);
  feedback_.WriteTo(*result.mutable_feedback());
  result.mutable_feedback()->set_replans(replans_);
  block_delay_.WriteTo(result);
  result.set_weights_sha256(progress_.WeightsSha256(job_.chain.size()));
  const int64_t until_ns = ended_ns_ > 0 ? ended_ns_ : progressed_ns_;
  if (started_ns_ > 0 && until_ns > started_ns_) {
    result.set_wall_seconds(1e-9 * static_cast<double>(until_ns - started_ns_));
  }
  const std::vector<int64_t> extra = ExtraCutsUpTo(job_.steps);
  result.mutable_extra_cuts()->Assign(extra.begin(), extra.end());
  return record;
}

int64_t JobRun::WorkersNeeded() const {
  if (is_profile()) return std::max(1, record_.profile_spec().workers());
  if (workers_before_.has_value()) return *workers_before_;
  return std::max<int64_t>(1, job_.WorkersOf(std::max(1, spec().pipeline().stages())));
}

bool JobRun::TakesAllFree() const {
  if (is_profile()) return record_.profile_spec().workers() == 0;
  return !spec().pipeline().has_stages() && !workers_before_.has_value();
}

int64_t JobRun::WorkersOf(int64_t free) const {
  if (workers_before_.has_value()) return *workers_before_;
  if (!is_profile()) return WorkersFor(spec(), job_, free);
  return TakesAllFree() ? std::min<int64_t>(free, kProfileWorkersMax) : WorkersNeeded();
}

bool JobRun::Uses(const std::string& worker) const {
  return std::any_of(parts_.begin(), parts_.end(),
                     [&](const Part& part) { return part.worker.name == worker && !part.gone; }) ||
         (planning_ != nullptr && planning_->Uses(worker));
}

std::optional<int32_t> JobRun::IndexOf(const std::string& worker, uint64_t incarnation,
                                       int64_t epoch) const {
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (parts_[i].worker.name == worker && parts_[i].worker.incarnation == incarnation &&
        epoch == epoch_) {
      return static_cast<int32_t>(i);
    }
  }
  return std::nullopt;
}

std::optional<int64_t> JobRun::NextDeadlineNs() const {
  std::optional<int64_t> next;
  const auto consider = [&](std::optional<int64_t> deadline) {
    if (deadline.has_value()) {
      next = std::min(next.value_or(*deadline), *deadline);
    }
  };
  if (workers_before_.has_value()) consider(return_deadline_ns_);
  if (planning_ != nullptr) consider(planning_->NextDeadlineNs());
  if (queued() && rests_until_ns_ > 0) consider(rests_until_ns_);
  if (Active()) {
    consider(blame_.DecideAtNs());
    consider(drain_deadline_ns_);
    if (Training()) {
      consider(progressed_ns_ + limits_.stall_timeout_ms * kNsPerMs);
      consider(block_delay_.AskAtNs());
    }
  }
  if (phase_ == Phase::kStopping) {
    consider(stop_retry_ns_);
    consider(stop_deadline_ns_);
  }
  return next;
}

void JobRun::Wait(const std::string& reason, Now now) {
  if (record_.summary().reason() == reason) {
    return;
  }
  record_.mutable_summary()->set_reason(reason);
  SetState(v1::JOB_STATE_QUEUED, now);
}

void JobRun::OnAnswer(EffectAnswer answer, Now now) {
  std::visit([&](auto& typed) { On(std::move(typed), now); }, answer);
}

void JobRun::On(const CallAnswer& answer, Now now) {
  if (answer.epoch != epoch_ || answer.worker_index < 0 || answer.worker_index > last_worker()) {
    return;
  }
  std::visit([&](const auto& response) { OnResponse(answer.worker_index, response, now); },
             answer.response);
}

void JobRun::OnResponse(int32_t worker_index, const absl::StatusOr<v1::CutRunResponse>& cut,
                        Now now) {
  // A worker that ran to its end meanwhile refuses the cut, rightly.
  if (phase_ == Phase::kCutting && !cut.ok() && !absl::IsFailedPrecondition(cut.status())) {
    BlameCall(worker_index, "cannot be told where to cut", cut.status(), now);
  }
}

void JobRun::OnHeartbeat(int32_t worker_index, int64_t actions_done, Now now) {
  Part& part = parts_[worker_index];
  if (part.actions_done != actions_done) {
    part.actions_done = actions_done;
    progressed_ns_ = now.monotonic_ns;
  }
}

void JobRun::OnWorkerLost(const std::string& worker, uint64_t incarnation,
                          const std::string& reason, Now now) {
  if (planning_ != nullptr) {
    planning_->OnWorkerLost({.name = worker, .incarnation = incarnation}, reason, now);
    return GoOnPlanning(now);
  }
  const std::optional<int32_t> index = IndexOf(worker, incarnation, epoch_);
  if (!index.has_value() || parts_[*index].gone) {
    return;
  }
  if (Active() && !parts_[*index].done) {
    blame_.Own(*index, absl::StrCat("was lost: ", reason));
    DecideBlame(now);
  }
  if (!parts_.empty()) {  // a job that ends before it has a plan drops them
    parts_[*index].gone = true;
  }
  CheckAllGone();
}

void JobRun::Tick(Now now) {
  if (now.monotonic_ns >= return_deadline_ns_) workers_before_.reset();
  if (now.monotonic_ns >= rests_until_ns_) rests_until_ns_ = 0;
  if (planning_ != nullptr) {
    planning_->Tick(now);
    GoOnPlanning(now);
  }
  if (Active()) {
    DecideBlame(now);
  }
  if (Active() && drain_deadline_ns_.has_value() && now.monotonic_ns >= *drain_deadline_ns_) {
    const std::string lost =
        absl::StrCat("the workers did not drain within ", limits_.drain_timeout_ms / 1000,
                     " s, so the steps after the last checkpoint are lost");
    if (new_split_.has_value()) {
      Fail(absl::StrCat("for a new split ", lost), now);
    } else if (!return_reason_.empty()) {
      Fail(absl::StrCat(return_reason_, ", and ", lost), now);
    } else {
      record_.mutable_summary()->set_reason(
          absl::StrCat(cancel_reason_, "; stopped hard, for ", lost));
      EndStopped(v1::JOB_STATE_CANCELLED, now);
    }
  }
  if (Active() && Training() &&
      now.monotonic_ns >= progressed_ns_ + limits_.stall_timeout_ms * kNsPerMs) {
    Fail(absl::StrCat("no worker made any progress for ", limits_.stall_timeout_ms / 1000, " s"),
         now);
  }
  if (Active() && Training()) {
    if (const std::optional<int64_t> last_ns = block_delay_.Ask(now)) {
      effects_.push_back(GatherPasses{id(), epoch_, record_.plan(), *last_ns});
    }
  }
  if (phase_ == Phase::kStopping && stop_deadline_ns_.has_value() &&
      now.monotonic_ns >= *stop_deadline_ns_) {
    for (Part& part : parts_) {
      part.gone = true;
    }
    CheckAllGone();
  }
  if (phase_ == Phase::kStopping && stop_retry_ns_.has_value() &&
      now.monotonic_ns >= *stop_retry_ns_) {
    StopRemaining(now);
  }
}

void JobRun::On(const PassesGathered& gathered, Now now) {
  if (gathered.epoch == epoch_ && Active()) block_delay_.OnGathered(gathered.passes, now);
}

absl::Status JobRun::CheckInvariants() const {
  const auto broken = [this](absl::string_view what) {
    return absl::InternalError(absl::StrCat("job ", id(), ": ", what));
  };
  if (IsTerminal(state()) != (record_.summary().ended_unix_ms() != 0)) {
    return broken("has an end time exactly when it has ended");
  }
  if (IsTerminal(state()) != (phase_ == Phase::kStopping || phase_ == Phase::kOver)) {
    return broken("its phase and its state differ");
  }
  const bool all_prepared =
      std::all_of(parts_.begin(), parts_.end(), [](const Part& p) { return p.prepared; });
  const bool all_done =
      std::all_of(parts_.begin(), parts_.end(), [](const Part& p) { return p.done; });
  for (const Part& part : parts_) {
    if (part.start_asked && !all_prepared) {
      return broken("a worker was started before all were prepared");
    }
    if (part.done && !part.start_asked) {
      return broken("a worker is done that was never started");
    }
    if (IsTerminal(state()) && !all_done && !part.stop_asked && !part.gone) {
      return broken("ended without asking every worker to stop");
    }
  }
  if (progress_.step() < start_.step || progress_.step() > job_.steps) {
    return broken(absl::StrCat("is at step ", progress_.step()));
  }
  return absl::OkStatus();
}

bool JobRun::Active() const { return phase_ != Phase::kQueued && !IsTerminal(state()); }

std::string JobRun::NameOf(int32_t worker_index) const {
  std::vector<int32_t> stages;
  for (const v1::StageAssignment& stage : record_.plan().stages()) {
    if (stage.worker_index() == worker_index) stages.push_back(stage.stage());
  }
  const std::string worker = absl::StrCat("worker ", parts_[worker_index].worker.name);
  if (stages.empty() || is_profile()) return worker;  // the former: not planned yet
  return absl::StrCat(worker, stages.size() == 1 ? " (stage " : " (stages ",
                      absl::StrJoin(stages, ", "), ")");
}

std::vector<int64_t> JobRun::ExtraCutsUpTo(int64_t step) const {
  std::vector<int64_t> extra = start_.extra_cuts;
  if (drain_step_.has_value() && *drain_step_ > start_.step && *drain_step_ <= step &&
      *drain_step_ < job_.steps) {
    const std::vector<Cut> cuts = CutsOf(spec(), start_.step, start_.extra_cuts);
    const bool regular = std::any_of(cuts.begin(), cuts.end(),
                                     [&](const Cut& cut) { return cut.step == *drain_step_; });
    if (!regular) {
      extra.push_back(*drain_step_);
    }
  }
  return extra;
}

void JobRun::SetState(v1::JobState state, Now now) {
  v1::JobSummary& summary = *record_.mutable_summary();
  summary.set_state(state);
  summary.clear_estimated_remaining_seconds();  // until the next step, if there is one
  if (state == v1::JOB_STATE_SUCCEEDED) summary.set_estimated_remaining_seconds(0);
  if (IsTerminal(state)) {
    summary.set_ended_unix_ms(now.unix_ms);
    if (ended_ns_ == 0) {
      ended_ns_ = now.monotonic_ns;
    }
  }
  v1::JobEvent event;
  *event.mutable_state_changed() = summary;
  Publish(std::move(event), now);
  Save();
}

void JobRun::Publish(v1::JobEvent event, Now now) {
  if (IsTerminal(state()) && !event.has_state_changed()) {
    return;  // the end of a job is its last event
  }
  event.set_sequence(++last_sequence_);
  event.set_unix_ms(now.unix_ms);
  effects_.push_back(PublishEvent{id(), std::move(event)});
}

void JobRun::Log(const std::string& text, Now now) {
  v1::JobEvent event;
  event.set_log(CleanUtf8(text, kTextBytesMax));
  Publish(std::move(event), now);
}

void JobRun::Save() { effects_.push_back(SaveJob{Record()}); }

void JobRun::Call(int32_t worker_index, WorkerRequest request) {
  const WorkerOffer& worker = parts_[worker_index].worker;
  effects_.push_back(CallWorker{id(), epoch_, worker_index, worker.name, worker.address,
                                std::move(request), JobTraceOf(record_)});
}

}  // namespace penstock
