#include "worker/courier.h"

#include <algorithm>
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
    last_look_ = After(last_wait_);
    for (Lane& lane : lanes_) GiveUpAll(lane);
  }
  work_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

// ------------------------------------------------------------------------------ executor's thread

absl::Status Courier::Send(Sender& sender, int64_t sequence, const Tensor& tensor,
                           absl::Time deadline) {
  PENSTOCK_RETURN_IF_ERROR(ErrorOf(&sender));
  PENSTOCK_RETURN_IF_ERROR(Reserve(sender, sequence, tensor, deadline));
  absl::StatusOr<Outgoing> outgoing =
      sender.exports() ? device_.share()->StartExporting(tensor) : device_.StartToHost(tensor);
  PENSTOCK_RETURN_IF_ERROR(Blame(false, outgoing.status()));
  return Dispatch(sender, sequence, *std::move(outgoing), deadline);
}

absl::Status Courier::SendFromHost(Sender& sender, int64_t sequence, const Tensor& tensor,
                                   absl::Time deadline) {
  PENSTOCK_RETURN_IF_ERROR(ErrorOf(&sender));
  PENSTOCK_RETURN_IF_ERROR(Reserve(sender, sequence, tensor, deadline));
  return Dispatch(sender, sequence, {.host = tensor}, deadline);
}

absl::Status Courier::Reserve(Sender& sender, int64_t sequence, const Tensor& tensor,
                              absl::Time deadline) {
  return Blame(true, pulse_.BeatDuring(deadline, [&](absl::Time until) {
    return sender.Reserve(sequence, tensor, until);
  }));
}

absl::Status Courier::Dispatch(Sender& sender, int64_t sequence, Outgoing outgoing,
                               absl::Time deadline) {
  if (thread_.joinable() || outgoing.pending()) {
    MutexLock lock(mutex_);
    Lane& lane = LaneOf(&sender, nullptr);
    if (outgoing.pending() || !lane.errands.empty() || lane.handing_over) {
      Enqueue(lane, {sequence, std::move(outgoing), Monotonic(deadline)});
      return absl::OkStatus();
    }
  }
  bool peer_failed = false;
  const absl::Status sent = HandOver(sender, sequence, outgoing, peer_failed);
  return Blame(peer_failed, sent);
}

absl::StatusOr<Courier::Received> Courier::Receive(Receiver& receiver,
                                                   const TensorExpectation& expected,
                                                   absl::Time deadline) {
  PENSTOCK_RETURN_IF_ERROR(ErrorOf(&receiver));
  absl::StatusOr<Arrival> arrival =
      pulse_.BeatDuring(deadline, [&](absl::Time until) { return receiver.Take(expected, until); });
  PENSTOCK_RETURN_IF_ERROR(Blame(true, arrival.status()));
  if (!arrival->is_exported()) {
    absl::StatusOr<Tensor> tensor = device_.ToDevice(arrival->tensor);
    PENSTOCK_RETURN_IF_ERROR(Blame(false, tensor.status()));
    return Received{.tensor = *std::move(tensor)};
  }
  absl::StatusOr<Importer::Fetched> fetched = receiver.Fetch(*arrival);
  if (!fetched.ok()) {
    // An exporter that names no memory, or none that can be opened.
    const bool exporter =
        absl::IsInvalidArgument(fetched.status()) || absl::IsUnavailable(fetched.status());
    return Blame(exporter, fetched.status());
  }
  if (fetched->ticket == kNoTicket) {
    receiver.Release();
  } else {
    MutexLock lock(mutex_);
    Enqueue(LaneOf(nullptr, &receiver),
            {expected.sequence, {.ticket = fetched->ticket}, Monotonic(deadline)});
  }
  return Received{.tensor = std::move(fetched->tensor), .fetched = true};
}

