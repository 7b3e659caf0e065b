#include "services/coordinator/event_loop.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/fault_points.h"
#include "base/status.h"
#include "services/rpc/completion_poller.h"
#include "services/rpc/status.h"

namespace penstock {
namespace {

bool AsksToPrepare(const CoordinatorEffect& effect) {
  const auto* const call = std::get_if<CallWorker>(&effect);
  return call != nullptr && (std::holds_alternative<v1::PrepareRunRequest>(call->request) ||
                             std::holds_alternative<v1::PrepareProfileRequest>(call->request));
}

CoordinatorLimits WithStopwatch(CoordinatorLimits limits, Clock& clock) {
  limits.run.stopwatch_ns = [&clock] { return clock.MonotonicNs(); };
  return limits;
}

}  // namespace

EventLoop::EventLoop(Clock& clock, CoordinatorLimits limits, std::unique_ptr<StateStore> store,
                     EffectPerformer& performer, std::function<void(const std::string&)> log,
                     std::unique_ptr<Mandate> mandate)
    : clock_(clock),
      performer_(performer),
      log_(std::move(log)),
      coordinator_(WithStopwatch(std::move(limits), clock)),
      store_(std::move(store)),
      mandate_(std::move(mandate)) {}

EventLoop::~EventLoop() { Stop(); }

absl::Status EventLoop::Start() {
  PENSTOCK_RETURN_IF_ERROR(Restore());
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

absl::Status EventLoop::Restore() {
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<StoredJob> jobs, store_->Load());
  coordinator_.Restore(std::move(jobs), ReadClock());
  PENSTOCK_FAULT_POINT(kLoopAfterRestore);
  const bool goes_on = PerformEffects();
  deadline_ns_ = coordinator_.NextDeadlineNs();
  PENSTOCK_RETURN_IF_ERROR(store_status_);
  if (!goes_on) return absl::AbortedError("another coordinator may lead by now");
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
  pending_.AddTimeline(job_id, std::move(timeline));
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
  while (AwaitTurn() && TakeTurn()) {
  }
}

bool EventLoop::TakeTurn() {
  // An event may ask a worker again for what the loop asked before it slept.
  if (!MayAct()) {
    GiveUp();
    return false;
  }
  for (const Event& event : TakeEvents()) {
    event(coordinator_, ReadClock());
  }
  const Now now = ReadClock();
  if (deadline_ns_.has_value() && now.monotonic_ns >= *deadline_ns_) {
    coordinator_.Tick(now);
  }
#ifndef NDEBUG
  PENSTOCK_CHECK(coordinator_.CheckInvariants().ok());
#endif
  const bool goes_on = PerformEffects();
  deadline_ns_ = coordinator_.NextDeadlineNs();
  if (!goes_on || !MayAct()) {
    GiveUp();
    return false;
  }
  if (!answers_.empty()) {
    PENSTOCK_FAULT_POINT(kLoopBeforeAnswers);
    for (const auto& answer : std::exchange(answers_, {})) {
      answer();
    }
    PENSTOCK_FAULT_POINT(kLoopAfterAnswers);
  }
  return true;
}

bool EventLoop::MayAct() {
  if (!may_act_ || mandate_ == nullptr) return may_act_;
  if (absl::IsAborted(store_status_)) mandate_->Lose(std::string(store_status_.message()));
  may_act_ = mandate_->Holds();
  if (!may_act_) Log("stops acting for the cluster, which another coordinator may lead by now");
  return may_act_;
}

void EventLoop::GiveUp() {
  outside_.clear();
  withheld_.clear();
  answers_.clear();  // those who asked get Unavailable as their promises go
  std::vector<Event> dropped;
  MutexLock lock(mutex_);
  stopping_ = true;
  queue_.swap(dropped);
  timers_.clear();
}

bool EventLoop::AwaitTurn() {
  MutexLock lock(mutex_);
  for (;;) {
    if (stopping_) {
      return false;
    }
    const std::optional<int64_t> wake_ns = WakeNs();
    const int64_t now_ns = clock_.MonotonicNs();
    if (!wake_ns.has_value()) {
      changed_.Wait(mutex_);
    } else if (now_ns >= *wake_ns) {
      return true;
    } else {
      changed_.WaitUntil(mutex_,
                         CondVar::Clock::now() + std::chrono::nanoseconds(*wake_ns - now_ns));
    }
  }
}

std::optional<int64_t> EventLoop::NextTurnNs() {
  MutexLock lock(mutex_);
  return stopping_ ? std::nullopt : WakeNs();
}

std::optional<int64_t> EventLoop::WakeNs() const {
  if (!queue_.empty()) return std::numeric_limits<int64_t>::min();
  std::optional<int64_t> wake_ns = deadline_ns_;
  const auto at_latest = [&wake_ns](int64_t time_ns) {
    wake_ns = std::min(wake_ns.value_or(time_ns), time_ns);
  };
  if (!store_status_.ok()) at_latest(store_retry_ns_);
  if (!timers_.empty()) at_latest(timers_.begin()->first);
  return wake_ns;
}

std::vector<EventLoop::Event> EventLoop::TakeEvents() {
  MutexLock lock(mutex_);
  const int64_t now_ns = clock_.MonotonicNs();
  while (!timers_.empty() && timers_.begin()->first <= now_ns) {
    queue_.push_back(std::move(timers_.begin()->second));
    timers_.erase(timers_.begin());
  }
  return std::exchange(queue_, {});
}

void EventLoop::CollectEffects() {
  for (CoordinatorEffect& effect : coordinator_.TakeEffects()) {
    const bool is_kept = std::visit(
        [this](auto& kept) {
          if constexpr (requires { pending_.Add(std::move(kept)); }) {
            pending_.Add(std::move(kept));
            return true;
          }
          return false;
        },
        effect);
    if (!is_kept) outside_.push_back(std::move(effect));
  }
}

bool EventLoop::PerformEffects() {
  CollectEffects();
  WritePending();
  if (!MayAct()) return false;
  if (store_status_.ok()) {
    for (const CoordinatorEffect& prepare : std::exchange(withheld_, {})) {
      TellWithheld(prepare, false);
      PerformNow(prepare);
    }
  }
  if (outside_.empty()) return true;
  PENSTOCK_FAULT_POINT(kLoopBeforeEffects);
  for (CoordinatorEffect& effect : std::exchange(outside_, {})) {
    if (!store_status_.ok() && AsksToPrepare(effect)) {
      TellWithheld(effect, true);
      withheld_.push_back(std::move(effect));
    } else {
      PerformNow(effect);
    }
  }
  PENSTOCK_FAULT_POINT(kLoopAfterEffects);
  return true;
}

void EventLoop::PerformNow(const CoordinatorEffect& effect) {
  std::visit(
      [this](const auto& asked) {
        if constexpr (requires { performer_.Perform(asked); }) {
          performer_.Perform(asked);
        } else if constexpr (!requires { pending_.Add(asked); }) {
          Perform(asked);
        }
      },
      effect);
}

void EventLoop::TellWithheld(const CoordinatorEffect& prepare, bool withheld) {
  const auto& call = std::get<CallWorker>(prepare);
  Post([job_id = call.job_id, news = PrepareWithheld{call.epoch, withheld}](
           Coordinator& coordinator, Now now) { coordinator.OnAnswer(job_id, news, now); });
}

absl::Status EventLoop::Keep(const SaveJob* save) {
  CollectEffects();
  const bool may_try = store_status_.ok() || clock_.MonotonicNs() >= keep_retry_ns_;
  if (may_try && (save != nullptr || !pending_.empty())) {
    WriteNow(save);
    PENSTOCK_FAULT_POINT(kLoopAfterKeep);
    keep_retry_ns_ = clock_.MonotonicNs() + absl::ToInt64Nanoseconds(kKeepRetryInterval);
  }
  if (store_status_.ok() || (save == nullptr && pending_.empty())) return absl::OkStatus();
  const bool is_unknown = may_try && absl::IsUnavailable(store_status_);
  if (is_unknown && save != nullptr) {
    // What holds is put over what may be there. Of a job that is new, the store removes it.
    const JobRun* const run = coordinator_.FindRun(save->record.summary().job_id());
    if (run != nullptr) pending_.Add(SaveJob{run->Record()});
  }
  return absl::UnavailableError(absl::StrCat(
      is_unknown ? kPerhapsDone : kNotDone, "the coordinator cannot write its ", store_->name(),
      ": ", store_status_.message(), "; ", store_->remedy(), ", and ask again",
      is_unknown ? " unless it was done" : "", " (training goes on)"));
}

StateCounts EventLoop::state_counts() const {
  return {.writable = store_status_.ok(),
          .failed_writes = failed_writes_,
          .pending = pending_.size(),
          .dropped_events = pending_.dropped_events()};
}

void EventLoop::Perform(const FindLayerTimes& find) {
  std::vector<std::optional<v1::DeviceProfile>> known;
  for (const std::string& key : find.keys) {
    absl::StatusOr<v1::DeviceProfile> times = store_->ReadLayerTimes(key);
    if (!times.ok() && !absl::IsNotFound(times.status())) {
      Log(absl::StrCat("layers are timed again: ", times.status().message()));
    }
    known.push_back(times.ok() ? std::optional(*std::move(times)) : std::nullopt);
  }
  Post([job_id = find.job_id, answer = LayerTimesFound{std::move(known)}](
           Coordinator& coordinator, Now now) { coordinator.OnAnswer(job_id, answer, now); });
}

void EventLoop::WritePending() {
  if (store_status_.ok() ? pending_.empty() : clock_.MonotonicNs() < store_retry_ns_) return;
  WriteNow(nullptr);
}

void EventLoop::WriteNow(const SaveJob* save) {
  std::vector<StateStore::Change> changes = pending_.Changes();
  if (save != nullptr) changes.push_back({.job = save});
  PENSTOCK_FAULT_POINT(kLoopBeforeWrite);
  const absl::Status before =
      std::exchange(store_status_, changes.empty() ? store_->Touch() : store_->Write(changes));
  if (!store_status_.ok()) {
    ++failed_writes_;
    store_retry_ns_ = clock_.MonotonicNs() + absl::ToInt64Nanoseconds(kStoreRetryInterval);
    if (!before.ok()) return;
    Log(absl::StrCat("the ", store_->name(),
                     " cannot be written, tried again every second: ", store_status_.message()));
    return performer_.OnStoreWritable(false);
  }
  if (!before.ok()) {
    Log(absl::StrCat("the ", store_->name(), " can be written again"));
    performer_.OnStoreWritable(true);
  }
  PENSTOCK_FAULT_POINT(kLoopAfterWrite);
  coordinator_.OnStored();
  for (const PublishEvent& event : pending_.Written()) {
    performer_.OnEventStored(event);
  }
}

}  // namespace penstock
