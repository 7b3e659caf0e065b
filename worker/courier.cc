#include "worker/courier.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/deadline.h"
#include "base/status.h"
#include "compute/device_share.h"

namespace penstock {
namespace {

// Between two looks at the device: short beside a microbatch, long beside a look.
constexpr std::chrono::microseconds kNap{25};

}  // namespace

Courier::~Courier() {
  {
    MutexLock lock(mutex_);
    quit_ = true;
  }
  work_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

// ------------------------------------------------------------------------------ executor's thread

absl::Status Courier::Send(Sender& sender, int64_t sequence, const Tensor& tensor,
                           absl::Time deadline) {
  PENSTOCK_RETURN_IF_ERROR(ErrorOf(&sender));
  PENSTOCK_RETURN_IF_ERROR(Blame(true, sender.Reserve(sequence, tensor, deadline)));
  absl::StatusOr<Outgoing> outgoing =
      sender.lends() ? device_.share()->StartLending(tensor) : device_.StartToHost(tensor);
  PENSTOCK_RETURN_IF_ERROR(Blame(false, outgoing.status()));
  return Dispatch(sender, sequence, *std::move(outgoing), deadline);
}

absl::Status Courier::SendFromHost(Sender& sender, int64_t sequence, const Tensor& tensor,
                                   absl::Time deadline) {
  PENSTOCK_RETURN_IF_ERROR(ErrorOf(&sender));
  PENSTOCK_RETURN_IF_ERROR(Blame(true, sender.Reserve(sequence, tensor, deadline)));
  return Dispatch(sender, sequence, {.host = tensor}, deadline);
}

absl::Status Courier::Dispatch(Sender& sender, int64_t sequence, Outgoing outgoing,
                               absl::Time deadline) {
  if (thread_.joinable() || outgoing.pending()) {
    MutexLock lock(mutex_);
    Lane& lane = LaneOf(&sender, nullptr);
    if (outgoing.pending() || !lane.errands.empty()) {
      Enqueue(lane, {sequence, std::move(outgoing), Monotonic(deadline)});
      return absl::OkStatus();
    }
  }
  return Blame(true, HandOver(sender, sequence, outgoing));
}

absl::StatusOr<Tensor> Courier::Receive(Receiver& receiver, const TensorExpectation& expected,
                                        absl::Time deadline) {
  PENSTOCK_RETURN_IF_ERROR(ErrorOf(&receiver));
  absl::StatusOr<Arrival> arrival = receiver.Take(expected, deadline);
  PENSTOCK_RETURN_IF_ERROR(Blame(true, arrival.status()));
  if (!arrival->fetched) {
    absl::StatusOr<Tensor> tensor = device_.ToDevice(arrival->tensor);
    PENSTOCK_RETURN_IF_ERROR(Blame(false, tensor.status()));
    return tensor;
  }
  if (arrival->ticket == kNoTicket) {
    receiver.Release();
  } else {
    MutexLock lock(mutex_);
    Enqueue(LaneOf(nullptr, &receiver),
            {expected.sequence, {.ticket = arrival->ticket}, Monotonic(deadline)});
  }
  return std::move(arrival->tensor);
}

absl::Status Courier::Drain(absl::Time deadline) {
  if (!thread_.joinable()) return absl::OkStatus();
  const TimePoint until = Monotonic(deadline);
  MutexLock lock(mutex_);
  while (errands_ > 0 && cancelled_.ok()) {
    if (idle_.WaitUntil(mutex_, until) || errands_ == 0 || !cancelled_.ok()) continue;
    peer_failed_ = false;
    return absl::DeadlineExceededError(
        absl::StrCat(errands_, " tensors were still on their way at the end of a range"));
  }
  peer_failed_ = false;
  PENSTOCK_RETURN_IF_ERROR(cancelled_);
  for (const Lane& lane : lanes_) {
    if (lane.error.ok()) continue;
    peer_failed_ = lane.peer_failed;
    return lane.error;
  }
  return absl::OkStatus();
}

absl::Status Courier::ErrorOf(const void* end) {
  if (!thread_.joinable()) return absl::OkStatus();
  MutexLock lock(mutex_);
  peer_failed_ = false;
  PENSTOCK_RETURN_IF_ERROR(cancelled_);
  for (const Lane& lane : lanes_) {
    if (lane.error.ok() || (lane.sender != end && lane.receiver != end)) continue;
    peer_failed_ = lane.peer_failed;
    return lane.error;
  }
  return absl::OkStatus();
}

absl::Status Courier::Blame(bool peer, absl::Status status) {
  if (!status.ok()) peer_failed_ = peer;
  return status;
}

absl::Status Courier::HandOver(Sender& sender, int64_t sequence, const Outgoing& outgoing) {
  return outgoing.host ? sender.Put(sequence, outgoing.host)
                       : sender.Lend(sequence, outgoing.device);
}

Courier::Lane& Courier::LaneOf(Sender* sender, Receiver* receiver) {
  for (Lane& lane : lanes_) {
    if (lane.sender == sender && lane.receiver == receiver) return lane;
  }
  return lanes_.emplace_back(Lane{.sender = sender, .receiver = receiver});
}

void Courier::Enqueue(Lane& lane, Errand errand) {
  if (!cancelled_.ok() || !lane.error.ok()) return;  // which the next call returns
  lane.errands.push_back(std::move(errand));
  ++errands_;
  if (!thread_.joinable()) thread_ = std::thread([this] { Main(); });
  work_.NotifyOne();
}

// -------------------------------------------------------------------------------------- any thread

void Courier::Cancel(const absl::Status& reason) {
  MutexLock lock(mutex_);
  if (!cancelled_.ok()) return;
  cancelled_ = reason;
  for (Lane& lane : lanes_) lane.errands.clear();
  errands_ = 0;
  idle_.NotifyAll();
}

// ------------------------------------------------------------------------------- courier's thread

void Courier::Main() {
  MutexLock lock(mutex_);
  while (!quit_) {
    if (errands_ == 0) {
      work_.Wait(mutex_);
    } else if (!Round()) {
      work_.WaitUntil(mutex_, CondVar::Clock::now() + kNap);
    }
  }
}

bool Courier::Round() {
  const TimePoint now = CondVar::Clock::now();
  bool progress = false;
  for (Lane& lane : lanes_) {
    while (!lane.errands.empty() && TryFirst(lane, now)) progress = true;
  }
  if (errands_ == 0) idle_.NotifyAll();
  return progress;
}

bool Courier::TryFirst(Lane& lane, TimePoint now) {
  Errand& first = lane.errands.front();
  if (first.outgoing.pending()) {
    const absl::StatusOr<bool> done = device_.Poll(first.outgoing.ticket);
    if (!done.ok()) {
      Fail(lane, /*peer=*/false, Annotate(done.status(), absl::StrCat("message ", first.sequence)));
      return true;
    }
    if (!*done && now < first.deadline) return false;
    if (!*done) {
      Fail(lane, /*peer=*/false,
           absl::DeadlineExceededError(
               absl::StrCat("the device did not finish message ", first.sequence, " in time")));
      return true;
    }
  }
  const Errand errand = std::move(first);
  lane.errands.erase(lane.errands.begin());
  --errands_;
  if (lane.receiver != nullptr) {
    lane.receiver->Release();
  } else if (const absl::Status sent = HandOver(*lane.sender, errand.sequence, errand.outgoing);
             !sent.ok()) {
    Fail(lane, /*peer=*/true, sent);
  }
  return true;
}

void Courier::Fail(Lane& lane, bool peer, const absl::Status& error) {
  errands_ -= static_cast<int64_t>(lane.errands.size());
  lane.errands.clear();
  lane.error = error;
  lane.peer_failed = peer;
  idle_.NotifyAll();
}

}  // namespace penstock
