#include "services/worker/registration.h"

#include <algorithm>
#include <utility>

#include "base/deadline.h"
#include "base/fault_points.h"
#include "services/rpc/completion_poller.h"

namespace penstock {
namespace {

// Whatever a coordinator asks for, heartbeats come no closer and no farther apart.
constexpr absl::Duration kIntervalMin = absl::Milliseconds(10);
constexpr absl::Duration kIntervalMax = absl::Seconds(10);

}  // namespace

Registration::Registration(Parts parts) : parts_(std::move(parts)) {
  attached_ = std::thread([this] {
    NameThread("attached");
    StayAttached();
  });
  thread_ = std::thread([this] {
    NameThread("heartbeat");
    Run();
  });
}

Registration::~Registration() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
  canceller_.Cancel();
  attached_.join();
}

void Registration::Leave() {
  {
    MutexLock lock(mutex_);
    leaving_ = true;
  }
  changed_.NotifyAll();
}

bool Registration::leaving() const {
  MutexLock lock(mutex_);
  return leaving_;
}

void Registration::Run() {
  absl::Duration wait = absl::ZeroDuration();
  while (!refused_ && !may_leave_ && Sleep(wait)) {
    if (!registered_ && leaving()) {
      may_leave_ = true;  // the coordinator does not know it
      return;
    }
    wait = registered_ ? Beat() : Register();
  }
  may_leave_ = true;
}

void Registration::StayAttached() {
  v1::AttachRequest request;
  request.set_name(parts_.worker.name());
  request.set_incarnation(parts_.worker.incarnation());
  absl::Duration pause = absl::ZeroDuration();
  int64_t after = 0;
  while (const int64_t registrations = AwaitRegistration(after, pause)) {
    const auto since = CondVar::Clock::now();
    const absl::Status ended = parts_.attach(request, canceller_);
    const bool was_open = CondVar::Clock::now() - since >= absl::ToChronoNanoseconds(kAttachedMin);
    pause = was_open ? absl::ZeroDuration() : std::clamp(2 * pause, kBackoffMin, kBackoffMax);
    // A coordinator that does not know the worker, or such streams, is asked again once the worker has registered again.
    const bool in_vain = absl::IsNotFound(ended) || absl::IsUnimplemented(ended);
    after = in_vain ? registrations : 0;
    if (absl::IsDeadlineExceeded(ended) || absl::IsUnimplemented(ended)) continue;
    {
      MutexLock lock(mutex_);
      stream_ended_ = true;
    }
    changed_.NotifyAll();
  }
}

int64_t Registration::AwaitRegistration(int64_t after, absl::Duration pause) {
  const auto until = After(pause);
  MutexLock lock(mutex_);
  while (!stopping_ && changed_.WaitUntil(mutex_, until)) {
  }
  while (!stopping_ && registrations_ <= after) changed_.Wait(mutex_);
  return stopping_ ? 0 : registrations_;
}

absl::Duration Registration::Register() {
  PENSTOCK_FAULT_POINT(kRegistrationBeforeCall);
  const absl::StatusOr<v1::RegisterWorkerResponse> answer = parts_.register_worker(parts_.worker);
  PENSTOCK_FAULT_POINT(kRegistrationAfterAnswer);
  if (absl::IsInvalidArgument(answer.status()) || absl::IsFailedPrecondition(answer.status())) {
    refused_ = true;
    parts_.on_refused(answer.status());
    return absl::ZeroDuration();
  }
  Note(answer.status());
  if (answer.ok()) {
    registered_ = true;
    {
      MutexLock lock(mutex_);
      ++registrations_;
    }
    changed_.NotifyAll();
    backoff_ = absl::ZeroDuration();
    interval_ =
        std::clamp(absl::Milliseconds(answer->heartbeat_interval_ms()), kIntervalMin, kIntervalMax);
    return interval_;
  }
  return NextBackoff();
}

absl::Duration Registration::Beat() {
  v1::HeartbeatRequest request;
  request.set_name(parts_.worker.name());
  request.set_incarnation(parts_.worker.incarnation());
  parts_.fill_activity(request);
  request.set_leaving(leaving());
  const absl::Status status = parts_.heartbeat(request);
  if (request.leaving()) {
    PENSTOCK_FAULT_POINT(kDrainDuringWorker);
    OnLeavingAnswer(status, !request.job_id().empty());
    return kLeavingInterval;
  }
  Note(status);
  if (status.ok()) {
    backoff_ = absl::ZeroDuration();
    return interval_;
  }
  if (absl::IsNotFound(status)) {
    registered_ = false;
    return absl::ZeroDuration();
  }
  return std::min(NextBackoff(), interval_);
}

void Registration::OnLeavingAnswer(const absl::Status& status, bool has_run) {
  unanswered_ = status.ok() ? 0 : unanswered_ + 1;
  const bool let_go = absl::IsNotFound(status);
  const bool nobody_answers = !has_run && unanswered_ >= kLeavingAttemptsMax;
  if (let_go || nobody_answers) may_leave_ = true;
}

absl::Duration Registration::NextBackoff() {
  backoff_ = std::clamp(2 * backoff_, kBackoffMin, kBackoffMax);
  return backoff_;
}

void Registration::Note(const absl::Status& status) {
  if (status.code() == noted_.code()) return;
  noted_ = status;
  parts_.on_change(status);
}

bool Registration::Sleep(absl::Duration wait) {
  const auto until = After(wait);
  MutexLock lock(mutex_);
  const bool was_leaving = leaving_;
  while (!stopping_ && !stream_ended_ && leaving_ == was_leaving &&
         changed_.WaitUntil(mutex_, until)) {
  }
  stream_ended_ = false;
  return !stopping_;
}

}  // namespace penstock
