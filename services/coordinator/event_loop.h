// EventLoop: the one thread that owns the coordinator's state machines and its store.
//
// Events come in through a queue; each turn takes all that wait, lets the state machines react,
// writes what must be kept in one transaction, and only then performs the other effects and answers
// those who asked. So nobody hears of anything that a restart could forget.
//
// If the store cannot be written (disk full), training goes on: what could not be kept is tried
// again every turn and at least every second, and calls that need it kept are refused meanwhile.
//
// Thread safety: Post, PostAfter, Ask and Stop from any thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "coordinator/coordinator.h"
#include "services/coordinator/job_store.h"

namespace penstock {

// Performs the effects that leave the process. Called on the loop's thread; must not block.
class EffectPerformer {
 public:
  virtual ~EffectPerformer() = default;
  virtual void Perform(const CallWorker& call) = 0;
  virtual void Perform(const FindCheckpoint& find) = 0;
  virtual void Perform(const CommitStaged& commit) = 0;
  virtual void Perform(const GatherTimeline& gather) = 0;
  // An event of a job has been written.
  virtual void OnEventStored(const PublishEvent& event) = 0;
};

class EventLoop {
 public:
  using Event = std::function<void(Coordinator&, Now)>;

  // REQUIRES: `clock` and `performer` outlive the loop. `log`: a line for operators; may be null.
  EventLoop(Clock& clock, CoordinatorLimits limits, JobStore store, EffectPerformer& performer,
            std::function<void(const std::string&)> log);
  // Stop().
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Takes back the stored jobs and starts the thread. Errors: those of JobStore::Load.
  absl::Status Start();

  void Post(Event event) ABSL_LOCKS_EXCLUDED(mutex_);
  void PostAfter(absl::Duration delay, Event event) ABSL_LOCKS_EXCLUDED(mutex_);

  // Whether an answer may go out although the store cannot be written.
  enum class Answer { kAnyTime, kOnceStored };
  // Runs `question` on the loop's thread and waits for what it returns.
  // Errors also: DeadlineExceeded, Unavailable (stopped; or kOnceStored and the store is failing).
  template <typename R>
  absl::StatusOr<R> Ask(Answer answer, absl::Time deadline,
                        std::function<absl::StatusOr<R>(Coordinator&, JobStore&, Now)> question);

  // Keeps a timeline with its job. For the loop's thread.
  void StoreTimeline(const std::string& job_id, v1::GetTimelineResponse timeline);

  // Ends the thread; what still waits is dropped and whoever asked gets Unavailable. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  static constexpr absl::Duration kStoreRetryInterval = absl::Seconds(1);
  // Sets a promise when it goes, if nobody has done so.
  template <typename R>
  struct Promise {
    ~Promise() { Set(absl::UnavailableError("the coordinator is shutting down")); }
    void Set(absl::StatusOr<R> value) {
      if (!std::exchange(done, true)) {
        promise.set_value(std::move(value));
      }
    }
    std::promise<absl::StatusOr<R>> promise;
    bool done = false;
  };

  Now ReadClock() const;
  void Run();
  // Waits for events or the next deadline. Returns false when stopped.
  bool TakeTurn(std::vector<Event>& events) ABSL_LOCKS_EXCLUDED(mutex_);
  void PerformEffects();
  // Writes what is unsaved and announces it.
  void WriteUnsaved();
  void Log(const std::string& line) const;

  Clock& clock_;
  EffectPerformer& performer_;
  const std::function<void(const std::string&)> log_;

  // The loop's thread only (before Start: the creator's).
  Coordinator coordinator_;
  JobStore store_;
  std::deque<CoordinatorEffect> unsaved_;  // SaveJob and PublishEvent
  std::deque<JobStore::Change::Timeline> unsaved_timelines_;
  absl::Status store_status_;
  // Run at the end of the turn, with the state of the store.
  std::vector<std::function<void(const absl::Status&)>> answers_;

  Mutex mutex_;
  CondVar changed_;
  std::vector<Event> queue_ ABSL_GUARDED_BY(mutex_);
  std::multimap<int64_t, Event> timers_ ABSL_GUARDED_BY(mutex_);  // by MonotonicNs
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

template <typename R>
absl::StatusOr<R> EventLoop::Ask(
    Answer answer, absl::Time deadline,
    std::function<absl::StatusOr<R>(Coordinator&, JobStore&, Now)> question) {
  auto promise = std::make_shared<Promise<R>>();
  std::future<absl::StatusOr<R>> future = promise->promise.get_future();
  Post([this, answer, promise = std::move(promise), question = std::move(question)](
           Coordinator& coordinator, Now now) {
    auto result = std::make_shared<absl::StatusOr<R>>(question(coordinator, store_, now));
    answers_.push_back([answer, promise, result](const absl::Status& stored) {
      const bool refused = answer == Answer::kOnceStored && result->ok() && !stored.ok();
      promise->Set(refused ? absl::StatusOr<R>(stored) : std::move(*result));
    });
  });
  const absl::Duration left = deadline - absl::Now();
  if (future.wait_for(absl::ToChronoMilliseconds(std::min(left, absl::Hours(1)))) !=
      std::future_status::ready) {
    return absl::DeadlineExceededError("the coordinator did not answer in time");
  }
  return future.get();
}

}  // namespace penstock
