// Suspicion: when to dial again for an edge whose stream broke, and when its peer counts as gone.
//
// A stream that broke says that a connection is gone, not whose fault that is. So the sender opens another one, after waits
// that grow, for a limited time. Only the time without a stream counts, and it is forgotten when a message
// has got through: a receiver may be slow, but a stream that always breaks before it has brought anything ends the run.
//
// State machine; the time is passed in. Thread-compatible.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "base/mutex.h"
#include "services/rpc/limits.h"

namespace penstock {

// How ends of edges treat broken streams. Tests make the times small.
struct StreamLimits {
  // The sender dials again for this long,
  absl::Duration suspicion = absl::Milliseconds(rpc_limits::kTensorSuspicionMs);
  // each time with a timeout,
  absl::Duration dial = absl::Milliseconds(rpc_limits::kRedialTimeoutMs);
  // and waits before it.
  absl::Duration backoff_min = absl::Milliseconds(rpc_limits::kRedialBackoffMinMs);
  absl::Duration backoff_max = absl::Milliseconds(rpc_limits::kRedialBackoffMaxMs);
  // It asks how far the receiver is after this long without a word, and after twice as long each time.
  absl::Duration ask_min = absl::Milliseconds(rpc_limits::kTensorAskMinMs);
  absl::Duration ask_max = absl::Milliseconds(rpc_limits::kTensorAskMaxMs);
  // A stream over which nothing goes out and no answer comes for this long after it asked counts as broken, though its
  // connection holds: the connection is half dead, or what was lost counts against the window of HTTP/2, which then stays
  // closed. A link that is slow, and no more, may bring no answer in that time, so each stream of the edge is given twice the
  // time of the one before, up to the second: in that, a link takes a whole window (kTensorWindowBytes) if it brings more than
  // a megabit a second.
  absl::Duration silence = absl::Milliseconds(rpc_limits::kTensorSilenceMs);
  absl::Duration mute = absl::Seconds(30);
  // The receiver waits for another stream.
  absl::Duration awaited = absl::Milliseconds(rpc_limits::kTensorReturnTimeoutMs);
};

class Suspicion {
 public:
  using TimePoint = CondVar::Clock::time_point;

  explicit Suspicion(const StreamLimits& limits) : limits_(limits), backoff_(limits.backoff_min) {}

  // A stream broke, or could not be opened. Returns how long to wait before the next dial; nothing if the time is over.
  std::optional<absl::Duration> OnBroken(TimePoint now) {
    if (!since_.has_value()) since_ = now;
    if (!broken_since_.has_value()) broken_since_ = now;
    if (Left(now) <= backoff_) return std::nullopt;
    return std::exchange(backoff_, std::min(2 * backoff_, limits_.backoff_max));
  }
  // A stream is open: the time stands still.
  void OnOpen(TimePoint now) {
    if (!broken_since_.has_value()) return;
    spent_ += absl::FromChrono(now - *broken_since_);
    broken_since_.reset();
  }
  // A message got through, or none was under way.
  void Clear() { *this = Suspicion(limits_); }

  // How long a dial may take.
  absl::Duration DialTimeout(TimePoint now) const { return std::min(limits_.dial, Left(now)); }
  // The time since the first of the breaks that are not forgotten.
  absl::Duration Age(TimePoint now) const {
    return since_.has_value() ? absl::FromChrono(now - *since_) : absl::ZeroDuration();
  }
  bool any() const { return since_.has_value(); }

 private:
  absl::Duration Left(TimePoint now) const {
    const absl::Duration spent =
        broken_since_.has_value() ? absl::FromChrono(now - *broken_since_) : absl::ZeroDuration();
    return limits_.suspicion - spent_ - spent;
  }

  StreamLimits limits_;
  absl::Duration backoff_;
  absl::Duration spent_ = absl::ZeroDuration();  // without a stream, before broken_since_
  std::optional<TimePoint> since_;
  std::optional<TimePoint> broken_since_;  // without a value a stream is open
};

}  // namespace penstock
