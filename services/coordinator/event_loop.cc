#include "services/coordinator/event_loop.h"

#include <algorithm>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "services/rpc/completion_poller.h"

namespace penstock {

EventLoop::EventLoop(Clock& clock, CoordinatorLimits limits, JobStore store,
                     EffectPerformer& performer, std::function<void(const std::string&)> log)
    : clock_(clock),
      performer_(performer),
      log_(std::move(log)),
      coordinator_(limits),
      store_(std::move(store)) {}

EventLoop::~EventLoop() { Stop(); }

absl::Status EventLoop::Start() {
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<StoredJob> jobs, store_.Load());
  coordinator_.Restore(std::move(jobs), ReadClock());
  PerformEffects();
  PENSTOCK_RETURN_IF_ERROR(store_status_);
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

Now EventLoop::ReadClock() const {
  return {.monotonic_ns = clock_.MonotonicNs(), .unix_ms = absl::ToUnixMillis(clock_.WallTime())};
}

void EventLoop::Log(const std::string& line) const {
  if (log_ != nullptr) {
    log_(line);
  }
}

void EventLoop::Post(Event event) {
  MutexLock lock(mutex_);
  if (!stopping_) {
    queue_.push_back(std::move(event));
    changed_.NotifyOne();
  }
}

void EventLoop::PostAfter(absl::Duration delay, Event event) {
  MutexLock lock(mutex_);
  if (!stopping_) {
    timers_.emplace(clock_.MonotonicNs() + absl::ToInt64Nanoseconds(delay), std::move(event));
    changed_.NotifyOne();
  }
}

void EventLoop::StoreTimeline(const std::string& job_id, v1::GetTimelineResponse timeline) {
  unsaved_timelines_.push_back({job_id, std::move(timeline)});
}

void EventLoop::Stop() {
  std::vector<Event> dropped;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyOne();
  }
  if (thread_.joinable()) {
    thread_.join();
  }
  MutexLock lock(mutex_);
  queue_.swap(dropped);  // their promises are answered as they go, outside of the loop's thread
  timers_.clear();
}

void EventLoop::Run() {
  NameThread("coordinator");
  std::vector<Event> events;
  while (TakeTurn(events)) {
    for (const Event& event : events) {
      event(coordinator_, ReadClock());
    }
    const std::optional<int64_t> deadline = coordinator_.NextDeadlineNs();
    const Now now = ReadClock();
    if (deadline.has_value() && now.monotonic_ns >= *deadline) {
      coordinator_.Tick(now);
    }
#ifndef NDEBUG
    PENSTOCK_CHECK(coordinator_.CheckInvariants().ok());
#endif
    PerformEffects();
    for (const auto& answer : std::exchange(answers_, {})) {
      answer(store_status_);
    }
    events.clear();
  }
}

bool EventLoop::TakeTurn(std::vector<Event>& events) {
  std::optional<int64_t> deadline = coordinator_.NextDeadlineNs();
  if (!store_status_.ok()) {
    const int64_t retry = clock_.MonotonicNs() + absl::ToInt64Nanoseconds(kStoreRetryInterval);
    deadline = std::min(deadline.value_or(retry), retry);
  }
  MutexLock lock(mutex_);
  for (;;) {
    if (stopping_) {
      return false;
    }
    const int64_t now_ns = clock_.MonotonicNs();
    while (!timers_.empty() && timers_.begin()->first <= now_ns) {
      queue_.push_back(std::move(timers_.begin()->second));
      timers_.erase(timers_.begin());
    }
    if (!queue_.empty() || (deadline.has_value() && now_ns >= *deadline)) {
      events.swap(queue_);
      return true;
    }
    std::optional<int64_t> wake = deadline;
    if (!timers_.empty()) {
      wake = std::min(wake.value_or(timers_.begin()->first), timers_.begin()->first);
    }
    if (wake.has_value()) {
      changed_.WaitUntil(mutex_, CondVar::Clock::now() + std::chrono::nanoseconds(*wake - now_ns));
    } else {
      changed_.Wait(mutex_);
    }
  }
}

void EventLoop::PerformEffects() {
  CoordinatorEffects outside;
  for (CoordinatorEffect& effect : coordinator_.TakeEffects()) {
    const bool kept =
        std::holds_alternative<SaveJob>(effect) || std::holds_alternative<PublishEvent>(effect);
    if (kept) {
      unsaved_.push_back(std::move(effect));
    } else {
      outside.push_back(std::move(effect));
    }
  }
  WriteUnsaved();
  for (const CoordinatorEffect& effect : outside) {
    if (const auto* call = std::get_if<CallWorker>(&effect)) {
      performer_.Perform(*call);
    } else if (const auto* find = std::get_if<FindCheckpoint>(&effect)) {
      performer_.Perform(*find);
    } else if (const auto* commit = std::get_if<CommitStaged>(&effect)) {
      performer_.Perform(*commit);
    } else if (const auto* gather = std::get_if<GatherTimeline>(&effect)) {
      performer_.Perform(*gather);
    }
  }
}

void EventLoop::WriteUnsaved() {
  std::vector<JobStore::Change> changes;
  for (const CoordinatorEffect& effect : unsaved_) {
    changes.push_back(
        {.job = std::get_if<SaveJob>(&effect), .event = std::get_if<PublishEvent>(&effect)});
  }
  for (const JobStore::Change::Timeline& timeline : unsaved_timelines_) {
    changes.push_back({.timeline = &timeline});
  }
  if (changes.empty()) {
    return;
  }
  const absl::Status written = store_.Write(changes);
  if (!written.ok()) {
    if (store_status_.ok()) {
      Log(absl::StrCat("the state file cannot be written, tried again every second: ",
                       written.message()));
    }
    store_status_ = absl::UnavailableError(
        absl::StrCat("the coordinator cannot write its state file: ", written.message()));
    return;
  }
  if (!std::exchange(store_status_, absl::OkStatus()).ok()) {
    Log("the state file can be written again");
  }
  unsaved_timelines_.clear();
  for (const CoordinatorEffect& effect : std::exchange(unsaved_, {})) {
    if (const auto* event = std::get_if<PublishEvent>(&effect)) {
      performer_.OnEventStored(*event);
    }
  }
}

}  // namespace penstock