absl::StatusOr<Tensor> Courier::ReceiveToHost(Receiver& receiver, const TensorExpectation& expected,
                                              absl::Time deadline) {
  return pulse_.BeatDuring(deadline,
                           [&](absl::Time until) { return receiver.Receive(expected, until); });
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

absl::Status Courier::HandOver(Sender& sender, int64_t sequence, const Outgoing& outgoing,
                               bool& peer_failed) {
  peer_failed = true;
  if (outgoing.host) return sender.Put(sequence, outgoing.host);
  const absl::StatusOr<ShareBytes> descriptor = sender.Describe(outgoing.device);
  if (descriptor.ok()) return sender.Export(sequence, outgoing.device, *descriptor);
  peer_failed = false;
  return descriptor.status();
}

Courier::Lane& Courier::LaneOf(Sender* sender, Receiver* receiver) {
  for (Lane& lane : lanes_) {
    if (lane.sender == sender && lane.receiver == receiver) return lane;
  }
  return lanes_.emplace_back(Lane{.sender = sender, .receiver = receiver});
}

void Courier::Enqueue(Lane& lane, Errand errand) {
  if (!thread_.joinable()) thread_ = std::thread([this] { Main(); });
  if (cancelled_.ok() && lane.error.ok()) {
    lane.errands.push_back(std::move(errand));
    ++errands_;
  } else {
    GiveUp(std::move(errand));  // the next call returns why
  }
  work_.NotifyOne();
}

// -------------------------------------------------------------------------------------- any thread

void Courier::Cancel(const absl::Status& reason) {
  MutexLock lock(mutex_);
  if (!cancelled_.ok()) return;
  cancelled_ = reason;
  for (Lane& lane : lanes_) GiveUpAll(lane);
  work_.NotifyOne();
  idle_.NotifyAll();
}

void Courier::GiveUp(Errand errand) {
  if (errand.outgoing.pending()) given_up_.push_back(std::move(errand.outgoing));
}

void Courier::GiveUpAll(Lane& lane) {
  errands_ -= static_cast<int64_t>(lane.errands.size());
  for (Errand& errand : lane.errands) GiveUp(std::move(errand));
  lane.errands.clear();
}

// ------------------------------------------------------------------------------- courier's thread

void Courier::Main() {
  MutexLock lock(mutex_);
  while (!quit_ || !given_up_.empty()) {
    if (Round()) continue;
    if (quit_ && CondVar::Clock::now() >= last_look_) break;
    if (errands_ == 0 && given_up_.empty()) {
      work_.Wait(mutex_);
    } else {
      work_.WaitUntil(mutex_, CondVar::Clock::now() + kNap);
    }
  }
  // Their counts never reach zero, so no pool gives them out again.
  for (Outgoing& lost : given_up_) {
    (void)lost.device.buffer.Detach();
    (void)lost.host.buffer.Detach();
  }
}

bool Courier::Round() {
  const TimePoint now = CondVar::Clock::now();
  bool progress = DropFinished();
  // By number, because lanes may be added while the mutex is released.
  for (size_t i = 0; i < lanes_.size(); ++i) {
    while (TryFirst(lanes_[i], now)) progress = true;
  }
  if (errands_ == 0) idle_.NotifyAll();
  return progress;
}

bool Courier::TryFirst(Lane& lane, TimePoint now) {
  if (lane.errands.empty()) return false;
  Errand& first = lane.errands.front();
  if (first.outgoing.pending()) {
    const absl::StatusOr<bool> done = device_.Poll(first.outgoing.ticket);
    if (done.ok() && !*done) {
      if (now < first.deadline) return false;
      Fail(lane, /*peer=*/false,
           absl::DeadlineExceededError(
               absl::StrCat("the device did not finish message ", first.sequence, " in time")));
      return true;
    }
    first.outgoing.ticket = kNoTicket;  // used up
    if (!done.ok()) {
      Fail(lane, /*peer=*/false, Annotate(done.status(), absl::StrCat("message ", first.sequence)));
      return true;
    }
  }
  HandOverFirst(lane);
  return true;
}

void Courier::HandOverFirst(Lane& lane) {
  Errand errand = std::move(lane.errands.front());
  lane.errands.erase(lane.errands.begin());
  lane.handing_over = true;
  mutex_.Unlock();
  absl::Status sent;
  bool peer_failed = false;
  if (lane.receiver != nullptr) {
    lane.receiver->Release();
  } else {
    sent = HandOver(*lane.sender, errand.sequence, errand.outgoing, peer_failed);
  }
  errand = Errand();
  mutex_.Lock();
  lane.handing_over = false;
  --errands_;
  if (!sent.ok()) Fail(lane, peer_failed, sent);
}

bool Courier::DropFinished() {
  const size_t before = given_up_.size();
  const auto finished = [this](const Outgoing& outgoing) {
    const absl::StatusOr<bool> done = device_.Poll(outgoing.ticket);
    return !done.ok() || *done;
  };
  given_up_.erase(std::remove_if(given_up_.begin(), given_up_.end(), finished), given_up_.end());
  return given_up_.size() < before;
}

void Courier::Fail(Lane& lane, bool peer, const absl::Status& error) {
  GiveUpAll(lane);
  lane.error = error;
  lane.peer_failed = peer;
  idle_.NotifyAll();
}

}  // namespace penstock
