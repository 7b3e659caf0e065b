#include "worker/mailbox.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/deadline.h"
#include "base/status.h"

namespace penstock {
Mailbox::Mailbox(int capacity) : capacity_(capacity) {
  PENSTOCK_CHECK(capacity > 0);
  ring_.resize(capacity);
}

absl::Status Mailbox::Reserve(absl::Time deadline) {
  MutexLock lock(mutex_);
  if (!CanPush()) PENSTOCK_RETURN_IF_ERROR(WaitForRoom(Monotonic(deadline)));
  PENSTOCK_RETURN_IF_ERROR(End());
  ++reserved_;
  return absl::OkStatus();
}

absl::Status Mailbox::Push(Message message) {
  {
    MutexLock lock(mutex_);
    PENSTOCK_CHECK(reserved_ > 0);
    --reserved_;
    PENSTOCK_RETURN_IF_ERROR(Append(std::move(message)));
  }
  arrived_.NotifyOne();
  return absl::OkStatus();
}

absl::Status Mailbox::TryPush(Message message) {
  {
    MutexLock lock(mutex_);
    if (!CanPush()) {
      return absl::ResourceExhaustedError(
          absl::StrCat("message ", message.sequence, " exceeds the window of ", capacity_));
    }
    PENSTOCK_RETURN_IF_ERROR(Append(std::move(message)));
  }
  arrived_.NotifyOne();
  return absl::OkStatus();
}

absl::StatusOr<Message> Mailbox::Pop(absl::Time deadline) {
  Message message;
  {
    MutexLock lock(mutex_);
    if (!CanPop()) PENSTOCK_RETURN_IF_ERROR(WaitForMessage(Monotonic(deadline)));
    if (!cancelled_.ok()) return cancelled_;
    if (count_ == 0) return closed_;
    message = std::exchange(ring_[head_], Message());
    head_ = (head_ + 1) % capacity_;
    --count_;
  }
  room_.NotifyOne();
  return message;
}

absl::Status Mailbox::WaitForRoom(CondVar::Clock::time_point until) {
  while (!CanPush()) {
    if (room_.WaitUntil(mutex_, until) || CanPush()) continue;
    return absl::DeadlineExceededError(absl::StrCat("no credit in time: all ", capacity_,
                                                    " messages of the window are still to be "
                                                    "received"));
  }
  return absl::OkStatus();
}

absl::Status Mailbox::WaitForMessage(CondVar::Clock::time_point until) {
  while (!CanPop()) {
    if (arrived_.WaitUntil(mutex_, until) || CanPop()) continue;
    return absl::DeadlineExceededError("no message in time");
  }
  return absl::OkStatus();
}

void Mailbox::SetDoorbell(Doorbell* bell) {
  MutexLock lock(mutex_);
  bell_ = bell;
}

bool Mailbox::Ready() const {
  MutexLock lock(mutex_);
  return CanPop();
}

std::optional<Waiting> Mailbox::FirstWaiting() const {
  MutexLock lock(mutex_);
  if (count_ == 0 || !cancelled_.ok()) return std::nullopt;
  const Message& first = ring_[head_];
  return Waiting{.since = first.since, .size_bytes = first.tensor.size_bytes()};
}

bool Mailbox::HasRoom() const {
  MutexLock lock(mutex_);
  return CanPush();
}

int Mailbox::waiting() const {
  MutexLock lock(mutex_);
  return count_;
}

void Mailbox::Close(const absl::Status& reason) {
  PENSTOCK_CHECK(!reason.ok());
  MutexLock lock(mutex_);
  if (closed_.ok()) closed_ = reason;
  Ring();
  room_.NotifyAll();
  arrived_.NotifyAll();
}

void Mailbox::Cancel(const absl::Status& reason) {
  PENSTOCK_CHECK(!reason.ok());
  MutexLock lock(mutex_);
  if (!cancelled_.ok()) return;
  cancelled_ = reason;
  for (Message& message : ring_) message = Message();
  count_ = 0;
  Ring();
  room_.NotifyAll();
  arrived_.NotifyAll();
}

bool Mailbox::CanPop() const { return count_ > 0 || !closed_.ok() || !cancelled_.ok(); }

bool Mailbox::CanPush() const { return count_ + reserved_ < capacity_ || !End().ok(); }

absl::Status Mailbox::End() const { return cancelled_.ok() ? closed_ : cancelled_; }

absl::Status Mailbox::Append(Message message) {
  PENSTOCK_RETURN_IF_ERROR(End());
  message.since = CondVar::Clock::now();
  ring_[(head_ + count_) % capacity_] = std::move(message);
  ++count_;
  Ring();
  return absl::OkStatus();
}

}  // namespace penstock
