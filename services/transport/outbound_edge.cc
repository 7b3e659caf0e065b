#include "services/transport/outbound_edge.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/deadline.h"
#include "base/status.h"

namespace penstock {

OutboundEdge::OutboundEdge(std::string peer, int capacity)
    : peer_(std::move(peer)), sent_at_(capacity), window_(capacity), ring_(capacity) {}

absl::Status OutboundEdge::Reserve(int64_t sequence, absl::Time deadline) {
  MutexLock lock(mutex_);
  if (!window_.HasRoom() && failed_.ok()) {
    const auto until = Monotonic(deadline);
    const LinkMeter::TimePoint since = LinkMeter::Now();
    while (!window_.HasRoom() && failed_.ok()) {
      if (!changed_.WaitUntil(mutex_, until) && !window_.HasRoom() && failed_.ok()) {
        meter_.AddWait(since, LinkMeter::Now());
        return absl::DeadlineExceededError(
            absl::StrCat(peer_, " gave no credit in time for message ", sequence, " (window of ",
                         ring_.size(), " messages)"));
      }
    }
    meter_.AddWait(since, LinkMeter::Now());
  }
  PENSTOCK_RETURN_IF_ERROR(failed_);
  window_.Reserve();
  return absl::OkStatus();
}

absl::Status OutboundEdge::Put(Message message) {
  const int64_t size_bytes = message.tensor.size_bytes();
  message.since = LinkMeter::Now();
  {
    MutexLock lock(mutex_);
    PENSTOCK_RETURN_IF_ERROR(failed_);
    // Counted first: a run whose tensors have all arrived may be over, and asked for its traffic, at once.
    bytes_sent_.fetch_add(size_bytes, std::memory_order_relaxed);
    messages_sent_.fetch_add(1, std::memory_order_relaxed);
    Place(window_.Fill()) = std::move(message);
  }
  return absl::OkStatus();
}

bool OutboundEdge::Ready() const {
  MutexLock lock(mutex_);
  return window_.HasRoom() || !failed_.ok();
}

std::string OutboundEdge::path() const {
  MutexLock lock(mutex_);
  return path_;
}

int OutboundEdge::messages_waiting() const {
  MutexLock lock(mutex_);
  return static_cast<int>(window_.filled() - window_.heard().released);
}

void OutboundEdge::End(const absl::Status& reason) {
  {
    MutexLock lock(mutex_);
    if (!end_.has_value() || end_->ok()) end_ = reason;
    if (failed_.ok()) failed_ = reason.ok() ? absl::AbortedError("the edge is closed") : reason;
  }
  changed_.NotifyAll();
}

int64_t OutboundEdge::NextStream() {
  MutexLock lock(mutex_);
  return window_.NextStream();
}

void OutboundEdge::Export(std::string path) {
  MutexLock lock(mutex_);
  path_ = std::move(path);
  exports_.store(true, std::memory_order_release);
}

absl::StatusOr<int64_t> OutboundEdge::Open(const EdgeProgress& progress) {
  return Advance(&SendWindow::Open, progress);
}

absl::StatusOr<int64_t> OutboundEdge::Hear(const EdgeProgress& progress) {
  return Advance(&SendWindow::Hear, progress);
}

absl::StatusOr<int64_t> OutboundEdge::SendAgain(const EdgeProgress& progress) {
  return Advance(&SendWindow::SendAgain, progress);
}

absl::StatusOr<int64_t> OutboundEdge::Advance(
    absl::Status (SendWindow::*advance)(const EdgeProgress&), const EdgeProgress& progress) {
  int64_t left = 0;
  {
    MutexLock lock(mutex_);
    const EdgeProgress before = window_.heard();
    PENSTOCK_RETURN_IF_ERROR((window_.*advance)(progress));
    // What came in host memory is the receiver's own now; what it fetches from here only when it has said so.
    for (int64_t number = before.received; number < progress.received; ++number) {
      if (Place(number).exported.empty()) Place(number).tensor = Tensor();
    }
    for (int64_t number = before.released; number < progress.released; ++number) {
      Place(number).tensor = Tensor();
    }
    if (progress.released > before.released) {
      meter_.AddRoundTrip(sent_at_[(progress.released - 1) % sent_at_.size()], LinkMeter::Now());
    }
    left = window_.filled() - progress.received;
  }
  changed_.NotifyAll();
  return left;
}

OutboundEdge::Next OutboundEdge::FindNext() const {
  MutexLock lock(mutex_);
  Next next;
  if (end_.has_value() && !end_->ok()) {
    next.end = end_;
  } else if (const std::optional<int64_t> number = window_.Next()) {
    next.number = *number;
    next.message = &ring_[*number % ring_.size()];
  } else {
    next.end = end_;
  }
  return next;
}

void OutboundEdge::MarkSent() {
  bool again = false;
  {
    MutexLock lock(mutex_);
    sent_at_[*window_.Next() % sent_at_.size()] = LinkMeter::Now();
    again = window_.MarkSent();
  }
  if (again) meter_.AddResent();
}

int64_t OutboundEdge::sent() const {
  MutexLock lock(mutex_);
  return window_.next();
}

bool OutboundEdge::awaits_credit() const {
  MutexLock lock(mutex_);
  return window_.heard().released < window_.next();
}

std::optional<absl::Status> OutboundEdge::ended() const {
  MutexLock lock(mutex_);
  return end_;
}

void OutboundEdge::Fail(const absl::Status& reason) {
  {
    MutexLock lock(mutex_);
    if (failed_.ok()) failed_ = reason;
  }
  changed_.NotifyAll();
}

void OutboundEdge::Drop() {
  MutexLock lock(mutex_);
  for (Message& message : ring_) message.tensor = Tensor();
}

}  // namespace penstock
