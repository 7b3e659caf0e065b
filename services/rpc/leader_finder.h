// LeaderFinder: which of several coordinators to ask, from what the last answers said. Pure logic: leader_stub.h makes the
// calls.
//
// Thread safety: all methods may be called from any thread.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"

namespace penstock {

class LeaderFinder {
 public:
  // `addresses`: as they are in the notes of those that do not lead (base/leader_note.h). REQUIRES: there is one.
  explicit LeaderFinder(std::vector<std::string> addresses) : addresses_(std::move(addresses)) {}

  // The index of the address to ask.
  size_t current() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Takes the end of a call to `asked`. Returns whether the same should be asked of current() now: `asked` does not lead,
  // does not answer, or cannot know whether it was done. One that says that it was not done (status.h) is not asked again. A leader that is named counts only if it is one of the addresses, for what was not given is not trusted;
  // else the next one is asked. If another call has changed current() meanwhile, that counts.
  bool OnAnswer(size_t asked, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const std::vector<std::string> addresses_;
  mutable Mutex mutex_;
  size_t current_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace penstock
