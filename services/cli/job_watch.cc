#include "services/cli/job_watch.h"

#include <chrono>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/cli/next_commands.h"
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

std::string JobWatch::News() {
  MutexLock lock(mutex_);
  // A coordinator that has nothing to tell is silent: then it is back when the attempt has not failed.
  const bool away = away_ && !ended_ && CondVar::Clock::now() - attempt_began_ < kConnectedFor;
  if (away == told_away_ || (ended_ && !status_.ok())) return "";
  told_away_ = away;
  return away ? absl::StrCat("the coordinator does not answer; trying again for ",
                             absl::FormatDuration(reconnect_timeout_))
              : "the coordinator answers again";
}

absl::Status JobWatch::GivingUp(const absl::Status& status) const {
  return absl::UnavailableError(
      absl::StrCat(status.message(), "; it did not come back within ",
                   absl::FormatDuration(reconnect_timeout_), ". When it does, `",
                   FollowCommand(job_id_, client_.flags()), "` shows what became of the job"));
}

bool JobWatch::Push(const v1::JobEvent& event) {
  MutexLock lock(mutex_);
  while (events_.size() >= kEventsMax && !stopping_) changed_.Wait(mutex_);
  if (stopping_) return false;
  events_.push_back(event);
  away_ = false;
  changed_.NotifyAll();
  return true;
}

void JobWatch::Read() {
  int64_t last_sequence = 0;
  std::optional<CondVar::Clock::time_point> away_since;
  for (;;) {
    const auto began = CondVar::Clock::now();
    {
      MutexLock lock(mutex_);
      attempt_began_ = began;
    }
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
    away_ = away;
    if (again && !stopping_) changed_.WaitUntil(mutex_, now + kReconnectPause);
    if (again && !stopping_) continue;
    ended_ = true;
    status_ = away ? GivingUp(status) : status;
    changed_.NotifyAll();
    return;
  }
}

absl::StatusOr<v1::GetJobResponse> AwaitJob(CoordinatorClient& client, const std::string& job_id,
                                            const std::function<bool()>& stop,
                                            absl::Duration reconnect_timeout) {
  const auto deadline = CondVar::Clock::now() + absl::ToChronoNanoseconds(reconnect_timeout);
  for (;;) {
    absl::StatusOr<v1::GetJobResponse> job = client.GetJob(job_id);
    if (!absl::IsUnavailable(job.status())) return job;
    if (stop()) {
      return absl::CancelledError(
          absl::StrCat("interrupted while the coordinator was away; what becomes of job ", job_id,
                       " is not known: ", job.status().message()));
    }
    if (CondVar::Clock::now() >= deadline) return job;
    std::this_thread::sleep_for(kReconnectPause);
  }
}

}  // namespace penstock
