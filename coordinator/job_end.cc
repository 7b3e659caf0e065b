// JobRun: drains and ends.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/utf8.h"
#include "coordinator/job_run.h"
#include "job/job_trace.h"

namespace penstock {

void JobRun::Cancel(const std::string& reason, Now now) {
  if (IsTerminal(state()) || !cancel_reason_.empty()) {
    return;
  }
  cancel_reason_ = reason;
  switch (phase_) {
    case Phase::kQueued:
    case Phase::kFinding:
    case Phase::kPlanning:
    case Phase::kPreparing:
      record_.mutable_summary()->set_reason(reason);
      return EndStopped(v1::JOB_STATE_CANCELLED, now);
    case Phase::kRunning:
      return blame_.any() ? void() : StartDrain(now);
    case Phase::kHolding:
    case Phase::kCutting:
    case Phase::kCommitting:
      // Drains for a new split, or for the queue, which it does not need any more.
      new_split_.reset();
      return_reason_.clear();
      record_.mutable_summary()->set_reason(reason);
      return SetState(v1::JOB_STATE_DRAINING, now);
    case Phase::kStarting:  // drains as soon as all workers have started
    default:                // ends anyway
      return;
  }
}

void JobRun::Stop(const std::string& reason, Now now) {
  if (IsTerminal(state())) return;
  cancel_reason_ = reason;
  record_.mutable_summary()->set_reason(reason);
  EndStopped(v1::JOB_STATE_CANCELLED, now);
}

void JobRun::StartDrain(Now now) {
  if (is_profile()) {  // which has no step to save
    record_.mutable_summary()->set_reason(cancel_reason_);
    return EndStopped(v1::JOB_STATE_CANCELLED, now);
  }
  record_.mutable_summary()->set_reason(cancel_reason_.empty() ? return_reason_ : cancel_reason_);
  SetState(v1::JOB_STATE_DRAINING, now);
  HoldAll(now);
}

void JobRun::HoldAll(Now now) {
  phase_ = Phase::kHolding;
  drain_deadline_ns_ = now.monotonic_ns + limits_.drain_timeout_ms * kNsPerMs;
  for (int32_t i = 0; i <= last_worker(); ++i) {
    if (!parts_[i].done) {
      v1::HoldRunRequest request;
      request.set_job_id(id());
      request.set_epoch(epoch_);
      Call(i, std::move(request));
    }
  }
  CutIfAllHeld(now);
}

void JobRun::OnResponse(int32_t worker_index, const absl::StatusOr<v1::HoldRunResponse>& held,
                        Now now) {
  if (phase_ != Phase::kHolding) {
    return;
  }
  if (absl::IsFailedPrecondition(held.status()) || absl::IsNotFound(held.status())) {
    // It ran to its end meanwhile, and its RunDone is on the way.
    parts_[worker_index].held_step = job_.steps;
  } else if (!held.ok()) {
    return BlameCall(worker_index, "cannot be held", held.status(), now);
  } else {
    parts_[worker_index].held_step = std::min(held->step(), job_.steps);
  }
  CutIfAllHeld(now);
}

void JobRun::CutIfAllHeld(Now now) {
  if (phase_ != Phase::kHolding) {
    return;
  }
  int64_t step = 0;
  for (const Part& part : parts_) {
    if (!part.held_step.has_value()) {
      return;
    }
    step = std::max(step, *part.held_step);
  }
  phase_ = Phase::kCutting;
  drain_step_ = step;
  Log(absl::StrCat("drains after step ", step), now);
  for (int32_t i = 0; i <= last_worker(); ++i) {
    if (!parts_[i].done) {
      v1::CutRunRequest request;
      request.set_job_id(id());
      request.set_epoch(epoch_);
      request.set_step(step);
      Call(i, std::move(request));
    }
  }
}

void JobRun::EndIfAllDone(Now now) {
  if (!Active() || phase_ == Phase::kGathering ||
      !std::all_of(parts_.begin(), parts_.end(), [](const Part& p) { return p.done; })) {
    return;
  }
  if (phase_ == Phase::kStarting) {
    EnterRunning(now);  // all are done before the last answer to StartRun came
    if (!Active()) {
      return;  // a profile that was cancelled meanwhile
    }
  }
  drain_deadline_ns_.reset();
  if (ended_ns_ == 0) {
    ended_ns_ = now.monotonic_ns;
  }
  if (profile_.has_value()) {
    *record_.mutable_profile() = profile_->Result();
    return Finish(now);
  }
  if (checkpoints_.Committing()) {
    phase_ = Phase::kCommitting;
    return;
  }
  if (new_split_.has_value() && drain_step_.value_or(job_.steps) < job_.steps) {
    return GoOnWithNewSplit(now);
  }
  if (!return_reason_.empty() && drain_step_.value_or(job_.steps) < job_.steps) {
    return GoBackToQueue(now);
  }
  phase_ = Phase::kGathering;
  effects_.push_back(GatherTimeline{id(), record_.plan(), JobTraceOf(record_)});
}

void JobRun::On(const TimelineGathered& gathered, Now now) {
  if (phase_ == Phase::kGathering) {
    block_delay_.OnGathered(gathered.timeline, now);
    Finish(now);
  }
}

void JobRun::Finish(Now now) {
  v1::JobSummary& summary = *record_.mutable_summary();
  phase_ = Phase::kOver;
  v1::JobState state = v1::JOB_STATE_SUCCEEDED;
  if (drain_step_.has_value() && *drain_step_ < job_.steps) {
    state = v1::JOB_STATE_CANCELLED;
    summary.set_reason(save_error_.empty() ? cancel_reason_
                                           : absl::StrCat(cancel_reason_, "; ", save_error_));
  } else if (!save_error_.empty()) {
    state = v1::JOB_STATE_FAILED;
    summary.set_error(absl::StrCat("training is complete, but ", save_error_));
  } else {
    summary.clear_reason();
  }
  for (Part& part : parts_) {
    part.gone = true;
  }
  SetState(state, now);
}

void JobRun::Fail(const std::string& error, Now now) {
  const bool has_new_split = replans_ > 0 && phase_ == Phase::kPreparing;
  const std::string advice = has_new_split
                                 ? "; it was to go on with a new split: submit it again with "
                                   "checkpoint.resume: latest and feedback.replan: never"
                                 : "";
  record_.mutable_summary()->set_error(CleanUtf8(error + advice, kTextBytesMax));
  record_.mutable_summary()->clear_reason();
  EndStopped(v1::JOB_STATE_FAILED, now);
}

void JobRun::EndStopped(v1::JobState state, Now now) {
  const bool trained = !is_profile() && phase_ >= Phase::kRunning && phase_ <= Phase::kCommitting;
  if (phase_ <= Phase::kPlanning || !record_.has_plan()) {
    parts_.clear();  // they have not heard of the job
  }
  if (planning_ != nullptr) planning_->Stop(cancel_reason_, now);
  phase_ = Phase::kStopping;
  drain_deadline_ns_.reset();
  stop_deadline_ns_ = now.monotonic_ns + limits_.stop_timeout_ms * kNsPerMs;
  // What it did last is what one wants to see of a job that failed. Workers keep it until they prepare another run, which they
  // are not given before they have answered that they have stopped.
  if (trained) effects_.push_back(GatherTimeline{id(), record_.plan(), JobTraceOf(record_)});
  StopRemaining(now);
  SetState(state, now);
  GoOnPlanning(now);
  CheckAllGone();
}

void JobRun::StopRemaining(Now now) {
  stop_retry_ns_ = now.monotonic_ns + limits_.stop_retry_ms * kNsPerMs;
  for (int32_t i = 0; i <= last_worker(); ++i) {
    if (!parts_[i].gone) {
      parts_[i].stop_asked = true;
      v1::StopRunRequest request;
      request.set_job_id(id());
      request.set_epoch(epoch_);
      request.set_reason(summary().error().empty() ? cancel_reason_ : summary().error());
      Call(i, std::move(request));
    }
  }
}

void JobRun::OnResponse(int32_t worker_index, const absl::StatusOr<v1::StopRunResponse>& stopped,
                        Now) {
  if (stopped.ok()) {
    parts_[worker_index].gone = true;
    CheckAllGone();
  }
}

void JobRun::CheckAllGone() {
  if (phase_ == Phase::kStopping && planning_ == nullptr &&
      std::all_of(parts_.begin(), parts_.end(), [](const Part& p) { return p.gone; })) {
    phase_ = Phase::kOver;
  }
}

}  // namespace penstock
