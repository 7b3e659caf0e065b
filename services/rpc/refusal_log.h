// RefusalLog: what a log says of refused calls, a line a second at most, however many there are.
//
// Thread safety: from any thread; does not block.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/rejected_messages.h"

namespace penstock {

class RefusalLog {
 public:
  // Counts `refused`, as `reason` where it is not RejectionOf its code. Returns the line to write at `now`, with how many
  // were left out before it; nothing if one was written less than a second ago.
  std::optional<std::string> Add(const absl::Status& refused, absl::Time now)
      ABSL_LOCKS_EXCLUDED(mutex_) {
    return Add(refused, now, RejectionOf(refused.code()));
  }
  std::optional<std::string> Add(const absl::Status& refused, absl::Time now, Rejection reason)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // A server calls this with each refusal: it adds it, and writes the lines with `write`, which may be null. Must not
  // outlive this object.
  std::function<void(const absl::Status&)> Listener(std::function<void(const std::string&)> write);

  const RejectedMessages& rejected() const { return rejected_; }

 private:
  RejectedMessages rejected_;
  Mutex mutex_;
  absl::Time next_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  int64_t left_out_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace penstock
