// Registration: makes this worker known to the coordinator and keeps it known.
//
// Registers, then says "still alive" at the interval the coordinator asks for. When the coordinator
// does not know the worker (any more), it registers again; when the coordinator is away, it keeps
// trying. Only a refusal that trying again cannot change ends it.
//
// While it is registered, a stream to the coordinator is kept open beside that, on a thread of its own, and is opened again
// whenever it has ended: its end tells the coordinator at once that this process may be gone, and this worker that the
// coordinator may be, which it finds out with a heartbeat. A coordinator of an older build has no such stream.
//
// A worker that leaves says so with its heartbeats, until the coordinator lets it go, which is when no run uses it
// any more, whatever is still on its way.
//
// Thread safety: all methods may be called from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "penstock/v1/cluster.pb.h"
#include "services/rpc/client.h"

namespace penstock {

class Registration {
 public:
  static constexpr absl::Duration kBackoffMin = absl::Milliseconds(50);
  static constexpr absl::Duration kBackoffMax = absl::Seconds(1);
  // Between the heartbeats of a worker that leaves.
  static constexpr absl::Duration kLeavingInterval = absl::Milliseconds(100);
  // A worker without a run that leaves does so after this many heartbeats without an answer.
  static constexpr int kLeavingAttemptsMax = 3;
  // A stream that was open for so long is opened again at once; others after a pause that grows.
  static constexpr absl::Duration kAttachedMin = absl::Seconds(1);

  struct Parts {
    v1::RegisterWorkerRequest worker;
    // One call to the coordinator each, with a deadline of its own.
    std::function<absl::StatusOr<v1::RegisterWorkerResponse>(const v1::RegisterWorkerRequest&)>
        register_worker;
    std::function<absl::Status(const v1::HeartbeatRequest&)> heartbeat;
    // Opens the stream, and returns why it ended: DeadlineExceeded if it was time to open another one.
    std::function<absl::Status(const v1::AttachRequest&, StreamCanceller&)> attach;
    // Fills in the worker's activity: job, epoch and actions of the next heartbeat.
    std::function<void(v1::HeartbeatRequest&)> fill_activity;
    // Logs the outcome: OK when registered, else why not. Not called for a worker that leaves.
    std::function<void(const absl::Status&)> on_change;
    // Hears, instead, that the coordinator will never take this worker (InvalidArgument, FailedPrecondition).
    std::function<void(const absl::Status&)> on_refused;
  };

  explicit Registration(Parts parts);
  ~Registration();
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

  // From now on the worker leaves. Idempotent.
  void Leave() ABSL_LOCKS_EXCLUDED(mutex_);
  // It may end: the coordinator has let it go, does not know it, or does not answer while it has no run.
  bool may_leave() const { return may_leave_; }

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  // Keeps the stream open.
  void StayAttached() ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits for `pause`, and until the worker has registered more than `after` times. Returns how often it has; 0 when the
  // worker ends.
  int64_t AwaitRegistration(int64_t after, absl::Duration pause) ABSL_LOCKS_EXCLUDED(mutex_);
  // One step of the loop: a registration or a heartbeat. Returns the wait until the next.
  absl::Duration Register() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Duration Beat();
  absl::Duration NextBackoff();
  // Tells on_change if that is news.
  void Note(const absl::Status& status);
  // Wakes early when the worker leaves, or its stream has ended. False when the worker ends.
  bool Sleep(absl::Duration wait) ABSL_LOCKS_EXCLUDED(mutex_);
  bool leaving() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Handles the answer to a heartbeat of a worker that leaves.
  void OnLeavingAnswer(const absl::Status& status, bool has_run);

  const Parts parts_;

  // Used by the thread.
  bool registered_ = false;
  bool refused_ = false;
  absl::Duration interval_ = absl::Milliseconds(500);
  absl::Duration backoff_ = absl::ZeroDuration();
  absl::Status noted_ = absl::UnknownError("not registered yet");

  int unanswered_ = 0;  // heartbeats since it leaves

  std::atomic<bool> may_leave_ = false;
  mutable Mutex mutex_;
  CondVar changed_;
  bool leaving_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t registrations_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stream_ended_ ABSL_GUARDED_BY(mutex_) = false;  // since the last heartbeat

  StreamCanceller canceller_;
  std::thread attached_;
  std::thread thread_;
};

}  // namespace penstock
