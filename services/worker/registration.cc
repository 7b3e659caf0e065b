#include "services/worker/registration.h"

#include <utility>

#include "base/deadline.h"
#include "base/fault_points.h"
#include "services/rpc/completion_poller.h"

namespace penstock {

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
    dialogue_.Leave();
  }
  changed_.NotifyAll();
}

bool Registration::may_leave() const {
  MutexLock lock(mutex_);
  return dialogue_.may_leave();
}

void Registration::Run() {
  absl::Duration wait = absl::ZeroDuration();
  while (Sleep(wait)) {
    RegistrationDialogue::Call call;
    {
      MutexLock lock(mutex_);
      call = dialogue_.Next();
    }
    if (call == RegistrationDialogue::Call::kNone) return;
    wait = Make(call);
  }
}

absl::Duration Registration::Make(RegistrationDialogue::Call call) {
  const RegistrationDialogue::AfterAnswer after =
      call == RegistrationDialogue::Call::kRegister ? Register() : Beat();
  if (after.news.has_value()) parts_.on_change(*after.news);
  return after.wait;
}

RegistrationDialogue::AfterAnswer Registration::Register() {
  PENSTOCK_FAULT_POINT(kRegistrationBeforeCall);
  const absl::StatusOr<v1::RegisterWorkerResponse> answer = parts_.register_worker(parts_.worker);
  PENSTOCK_FAULT_POINT(kRegistrationAfterAnswer);
  RegistrationDialogue::AfterAnswer after;
  {
    MutexLock lock(mutex_);
    after = dialogue_.OnRegistered(answer);
  }
  changed_.NotifyAll();
  if (after.refused) parts_.on_refused(answer.status());
  return after;
}

RegistrationDialogue::AfterAnswer Registration::Beat() {
  v1::HeartbeatRequest request;
  request.set_name(parts_.worker.name());
  request.set_incarnation(parts_.worker.incarnation());
  parts_.fill_activity(request);
  {
    MutexLock lock(mutex_);
    request.set_leaving(dialogue_.leaving());
  }
  const absl::StatusOr<v1::HeartbeatResponse> answer = parts_.heartbeat(request);
  if (request.leaving()) PENSTOCK_FAULT_POINT(kDrainDuringWorker);
  MutexLock lock(mutex_);
  return dialogue_.OnHeartbeat(request, answer);
}

bool Registration::Sleep(absl::Duration wait) {
  const auto until = After(wait);
  MutexLock lock(mutex_);
  const bool was_leaving = dialogue_.leaving();
  while (!stopping_ && !stream_ended_ && dialogue_.leaving() == was_leaving &&
         changed_.WaitUntil(mutex_, until)) {
  }
  stream_ended_ = false;
  return !stopping_;
}

void Registration::StayAttached() {
  v1::AttachRequest request;
  request.set_name(parts_.worker.name());
  request.set_incarnation(parts_.worker.incarnation());
  while (const int64_t registrations = AwaitRegistration()) {
    const auto since = CondVar::Clock::now();
    const absl::Status ended = parts_.attach(request, canceller_);
    const absl::Duration open_for = absl::FromChrono(CondVar::Clock::now() - since);
    {
      MutexLock lock(mutex_);
      if (dialogue_.OnStreamEnded(registrations, open_for, ended)) stream_ended_ = true;
    }
    changed_.NotifyAll();
  }
}

int64_t Registration::AwaitRegistration() {
  const auto since = CondVar::Clock::now();
  MutexLock lock(mutex_);
  while (!stopping_) {
    if (!dialogue_.MayAttach()) {
      changed_.Wait(mutex_);
      continue;
    }
    // A registration meanwhile makes the pause shorter.
    const auto until = since + absl::ToChronoNanoseconds(dialogue_.stream_pause());
    if (CondVar::Clock::now() >= until) return dialogue_.registrations();
    changed_.WaitUntil(mutex_, until);
  }
  return 0;
}

}  // namespace penstock
