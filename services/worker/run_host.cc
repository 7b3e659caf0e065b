#include "services/worker/run_host.h"

#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <type_traits>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/deadline.h"
#include "base/fault_points.h"
#include "base/seen_epoch.h"
#include "base/status.h"
#include "services/rpc/completion_poller.h"
#include "services/rpc/memory.h"

namespace penstock {
namespace {

// Jobs whose epochs are remembered.
constexpr size_t kRememberedJobsMax = 64;

std::string NameOf(const std::string& job_id, int64_t epoch) {
  return absl::StrCat("run of job ", job_id, ", epoch ", epoch);
}

bool AreSame(const RunRequest& a, const RunRequest& b) {
  return std::visit(
      [](const auto& left, const auto& right) {
        if constexpr (std::is_same_v<decltype(left), decltype(right)>) {
          return google::protobuf::util::MessageDifferencer::Equals(left, right);
        } else {
          return false;
        }
      },
      a, b);
}

}  // namespace

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

  std::shared_ptr<Attempt> attempt;
  while (true) {
    switch (AwaitWork(attempt)) {
      case Work::kPrepare:
        DoPrepare(*attempt);
        break;
      case Work::kExecute:
        DoExecute(*attempt);
        break;
      case Work::kDiscard:
        DoDiscard(*attempt);
        break;
      case Work::kQuit:
        return;
    }
  }
}

