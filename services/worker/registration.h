// Registration: makes this worker known to the coordinator and keeps it known.
//
// Threads around RegistrationDialogue (registration_dialogue.h), which says which call is made when. A worker registers, then
// says "still alive" at the interval the coordinator asks for. When the coordinator does not know the worker (any more), it
// registers again; when the coordinator is away, it keeps trying. Only a refusal that trying again cannot change ends it.
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
#include "services/worker/registration_dialogue.h"

namespace penstock {

class Registration {
 public:
  struct Parts {
    v1::RegisterWorkerRequest worker;
    // One call to the coordinator each, with a deadline of its own.
    std::function<absl::StatusOr<v1::RegisterWorkerResponse>(const v1::RegisterWorkerRequest&)>
        register_worker;
    std::function<absl::StatusOr<v1::HeartbeatResponse>(const v1::HeartbeatRequest&)> heartbeat;
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
  // It may end: RegistrationDialogue::may_leave.
  bool may_leave() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  // Keeps the stream open.
  void StayAttached() ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits until a stream may be opened. Returns the number of registrations by then; 0 when the worker ends.
  int64_t AwaitRegistration() ABSL_LOCKS_EXCLUDED(mutex_);
  // Makes the call. Returns the wait until the next one.
  absl::Duration Make(RegistrationDialogue::Call call) ABSL_LOCKS_EXCLUDED(mutex_);
  RegistrationDialogue::AfterAnswer Register() ABSL_LOCKS_EXCLUDED(mutex_);
  RegistrationDialogue::AfterAnswer Beat() ABSL_LOCKS_EXCLUDED(mutex_);
  // Wakes early when the worker leaves, or its stream has ended. False when the worker ends.
  bool Sleep(absl::Duration wait) ABSL_LOCKS_EXCLUDED(mutex_);

  const Parts parts_;

  mutable Mutex mutex_;
  CondVar changed_;
  RegistrationDialogue dialogue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool stream_ended_ ABSL_GUARDED_BY(mutex_) = false;  // since the last heartbeat

  StreamCanceller canceller_;
  std::thread attached_;
  std::thread thread_;
};

}  // namespace penstock
