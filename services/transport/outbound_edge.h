// OutboundEdge: what the sending executor and the network share of one edge.
//
// The executor reserves a place in the window and fills it with a tensor; the network (a SendingStream) sends the
// tensors in order. The tensor itself stays here, not a copy of it, until the receiver has said that it came (of an
// exported one: that its own device has it), so that it can be sent again on another stream. So an edge never holds more
// than its window, and of tensors in host memory few beyond those that are on their way.
//
// Thread safety: Reserve by one thread at a time; the network's side by the polling thread alone; the rest by any.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "services/transport/edge_window.h"
#include "services/transport/link_meter.h"
#include "worker/mailbox.h"
#include "worker/transport.h"

namespace penstock {

class OutboundEdge {
 public:
  // `peer`, for messages: "worker right (127.0.0.1:4000)". `capacity`: messages in flight.
  OutboundEdge(std::string peer, int capacity);

  // ---- The executor's side. See Sender.

  absl::Status Reserve(int64_t sequence, absl::Time deadline) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Put(Message message) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns whether Reserve would return at once.
  bool Ready() const ABSL_LOCKS_EXCLUDED(mutex_);
  std::string path() const ABSL_LOCKS_EXCLUDED(mutex_);
  bool exports() const { return exports_.load(std::memory_order_acquire); }
  // Nothing is put any more. With OK, what was put is still sent; with a reason, it is not.
  void End(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mutex_);

  // Handed over by Put so far.
  int64_t bytes_sent() const { return bytes_sent_.load(std::memory_order_relaxed); }
  int64_t messages_sent() const { return messages_sent_.load(std::memory_order_relaxed); }
  // Handed over, and without credit from the receiver yet.
  int messages_waiting() const ABSL_LOCKS_EXCLUDED(mutex_);
  const LinkMeter& meter() const { return meter_; }

  // ---- The network's side.

  // Returns the number of the stream that is opened next.
  int64_t NextStream() ABSL_LOCKS_EXCLUDED(mutex_);
  // The first stream was welcomed to export tensors on this path.
  void Export(std::string path) ABSL_LOCKS_EXCLUDED(mutex_);
  // A stream is open; the receiver said how far it is; it asks for what is due once more. Each returns how many of
  // the messages that were put have not come. Errors: as SendWindow.
  absl::StatusOr<int64_t> Open(const EdgeProgress& progress) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<int64_t> Hear(const EdgeProgress& progress) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<int64_t> SendAgain(const EdgeProgress& progress) ABSL_LOCKS_EXCLUDED(mutex_);

  // What to send next.
  struct Next {
    int64_t number = 0;                // of the message on this edge
    const Message* message = nullptr;  // null: none is there. Stays as it is until it has come.
    std::optional<absl::Status> end;   // the wish to end, if nothing is to be sent before it
  };
  Next FindNext() const ABSL_LOCKS_EXCLUDED(mutex_);
  // All of that message is with the network.
  void MarkSent() ABSL_LOCKS_EXCLUDED(mutex_);
  // How many messages were sent, up to the one that is next.
  int64_t sent() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether there is one of them whose place in the window is not known to be free again.
  bool awaits_credit() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The end that was asked for.
  std::optional<absl::Status> ended() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Makes Reserve and Put return `reason` from now on. The first reason counts.
  void Fail(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mutex_);
  // Lets all tensors go.
  void Drop() ABSL_LOCKS_EXCLUDED(mutex_);
  LinkMeter& meter() { return meter_; }

 private:
  Message& Place(int64_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return ring_[number % ring_.size()];
  }
  absl::StatusOr<int64_t> Advance(absl::Status (SendWindow::*advance)(const EdgeProgress&),
                                  const EdgeProgress& progress) ABSL_LOCKS_EXCLUDED(mutex_);

  const std::string peer_;
  std::atomic<int64_t> bytes_sent_ = 0;
  std::atomic<int64_t> messages_sent_ = 0;
  std::atomic<bool> exports_ = false;
  LinkMeter meter_;

  // Used by the polling thread: when the last part of a message left, by its place in the ring.
  std::vector<LinkMeter::TimePoint> sent_at_;

  mutable Mutex mutex_;
  CondVar changed_;  // credit came, or the end
  std::string path_ ABSL_GUARDED_BY(mutex_) = kHostPath;
  SendWindow window_ ABSL_GUARDED_BY(mutex_);
  std::vector<Message> ring_ ABSL_GUARDED_BY(mutex_);        // of `capacity` places, by number
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);  // asked for
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace penstock
