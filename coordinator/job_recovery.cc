// JobRun: back to the queue, to go on from a checkpoint.
#include "absl/strings/str_cat.h"
#include "coordinator/job_run.h"

namespace penstock {

void JobRun::Return(const std::string& reason, Now now) {
  if (IsTerminal(state()) || queued() || !cancel_reason_.empty() || !return_reason_.empty()) {
    return;
  }
  return_reason_ = reason;
  switch (phase_) {
    case Phase::kPlanning:
      planning_->Stop(reason, now);
      return GoOnPlanning(now);
    case Phase::kRunning:
      return blame_.any() ? void() : StartDrain(now);
    case Phase::kHolding:
    case Phase::kCutting:
    case Phase::kCommitting:  // drains for a new split: it gets its layers anew when it goes on
      new_split_.reset();
      record_.mutable_summary()->set_reason(reason);
      return SetState(v1::JOB_STATE_DRAINING, now);
    default:  // drains as soon as all workers have started, or ends anyway
      return;
  }
}

void JobRun::OnWorkerLeaving(const std::string& worker, Now now) {
  if (IsTerminal(state()) || !leavers_.insert(worker).second) return;
  if (CanReturn()) return Return(absl::StrCat("worker ", worker, " is leaving"), now);
  Log(absl::StrCat("worker ", worker,
                   " is leaving, and ends with what the job has not done by then: ",
                   is_profile() ? "a profile cannot be continued"
                                : "with checkpoint.directory the job would be saved and go on"),
      now);
}

void JobRun::GoBackToQueue(Now now) {
  const std::string reason = std::exchange(return_reason_, "");
  if (saved_.checkpoint.empty() || saved_.step != *drain_step_) {
    return Fail(absl::StrCat("drained because ", reason, ", but ",
                             save_error_.empty() ? "nothing was saved" : save_error_,
                             "; submit it again with checkpoint.resume: latest to go on"),
                now);
  }
  // So that it goes on from there also if another process takes it from the queue.
  record_.mutable_spec()->mutable_checkpoint()->set_resume("latest");
  workers_before_ = static_cast<int64_t>(parts_.size());
  return_deadline_ns_ = now.monotonic_ns + limits_.return_timeout_ms * kNsPerMs;
  returned_ = true;
  ForgetAttempt();
  parts_.clear();
  leavers_.clear();
  lease_.reset();
  phase_ = Phase::kQueued;
  record_.mutable_summary()->set_reason(
      absl::StrCat(reason, "; the job is saved and goes on after step ", saved_.step));
  SetState(v1::JOB_STATE_QUEUED, now);
}

void JobRun::ForgetAttempt() {
  drifts_since_.reset();
  reports_of_cut_.Clear();
  no_split_.clear();
  drain_step_.reset();
  ended_ns_ = 0;
  blame_ = Blame(limits_.blame_grace_ms * kNsPerMs);
}

void JobRun::NoteRecovery(Now now) {
  if (!std::exchange(returned_, false)) return;
  v1::JobResult& result = *record_.mutable_result();
  result.set_recoveries(result.recoveries() + 1);
  Log(absl::StrCat("goes on after step ", start_.step), now);
}

}  // namespace penstock
