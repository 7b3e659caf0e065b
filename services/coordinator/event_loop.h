// EventLoop: the one thread that owns the coordinator's state machines and its store (state_store.h).
//
// Events come in through a queue; each turn takes all that wait, lets the state machines react,
// writes what must be kept in one transaction, and only then performs the other effects and answers
// those who asked. So what is announced or answered is kept first.
//
// If the store cannot be written (disk full), jobs that were taken go on: effects are performed,
// events are announced once they are kept, which is tried again every second (pending_writes.h). What users
// change is kept first (Keep), and only then done and answered, so it is refused meanwhile. Such requests try the store,
// too, but at most one in kKeepRetryInterval does, so that many of them do not hold up the loop. And no worker is asked
// to prepare an attempt whose epoch is not in the store (job_run.h), so none begins, and its job hears why
// (PrepareWithheld). Other effects that go out before their records are kept are such that a restart, which knows the
// records of before, repeats or undoes them: a job goes on from its checkpoint, under a later epoch, and workers that
// still train another one are told to stop.
//
// Where another coordinator could lead, the loop acts only while it has the mandate to: that is asked before effects are
// performed and before answers are given. Once it is lost, or the store says that another leads, the loop ends: nothing of
// what waits is done any more, and those who asked get Unavailable.
//
// The owner of a loop that is not started may drive it instead: Restore, then TakeTurn whenever NextTurnNs says so. Its thread
// counts as the loop's then.
//
// Thread safety: Post, PostAfter, Ask, AskThen and Stop from any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
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
#include "base/state_counts.h"
#include "coordinator/coordinator.h"
#include "services/coordinator/mandate.h"
#include "services/coordinator/pending_writes.h"
#include "services/coordinator/state_store.h"

namespace penstock {

// Performs the effects that leave the process. Called on the loop's thread; must not block.
class EffectPerformer {
 public:
  virtual ~EffectPerformer() = default;
  virtual void Perform(const CallWorker& call) = 0;
  virtual void Perform(const ProbeWorker& probe) = 0;
  virtual void Perform(const FindCheckpoint& find) = 0;
  virtual void Perform(const CommitStaged& commit) = 0;
  virtual void Perform(const DiscardStaged& discard) = 0;
  virtual void Perform(const GatherTimeline& gather) = 0;
  virtual void Perform(const JudgeCandidates& judge) = 0;
  virtual void Perform(const GatherPasses& gather) = 0;
  // An event of a job has been written.
  virtual void OnEventStored(const PublishEvent& event) = 0;
  // The store can be written no longer, or again.
  virtual void OnStoreWritable(bool writable) = 0;
};

class EventLoop {
 public:
  using Event = std::function<void(Coordinator&, Now)>;

  // While the store cannot be written, a Keep fails without a try for this long after one that has tried.
  static constexpr absl::Duration kKeepRetryInterval = absl::Milliseconds(100);

  // REQUIRES: `clock` and `performer` outlive the loop. `log`: a line for operators; may be null.
  // `mandate`: null if no other coordinator could lead.
  EventLoop(Clock& clock, CoordinatorLimits limits, std::unique_ptr<StateStore> store,
            EffectPerformer& performer, std::function<void(const std::string&)> log,
            std::unique_ptr<Mandate> mandate = nullptr);
  // Stop().
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Takes back the stored jobs and starts the thread. Errors: those of StateStore::Load.
  absl::Status Start();

  // What the thread does, for an owner that has none. REQUIRES: Start is not called.
  // Takes back the stored jobs. Errors: as Start.
  absl::Status Restore();
  // Returns when a turn is due, as MonotonicNs; nothing: not before an event comes.
  std::optional<int64_t> NextTurnNs() ABSL_LOCKS_EXCLUDED(mutex_);
  // Takes the turn that is due, if one is. Returns whether the loop goes on.
  bool TakeTurn() ABSL_LOCKS_EXCLUDED(mutex_);

  void Post(Event event) ABSL_LOCKS_EXCLUDED(mutex_);
  void PostAfter(absl::Duration delay, Event event) ABSL_LOCKS_EXCLUDED(mutex_);

  // Runs `question` on the loop's thread and waits for what it returns.
  // REQUIRES: it owns what it uses, for it may be run after Ask gave up.
  // Errors also: DeadlineExceeded, Unavailable (stopped).
  template <typename R>
  absl::StatusOr<R> Ask(absl::Time deadline,
                        std::function<absl::StatusOr<R>(Coordinator&, StateStore&, Now)> question);

  // Runs `question` on the loop's thread, and then calls `done` there with what it returns, at the end of the turn.
  // Errors also: Unavailable (stopped; from the thread that ended the loop).
  template <typename R>
  void AskThen(std::function<absl::StatusOr<R>(Coordinator&, StateStore&, Now)> question,
               std::function<void(absl::StatusOr<R>)> done);

  // Writes `save`, if there is one, and all that waits to be written, before anything is done that depends on it. For
  // questions. Errors: Unavailable saying what cannot be written, why, and what to do. `save` is not kept then, and if the
  // store did not answer, so that it may be (StateStore::Write), the text says so (services/rpc/status.h).
  absl::Status Keep(const SaveJob* save);

