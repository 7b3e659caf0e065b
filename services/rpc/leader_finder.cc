#include "services/rpc/leader_finder.h"

#include <algorithm>
#include <optional>

#include "base/leader_note.h"
#include "services/rpc/status.h"

namespace penstock {

size_t LeaderFinder::current() const {
  MutexLock lock(mutex_);
  return current_;
}

bool LeaderFinder::OnAnswer(size_t asked, const absl::Status& status) {
  if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) return false;
  if (IsNotDone(status)) return false;
  MutexLock lock(mutex_);
  if (current_ != asked) return true;
  current_ = (asked + 1) % addresses_.size();
  if (const std::optional<std::string> leader = LeaderOf(status); leader.has_value()) {
    const auto named = std::find(addresses_.begin(), addresses_.end(), *leader);
    if (named != addresses_.end()) current_ = named - addresses_.begin();
  }
  return current_ != asked;
}

}  // namespace penstock
