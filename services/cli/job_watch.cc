#include "services/cli/job_watch.h"

#include <chrono>
#include <optional>
#include <utility>

#include "services/rpc/limits.h"

namespace penstock {
namespace {

constexpr std::chrono::milliseconds kReconnectPause(200);
// A stream that lasted so long had a connection, silent as it was: twice what an attempt may take.
constexpr std::chrono::milliseconds kConnectedFor(2 * rpc_limits::kConnectTimeoutMs);

}  // namespace

JobWatch::JobWatch(CoordinatorClient& client, std::string job_id, absl::Duration reconnect_timeout)
    : client_(client),
      job_id_(std::move(job_id)),
      reconnect_timeout_(reconnect_timeout),
      thread_([this] { Read(); }) {}

JobWatch::~JobWatch() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  canceller_.Cancel();
  thread_.join();
}

std::optional<v1::JobEvent> JobWatch::Next(absl::Duration timeout) {
  const auto deadline = CondVar::Clock::now() + absl::ToChronoNanoseconds(timeout);
  MutexLock lock(mutex_);
  while (events_.empty() && !ended_ && changed_.WaitUntil(mutex_, deadline)) {
  }
  if (events_.empty()) return std::nullopt;
  v1::JobEvent event = std::move(events_.front());
  events_.pop_front();
  changed_.NotifyAll();
  return event;
}

bool JobWatch::Done() {
  MutexLock lock(mutex_);
  return ended_ && events_.empty();
}

absl::Status JobWatch::status() {
  MutexLock lock(mutex_);
  return status_;
}

bool JobWatch::Push(const v1::JobEvent& event) {
  MutexLock lock(mutex_);
  while (events_.size() >= kEventsMax && !stopping_) changed_.Wait(mutex_);
  if (stopping_) return false;
  events_.push_back(event);
  changed_.NotifyAll();
  return true;
}

void JobWatch::Read() {
  int64_t last_sequence = 0;
  std::optional<CondVar::Clock::time_point> away_since;
  for (;;) {
    const auto began = CondVar::Clock::now();
    const absl::Status status =
        client_.WatchJob(job_id_, last_sequence, canceller_, [&](const v1::JobEvent& event) {
          last_sequence = event.sequence();
          away_since.reset();
          return Push(event);
        });
    const auto now = CondVar::Clock::now();
    const bool away = absl::IsUnavailable(status);
    if (!away) away_since.reset();
    if (away && (!away_since.has_value() || now - began > kConnectedFor)) away_since = now;
    const bool again = absl::IsDeadlineExceeded(status) ||
                       (away && now - *away_since < absl::ToChronoNanoseconds(reconnect_timeout_));
    MutexLock lock(mutex_);
    if (again && !stopping_) changed_.WaitUntil(mutex_, now + kReconnectPause);
    if (again && !stopping_) continue;
    ended_ = true;
    status_ = status;
    changed_.NotifyAll();
    return;
  }
}

}  // namespace penstock
