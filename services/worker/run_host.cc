#include "services/worker/run_host.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/deadline.h"
#include "base/fault_points.h"
#include "base/status.h"
#include "services/rpc/completion_poller.h"
#include "services/rpc/memory.h"

namespace penstock {

RunHost::RunHost(RunHostParts parts) : parts_(std::move(parts)) {
  executor_ = std::thread([this] { ExecutorMain(); });
}

RunHost::~RunHost() {
  Close("the worker is shutting down");
  {
    MutexLock lock(mutex_);
    quit_ = true;
  }
  changed_.NotifyAll();
  executor_.join();
}

absl::StatusOr<DeviceDescription> RunHost::Device() {
  MutexLock lock(mutex_);
  while (!device_.has_value()) changed_.Wait(mutex_);
  return *device_;
}

// ------------------------------------------------------------------------------- executor thread

void RunHost::ExecutorMain() {
  NameThread("executor");
  absl::StatusOr<DeviceDescription> device = parts_.describe_device();
  const bool usable = device.ok();
  {
    MutexLock lock(mutex_);
    device_ = std::move(device);
  }
  changed_.NotifyAll();
  if (!usable) return;

  while (true) {
    const Task task = AwaitWork();
    switch (task.work) {
      case RunDesk::Work::kPrepare:
        DoPrepare(*task.attempt);
        break;
      case RunDesk::Work::kExecute:
        DoExecute(*task.attempt);
        break;
      case RunDesk::Work::kDiscard:
        DoDiscard(*task.attempt);
        break;
      case RunDesk::Work::kNone:
        return;
    }
  }
}

RunHost::Task RunHost::AwaitWork() {
  MutexLock lock(mutex_);
  while (true) {
    const RunDesk::Work work = desk_.NextWork();
    if (work != RunDesk::Work::kNone) return {work, desk_.attempt()};
    if (quit_ && !desk_.IsActive()) return {};
    changed_.Wait(mutex_);
  }
}

void RunHost::DoPrepare(Attempt& attempt) {
  const RunRequest& request = attempt.request;
  parts_.on_attempt(attempt.job_id, attempt.epoch, attempt.trace);
  const absl::Status prepared = [&]() -> absl::Status {
    PENSTOCK_FAULT_POINT_STATUS(kRunBeforePrepare);
    PENSTOCK_ASSIGN_OR_RETURN(transport_, parts_.join(request));
    PENSTOCK_ASSIGN_OR_RETURN(backend_, parts_.make_backend(request));
    PENSTOCK_ASSIGN_OR_RETURN(run_, parts_.prepare(request, *backend_, *transport_, parts_.on_event,
                                                   [this, &attempt] { return StopOf(attempt); }));
    return absl::OkStatus();
  }();
  if (!prepared.ok()) return DropRun(attempt, prepared);
  PENSTOCK_FAULT_POINT(kRunAfterPrepare);
  {
    MutexLock lock(mutex_);
    attempt.response.set_arithmetic(backend_->arithmetic());
    desk_.SetPrepared(attempt, *run_);
  }
  changed_.NotifyAll();
}

void RunHost::DoExecute(Attempt& attempt) {
  const absl::Status status = run_->Execute();  // its last event says how it ended
  DropRun(attempt, status);
}

// A caller that waits for an attempt that was prepared must hear that it will not execute, unless it
// stopped the attempt itself.
void RunHost::DoDiscard(Attempt& attempt) {
  bool closed = false;
  {
    MutexLock lock(mutex_);
    closed = desk_.closed();
  }
  if (closed && run_ != nullptr) {
    const absl::Status reason = StopOf(attempt);
    v1::RunEvent event;
    event.mutable_run_failed()->set_code(static_cast<v1::StatusCode>(reason.code()));
    event.mutable_run_failed()->set_message(
        absl::StrCat("stopped before it started: ", reason.message()));
    parts_.on_event(std::move(event));
  }
  DropRun(attempt, absl::OkStatus());
}

absl::Status RunHost::StopOf(const Attempt& attempt) const {
  MutexLock lock(mutex_);
  return attempt.stop;
}

absl::Status RunHost::CheckDevice(const absl::Status& outcome) const {
  PENSTOCK_FAULT_POINT_STATUS(kRunDeviceLost);
  return outcome.ok() || backend_ == nullptr ? absl::OkStatus() : backend_->CheckUsable();
}

void RunHost::DropRun(Attempt& attempt, const absl::Status& outcome) {
  if (run_ != nullptr) parts_.on_attempt_over();
  absl::Status stop;
  {
    MutexLock lock(mutex_);
    stop = attempt.stop;
    desk_.TakeRunAway(attempt, run_.get());
  }
  if (transport_ != nullptr && !stop.ok()) transport_->Cancel(stop);
  run_.reset();
  transport_.reset();
  const absl::Status usable = CheckDevice(outcome);
  backend_.reset();
  ReturnFreedMemory();
  PENSTOCK_FAULT_POINT(kRunAfterEnd);
  {
    MutexLock lock(mutex_);
    desk_.End(attempt, outcome);  // with its own error
    if (!usable.ok()) desk_.Close(std::string(usable.message()));
  }
  changed_.NotifyAll();
  if (!usable.ok()) parts_.on_device_lost(usable);
}

// -------------------------------------------------------------------------------- control calls

absl::StatusOr<v1::PrepareRunResponse> RunHost::Prepare(const RunRequest& request,
                                                        absl::Time deadline,
                                                        const std::optional<TraceContext>& trace) {
  PENSTOCK_RETURN_IF_ERROR(CheckIsMeant(request));
  MutexLock lock(mutex_);
  PENSTOCK_ASSIGN_OR_RETURN(const RunDesk::AttemptRef older, desk_.MakeRoom(request));
  changed_.NotifyAll();
  if (older != nullptr && !AwaitEnded(older, deadline)) {
    return absl::DeadlineExceededError("the run before it is still stopping; call again");
  }
  PENSTOCK_ASSIGN_OR_RETURN(const RunDesk::AttemptRef attempt, desk_.TakeUp(request, trace));
  changed_.NotifyAll();
  const auto until = Monotonic(deadline);
  while (attempt->phase == RunDesk::Phase::kPreparing) {
    if (!changed_.WaitUntil(mutex_, until) && attempt->phase == RunDesk::Phase::kPreparing) {
      return absl::DeadlineExceededError(absl::StrCat("run of job ", attempt->job_id, ", epoch ",
                                                      attempt->epoch,
                                                      ": still preparing; call again"));
    }
  }
  return RunDesk::AnswerOf(*attempt);
}

absl::Status RunHost::Start(const std::string& job_id, int64_t epoch) {
  PENSTOCK_FAULT_POINT_STATUS(kRunBeforeStart);
  MutexLock lock(mutex_);
  const absl::Status started = desk_.Start(job_id, epoch);
  changed_.NotifyAll();
  return started;
}

absl::StatusOr<int64_t> RunHost::Hold(const std::string& job_id, int64_t epoch) {
  MutexLock lock(mutex_);
  PENSTOCK_ASSIGN_OR_RETURN(Run* const run, desk_.FindToHold(job_id, epoch));
  return run->Hold();
}

absl::Status RunHost::Cut(const std::string& job_id, int64_t epoch, int64_t step) {
  MutexLock lock(mutex_);
  PENSTOCK_ASSIGN_OR_RETURN(Run* const run, desk_.FindRunning(job_id, epoch));
  return run->CutAt(step);
}

absl::Status RunHost::Stop(const std::string& job_id, int64_t epoch, const std::string& reason,
                           absl::Time deadline) {
  PENSTOCK_FAULT_POINT(kRunBeforeStop);
  MutexLock lock(mutex_);
  const RunDesk::AttemptRef attempt = desk_.Stop(job_id, epoch, reason);
  changed_.NotifyAll();
  if (attempt == nullptr || AwaitEnded(attempt, deadline)) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat("run of job ", job_id, ", epoch ", epoch, ": still stopping; call again"));
}