RunHost::Work RunHost::AwaitWork(std::shared_ptr<Attempt>& attempt) {
  MutexLock lock(mutex_);
  while (true) {
    attempt = attempt_;
    if (IsActive()) {
      if (!attempt->stop.ok()) return Work::kDiscard;
      if (attempt->phase == Phase::kPreparing) return Work::kPrepare;
      if (attempt->phase == Phase::kStarting) {
        attempt->phase = Phase::kRunning;
        return Work::kExecute;
      }
    } else if (quit_) {
      return Work::kQuit;
    }
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
    attempt.run = run_.get();
    attempt.response.set_schedule_digest(run_->schedule_digest());
    attempt.response.set_memory_bytes(run_->memory_bytes());
    attempt.prepared = true;
    attempt.phase = Phase::kPrepared;
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
    closed = !closed_.ok();
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

void RunHost::DropRun(Attempt& attempt, const absl::Status& outcome) {
  if (run_ != nullptr) parts_.on_attempt_over();
  absl::Status stop;
  {
    MutexLock lock(mutex_);
    stop = attempt.stop;
    attempt.run = nullptr;
    if (run_ != nullptr) {
      attempt.actions_done = run_->actions_done();
      attempt.stages = run_->Reports();
      attempt.timeline = run_->RecentTimeline();
    }
  }
  if (transport_ != nullptr && !stop.ok()) transport_->Cancel(stop);
  run_.reset();
  transport_.reset();
  backend_.reset();
  ReturnFreedMemory();
  PENSTOCK_FAULT_POINT(kRunAfterEnd);
  {
    MutexLock lock(mutex_);
    attempt.phase = Phase::kEnded;
    attempt.outcome = attempt.stop.ok() ? outcome : attempt.stop;
  }
  changed_.NotifyAll();
}

// -------------------------------------------------------------------------------- control calls

absl::StatusOr<v1::PrepareRunResponse> RunHost::Prepare(const RunRequest& request,
                                                        absl::Time deadline,
                                                        const std::optional<TraceContext>& trace) {
  const auto [job_id, epoch] = std::visit(
      [](const auto& typed) { return std::pair(typed.job_id(), typed.epoch()); }, request);
  const std::string name = NameOf(job_id, epoch);
  PENSTOCK_RETURN_IF_ERROR(CheckIsMeant(request));
  MutexLock lock(mutex_);
  PENSTOCK_RETURN_IF_ERROR(closed_);
  PENSTOCK_RETURN_IF_ERROR(CheckEpoch(job_id, epoch));
  if (attempt_ == nullptr || attempt_->job_id != job_id || attempt_->epoch != epoch) {
    if (IsActive()) {
      const std::shared_ptr<Attempt> older = attempt_;
      AskToStop(*older, absl::StrCat("the worker was given the ", name));
      if (!AwaitEnded(older, deadline)) {
        return absl::DeadlineExceededError("the run before it is still stopping; call again");
      }
      // Another call may have come in while this one waited.
      PENSTOCK_RETURN_IF_ERROR(closed_);
      PENSTOCK_RETURN_IF_ERROR(CheckEpoch(job_id, epoch));
      if (IsActive()) return absl::AbortedError("the worker was given another run meanwhile");
    }
    Fence(job_id, /*first=*/epoch, /*seen=*/epoch);
    attempt_ = std::make_shared<Attempt>();
    attempt_->request = request;
    attempt_->job_id = job_id;
    attempt_->epoch = epoch;
    attempt_->trace = trace;
    changed_.NotifyAll();
  } else if (!AreSame(attempt_->request, request)) {
    return OtherOfItsEpoch(job_id, epoch);
  }
  const std::shared_ptr<Attempt> attempt = attempt_;
  const auto until = Monotonic(deadline);
  while (attempt->phase == Phase::kPreparing) {
    if (!changed_.WaitUntil(mutex_, until) && attempt->phase == Phase::kPreparing) {
      return absl::DeadlineExceededError(absl::StrCat(name, ": still preparing; call again"));
    }
  }
  if (!attempt->prepared) return attempt->outcome;
  return attempt->response;
}

absl::Status RunHost::Start(const std::string& job_id, int64_t epoch) {
  PENSTOCK_FAULT_POINT_STATUS(kRunBeforeStart);
  MutexLock lock(mutex_);
  PENSTOCK_RETURN_IF_ERROR(CheckEpoch(job_id, epoch));
  const bool same = attempt_ != nullptr && attempt_->job_id == job_id && attempt_->epoch == epoch;
  if (!same || !attempt_->prepared) {
    return absl::FailedPreconditionError(absl::StrCat(NameOf(job_id, epoch), ": not prepared"));
  }
  if (attempt_->phase == Phase::kPrepared && attempt_->stop.ok()) {
    attempt_->phase = Phase::kStarting;
    attempt_->started = true;
    changed_.NotifyAll();
  }
  // It may have ended since: then the answer of the call that started it was lost.
  return attempt_->started ? absl::OkStatus() : attempt_->stop;
}

absl::StatusOr<int64_t> RunHost::Hold(const std::string& job_id, int64_t epoch) {
  MutexLock lock(mutex_);
  PENSTOCK_ASSIGN_OR_RETURN(Attempt * attempt, FindRunning(job_id, epoch));
  return attempt->run->Hold();
}

absl::Status RunHost::Cut(const std::string& job_id, int64_t epoch, int64_t step) {
  MutexLock lock(mutex_);
  PENSTOCK_ASSIGN_OR_RETURN(Attempt * attempt, FindRunning(job_id, epoch));
  return attempt->run->CutAt(step);
}

absl::Status RunHost::Stop(const std::string& job_id, int64_t epoch, const std::string& reason,
                           absl::Time deadline) {
  PENSTOCK_FAULT_POINT(kRunBeforeStop);
  MutexLock lock(mutex_);
  // A PrepareRun that comes late must not bring it back.
  Fence(job_id, /*first=*/std::min(epoch, kEpochMax) + 1, /*seen=*/epoch);
  if (!IsActive() || attempt_->job_id != job_id || attempt_->epoch > epoch) {
    return absl::OkStatus();
  }
  const std::shared_ptr<Attempt> attempt = attempt_;
  AskToStop(*attempt, reason);
  if (AwaitEnded(attempt, deadline)) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat(NameOf(job_id, epoch), ": still stopping; call again"));
}

absl::StatusOr<Timeline> RunHost::RecentTimeline(const std::string& job_id) {
  MutexLock lock(mutex_);
  if (attempt_ == nullptr || attempt_->job_id != job_id) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", job_id, " is not the last one that this worker ran"));
  }
  return attempt_->run == nullptr ? attempt_->timeline : attempt_->run->RecentTimeline();
}

