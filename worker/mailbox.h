// Mailbox: the bounded first-in-first-out queue between the thread that delivers an edge's messages
// (a neighbour's executor, or a network thread) and the executor that takes them.
//
// A full mailbox is the system's only back-pressure: in one process Reserve blocks, over a network the
// sender has no credit left. The queue's memory is taken once, so a hand-over allocates nothing.
//
// Thread safety: all methods may be called from any thread; the mailbox outlives all calls. Deadlines are
// kept on the monotonic clock, so a jump of the calendar clock ends no wait.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "compute/device_share.h"
#include "compute/tensor.h"
#include "worker/doorbell.h"
#include "worker/transport.h"

namespace penstock {

struct Message {
  int64_t sequence = 0;
  Tensor tensor;                          // of an exported one only type and shape
  ShareBytes exported;                    // its descriptor; empty if it is in host memory
  CondVar::Clock::time_point since = {};  // when it came into the mailbox
};

class Mailbox {
 public:
  // REQUIRES: `capacity` > 0.
  explicit Mailbox(int capacity);
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  // Takes a place for a message; blocks while the mailbox is full.
  // Errors: DeadlineExceeded, or the reason given to Close or Cancel.
  absl::Status Reserve(absl::Time deadline);
  // Fills a place. REQUIRES: a Reserve for each. Errors: the reason given to Close or Cancel.
  absl::Status Push(Message message);
  // Never blocks. Errors: ResourceExhausted if the mailbox is full (the sender exceeded its credit),
  // or the reason given to Close or Cancel.
  absl::Status TryPush(Message message);

  // Blocks until there is a message.
  // Errors: DeadlineExceeded, or the reason given to Cancel, or to Close once the mailbox is empty.
  absl::StatusOr<Message> Pop(absl::Time deadline);

  // From now on `bell` rings for every message, and at the end. Null: no bell rings any more.
  void SetDoorbell(Doorbell* bell);

  // Returns whether Pop, or Reserve, would return at once.
  bool Ready() const;
  // The message that Pop would return; without a value there is none.
  std::optional<Waiting> FirstWaiting() const;
  bool HasRoom() const;
  // Messages that were put and not taken.
  int waiting() const;

  // Nothing more is accepted; what is there can still be taken. REQUIRES: `reason` is not OK.
  void Close(const absl::Status& reason);
  // Drops what is there and ends all waits with `reason`. The first Cancel counts.
  void Cancel(const absl::Status& reason);

 private:
  bool CanPop() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool CanPush() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Why nothing is accepted any more.
  absl::Status End() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WaitForRoom(CondVar::Clock::time_point until) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WaitForMessage(CondVar::Clock::time_point until)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Ring() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (bell_ != nullptr) bell_->Ring();
  }
  // REQUIRES: there is room.
  absl::Status Append(Message message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int capacity_;
  mutable Mutex mutex_;
  CondVar room_;     // a message was taken, or the end
  CondVar arrived_;  // a message was put, or the end

  // A ring: `count_` messages from `head_` on.
  std::vector<Message> ring_ ABSL_GUARDED_BY(mutex_);
  int head_ ABSL_GUARDED_BY(mutex_) = 0;
  int count_ ABSL_GUARDED_BY(mutex_) = 0;
  int reserved_ ABSL_GUARDED_BY(mutex_) = 0;  // places that are not filled yet
  Doorbell* bell_ ABSL_GUARDED_BY(mutex_) = nullptr;
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);
  absl::Status cancelled_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace penstock