absl::StatusOr<Timeline> RunHost::RecentTimeline(const std::string& job_id) {
  MutexLock lock(mutex_);
  return desk_.RecentTimeline(job_id);
}

void RunHost::Close(const std::string& reason) {
  MutexLock lock(mutex_);
  desk_.Close(reason);
  changed_.NotifyAll();
}

bool RunHost::AwaitIdle(absl::Time deadline) {
  MutexLock lock(mutex_);
  return !desk_.IsActive() || AwaitEnded(desk_.attempt(), deadline);
}

RunHost::Activity RunHost::GetActivity(bool with_stages) const {
  MutexLock lock(mutex_);
  const RunDesk::AttemptRef& attempt = desk_.attempt();
  if (attempt == nullptr) return {};
  Activity activity = {
      .job_id = attempt->job_id, .epoch = attempt->epoch, .active = desk_.IsActive()};
  activity.preparing = attempt->phase == RunDesk::Phase::kPreparing;
  activity.held = attempt->held;
  const Run* run = attempt->run;
  activity.actions_done = run == nullptr ? attempt->actions_done : run->actions_done();
  if (run != nullptr) {
    activity.pulse = run->pulse();
    activity.unsteady_pulse = run->unsteady_pulse();
  }
  if (with_stages) activity.stages = run == nullptr ? attempt->stages : run->Reports();
  return activity;
}

absl::Status RunHost::CheckIsMeant(const RunRequest& request) const {
  const absl::Status meant = parts_.check(request);
  if (absl::IsFailedPrecondition(meant)) {
    rejected_.Count(Rejection::kStaleEpoch);
  } else if (!meant.ok()) {
    rejected_.Count(meant);
  }
  return meant;
}

bool RunHost::AwaitEnded(const RunDesk::AttemptRef& attempt, absl::Time deadline) {
  const auto until = Monotonic(deadline);
  while (attempt->phase != RunDesk::Phase::kEnded) {
    if (!changed_.WaitUntil(mutex_, until)) return attempt->phase == RunDesk::Phase::kEnded;
  }
  return true;
}

}  // namespace penstock
