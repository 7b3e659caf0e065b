#include "services/rpc/refusal_log.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace penstock {

std::optional<std::string> RefusalLog::Add(const absl::Status& refused, absl::Time now,
                                           Rejection reason) {
  constexpr absl::Duration kInterval = absl::Seconds(1);
  rejected_.Count(reason);
  MutexLock lock(mutex_);
  if (now < next_) {
    ++left_out_;
    return std::nullopt;
  }
  next_ = now + kInterval;
  const int64_t left_out = std::exchange(left_out_, 0);
  std::string line = absl::StrCat("refused a call: ", refused.message());
  if (left_out > 0) absl::StrAppend(&line, " (and ", left_out, " before it, not shown)");
  return line;
}

std::function<void(const absl::Status&)> RefusalLog::Listener(
    std::function<void(const std::string&)> write) {
  return [this, write = std::move(write)](const absl::Status& refused) {
    const std::optional<std::string> line = Add(refused, absl::Now());
    if (line.has_value() && write != nullptr) write(*line);
  };
}

}  // namespace penstock
