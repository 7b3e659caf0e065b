// SendWindow and ReceiveWindow: which messages of an edge were sent, have come and were taken, over any number of
// streams.
//
// The messages of an edge are numbered from 0, in the order in which they were handed over in one attempt at a job. Its
// streams are numbered too: one that broke is followed by one of a higher number. The receiver takes nothing but
// the message that is due, from the newest stream alone, and says how far it is. It counts that from the start of the edge,
// so what it says last holds, whatever was lost before. The sender keeps each message until it hears that it has
// come, and goes on from where the receiver is. So every message is delivered once, in order.
//
// State machines without clock, memory and network. Thread-compatible.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"

namespace penstock {

// How far the receiver of an edge is.
struct EdgeProgress {
  int64_t received = 0;  // messages that came whole
  int64_t released = 0;  // of these, the ones whose places in the window are free again

  friend bool operator==(const EdgeProgress&, const EdgeProgress&) = default;
};

// The sender's end. Always: released <= received <= sent <= filled <= reserved <= released + capacity.
class SendWindow {
 public:
  // REQUIRES: `capacity` is at least 1 message.
  explicit SendWindow(int capacity) : capacity_(capacity) {}

  // ---- The executor's side.

  // Returns whether there is a place for one more message; there is none before a stream was open.
  bool HasRoom() const { return opened_ && reserved_ < heard_.released + capacity_; }
  // REQUIRES: HasRoom().
  void Reserve() { ++reserved_; }
  // Fills the first place that is reserved; returns the number of its message. REQUIRES: a Reserve for each.
  int64_t Fill() { return filled_++; }

  // ---- The network's side.

  // Returns the number of the stream that is opened next.
  int64_t NextStream() { return streams_++; }
  // A stream is open; sending goes on from where the receiver is.
  // Errors, of all three: InvalidArgument if that cannot be how far it is. Then nothing changes.
  absl::Status Open(const EdgeProgress& progress);
  // The receiver said how far it is.
  absl::Status Hear(const EdgeProgress& progress);
  // It said so, and that it needs the message that is due once more, with all after it.
  absl::Status SendAgain(const EdgeProgress& progress);

  // The message to be sent next; nothing: none is there. REQUIRES: a stream is open.
  std::optional<int64_t> Next() const {
    return next_ < filled_ ? std::optional(next_) : std::nullopt;
  }
  // The network has all of it. Returns whether it had been sent before.
  bool MarkSent();

  const EdgeProgress& heard() const { return heard_; }
  int64_t filled() const { return filled_; }
  // The number of the message that is sent next.
  int64_t next() const { return next_; }

 private:
  absl::Status Advance(const EdgeProgress& progress, int64_t received_max);

  const int64_t capacity_;
  EdgeProgress heard_;  // from the receiver, last
  bool opened_ = false;
  int64_t streams_ = 0;
  int64_t reserved_ = 0;
  int64_t filled_ = 0;
  int64_t next_ = 0;  // at most sent_
  int64_t sent_ = 0;  // at least once
};

// The receiver's end.
class ReceiveWindow {
 public:
  // What a part of a message is, that came.
  enum class Verdict {
    kDue,        // of the message that is due: to be taken
    kDuplicate,  // of one that has come
    kOvertaken,  // it left before the sender heard what is asked for again; it will come again
    kGap,        // of one that is not due yet: what was to come before it is lost
    kReplaced,   // a newer stream has taken the place of the one it came on
  };

  // A sender opened stream `stream`; from now on older ones bring nothing.
  // Errors: AlreadyExists if it is not newer than the newest.
  absl::Status Open(int64_t stream);
  bool IsNewest(int64_t stream) const { return stream == stream_; }

  Verdict Judge(int64_t stream, int64_t message, bool is_first_part);
  // The message that is due has come whole.
  void Receive();
  // The message that is due came damaged, or not at all, and is asked for again: nothing is due but its first part.
  // Returns how often that was so since the one before it came.
  int AskAgain();
  // It was asked for, and its first part has not come.
  bool asks_again() const { return asks_again_; }
  // REQUIRES: these were received and not released.
  void Release(int64_t messages) { progress_.released += messages; }

  const EdgeProgress& progress() const { return progress_; }

 private:
  EdgeProgress progress_;
  int64_t stream_ = -1;
  bool asks_again_ = false;
  int asked_ = 0;
};

}  // namespace penstock