void RunHost::Close(const std::string& reason) {
  MutexLock lock(mutex_);
  if (closed_.ok()) closed_ = absl::UnavailableError(reason);
  if (IsActive()) AskToStop(*attempt_, reason);
}

bool RunHost::AwaitIdle(absl::Time deadline) {
  MutexLock lock(mutex_);
  return !IsActive() || AwaitEnded(attempt_, deadline);
}

RunHost::Activity RunHost::GetActivity(bool with_stages) const {
  MutexLock lock(mutex_);
  if (attempt_ == nullptr) return {};
  Activity activity = {.job_id = attempt_->job_id, .epoch = attempt_->epoch, .active = IsActive()};
  const Run* run = attempt_->run;
  activity.actions_done = run == nullptr ? attempt_->actions_done : run->actions_done();
  if (run != nullptr) activity.pulse = run->pulse();
  if (with_stages) activity.stages = run == nullptr ? attempt_->stages : run->Reports();
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

absl::Status RunHost::CheckEpoch(const std::string& job_id, int64_t epoch) const {
  for (const JobEpochs& known : epochs_) {
    if (known.job_id == job_id && epoch < known.first) {
      rejected_.Count(Rejection::kStaleEpoch);
      return WithSeenEpoch(
          absl::AbortedError(absl::StrCat(
              NameOf(job_id, epoch), ": over on this worker, which has seen epoch ", known.seen)),
          known.seen);
    }
  }
  return absl::OkStatus();
}

absl::Status RunHost::OtherOfItsEpoch(const std::string& job_id, int64_t epoch) const {
  rejected_.Count(Rejection::kStaleEpoch);
  return WithSeenEpoch(absl::AbortedError(absl::StrCat(
                           NameOf(job_id, epoch),
                           ": this worker knows another attempt of that epoch, perhaps "
                           "of a coordinator that lost its records; expected a later one")),
                       epoch);
}

absl::StatusOr<RunHost::Attempt*> RunHost::FindRunning(const std::string& job_id,
                                                       int64_t epoch) const {
  PENSTOCK_RETURN_IF_ERROR(CheckEpoch(job_id, epoch));
  if (attempt_ == nullptr || attempt_->job_id != job_id || attempt_->epoch != epoch ||
      attempt_->run == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(NameOf(job_id, epoch), ": not executing on this worker"));
  }
  return attempt_.get();
}

void RunHost::Fence(const std::string& job_id, int64_t first, int64_t seen) {
  JobEpochs epochs = {.job_id = job_id, .first = first, .seen = seen};
  std::erase_if(epochs_, [&](const JobEpochs& known) {
    if (known.job_id != job_id) return false;
    epochs.first = std::max(epochs.first, known.first);
    epochs.seen = std::max(epochs.seen, known.seen);
    return true;
  });
  if (epochs_.size() >= kRememberedJobsMax) epochs_.erase(epochs_.begin());
  epochs_.push_back(std::move(epochs));
}

void RunHost::AskToStop(Attempt& attempt, const std::string& reason) {
  if (attempt.stop.ok()) attempt.stop = absl::AbortedError(reason);
  if (attempt.run != nullptr) attempt.run->Stop(reason);
  changed_.NotifyAll();
}

bool RunHost::AwaitEnded(const std::shared_ptr<Attempt>& attempt, absl::Time deadline) {
  const auto until = Monotonic(deadline);
  while (attempt->phase != Phase::kEnded) {
    if (!changed_.WaitUntil(mutex_, until)) return attempt->phase == Phase::kEnded;
  }
  return true;
}

}  // namespace penstock