  // For the loop's thread.
  StateCounts state_counts() const;
  // The record of a job that waits to be written, or null.
  const v1::GetJobResponse* PendingRecord(const std::string& job_id) const {
    return pending_.FindRecord(job_id);
  }

  // Keeps a timeline with its job. For the loop's thread.
  void StoreTimeline(const std::string& job_id, v1::GetTimelineResponse timeline);

  // Ends the thread; events that still wait are dropped and their askers get Unavailable. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  static constexpr absl::Duration kStoreRetryInterval = absl::Seconds(1);
  // Answers when it goes, if nobody has done so.
  template <typename R>
  struct Promise {
    explicit Promise(std::function<void(absl::StatusOr<R>)> done) : done(std::move(done)) {}
    ~Promise() { Set(absl::UnavailableError("the coordinator is shutting down")); }
    void Set(absl::StatusOr<R> value) {
      if (!std::exchange(is_set, true)) {
        done(std::move(value));
      }
    }
    const std::function<void(absl::StatusOr<R>)> done;
    bool is_set = false;
  };

  Now ReadClock() const;
  void Run();
  // Waits for events or the next deadline. Returns false when stopped.
  bool AwaitTurn() ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the time of the next timer or deadline; one that has passed if events wait.
  std::optional<int64_t> WakeNs() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes the events that wait, and those whose time has come.
  std::vector<Event> TakeEvents() ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns whether it may go on.
  bool PerformEffects();
  void PerformNow(const CoordinatorEffect& effect);
  // Tells the job that a call to prepare is withheld, or is not any more.
  void TellWithheld(const CoordinatorEffect& prepare, bool withheld);
  // Returns whether this coordinator may act; logs it when it may no longer.
  bool MayAct();
  // Ends the loop from within.
  void GiveUp() ABSL_LOCKS_EXCLUDED(mutex_);
  // Sorts what the state machines want into what is kept and what goes out after that.
  void CollectEffects();
  // Looks up what the store has; answered with an event.
  void Perform(const FindLayerTimes& find);
  // Writes what is pending and announces it; after a failure once in kStoreRetryInterval.
  void WritePending();
  // Writes what is pending, and `save`, now. With neither, finds out whether the store can be written.
  void WriteNow(const SaveJob* save);
  void Log(const std::string& line) const;

  Clock& clock_;
  EffectPerformer& performer_;
  const std::function<void(const std::string&)> log_;

  // The loop's thread only (before Start: the creator's).
  Coordinator coordinator_;
  const std::unique_ptr<StateStore> store_;
  const std::unique_ptr<Mandate> mandate_;  // null: it always holds
  bool may_act_ = true;                     // as long as the mandate has held
  // Of the state machines, as they are between turns: with many jobs it takes a while to ask all of them.
  std::optional<int64_t> deadline_ns_;
  PendingWrites pending_;
  CoordinatorEffects outside_;   // to be performed once what is pending was written
  CoordinatorEffects withheld_;  // calls to prepare, until the store can be written
  absl::Status store_status_;    // of the last write
  int64_t failed_writes_ = 0;
  int64_t store_retry_ns_ = 0;                  // when to try again after a failure
  int64_t keep_retry_ns_ = 0;                   // when Keep may try again after a failure
  std::vector<std::function<void()>> answers_;  // given at the end of the turn

  Mutex mutex_;
  CondVar changed_;
  std::vector<Event> queue_ ABSL_GUARDED_BY(mutex_);
  std::multimap<int64_t, Event> timers_ ABSL_GUARDED_BY(mutex_);  // by MonotonicNs
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

template <typename R>
void EventLoop::AskThen(std::function<absl::StatusOr<R>(Coordinator&, StateStore&, Now)> question,
                        std::function<void(absl::StatusOr<R>)> done) {
  auto promise = std::make_shared<Promise<R>>(std::move(done));
  Post([this, promise = std::move(promise), question = std::move(question)](
           Coordinator& coordinator, Now now) {
    auto result = std::make_shared<absl::StatusOr<R>>(question(coordinator, *store_, now));
    answers_.push_back([promise, result] { promise->Set(std::move(*result)); });
  });
}

template <typename R>
absl::StatusOr<R> EventLoop::Ask(
    absl::Time deadline,
    std::function<absl::StatusOr<R>(Coordinator&, StateStore&, Now)> question) {
  auto promise = std::make_shared<std::promise<absl::StatusOr<R>>>();
  std::future<absl::StatusOr<R>> future = promise->get_future();
  AskThen<R>(std::move(question),
             [promise](absl::StatusOr<R> value) { promise->set_value(std::move(value)); });
  const absl::Duration left = deadline - absl::Now();
  if (future.wait_for(absl::ToChronoMilliseconds(std::min(left, absl::Hours(1)))) !=
      std::future_status::ready) {
    return absl::DeadlineExceededError("the coordinator did not answer in time");
  }
  return future.get();
}

}  // namespace penstock
