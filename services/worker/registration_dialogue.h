// RegistrationDialogue: what a worker says next to make itself known to the coordinator and stay so, and how long it waits.
//
//   register -> heartbeats at the interval that the coordinator asks for -> (unknown there) -> register ...
//
// A coordinator that is away is tried again with a growing pause. A refusal that trying again cannot change ends the
// dialogue, and so does the coordinator's word that a worker which leaves is known no longer.
//
// Beside it the worker opens a stream (Attach) whenever it is registered and has none.
//
// A state machine without clock or I/O; thread-compatible. Registration (registration.h) makes the calls.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "penstock/v1/cluster.pb.h"

namespace penstock {

class RegistrationDialogue {
 public:
  static constexpr absl::Duration kBackoffMin = absl::Milliseconds(50);
  static constexpr absl::Duration kBackoffMax = absl::Seconds(1);
  // Whatever a coordinator asks for, heartbeats come no closer and no farther apart.
  static constexpr absl::Duration kIntervalMin = absl::Milliseconds(10);
  static constexpr absl::Duration kIntervalMax = absl::Seconds(10);
  // Between the heartbeats of a worker that leaves.
  static constexpr absl::Duration kLeavingInterval = absl::Milliseconds(100);
  // A worker without a run that leaves does so after this many heartbeats without an answer.
  static constexpr int kLeavingAttemptsMax = 3;
  // One with a run registers this often with a coordinator that does not know it, to be let go in good order.
  static constexpr int kLeavingReturnsMax = 3;
  // A stream that was open for so long is opened again at once; others after a pause that grows.
  static constexpr absl::Duration kAttachedMin = absl::Seconds(1);

  enum class Call { kRegister, kHeartbeat, kNone };

  struct AfterAnswer {
    absl::Duration wait;  // before Next
    // OK when registered, else why not: told once.
    std::optional<absl::Status> news = std::nullopt;
    bool refused = false;  // the coordinator will never take this worker
  };

  // From now on the worker leaves. Idempotent.
  void Leave() { leaving_ = true; }
  bool leaving() const { return leaving_; }
  // It may end: the coordinator has let it go or refused it, does not know it, or does not answer while it has no run.
  bool may_leave() const { return may_leave_; }

  // Returns the call to make now; kNone: there is none any more.
  Call Next();
  AfterAnswer OnRegistered(const absl::StatusOr<v1::RegisterWorkerResponse>& answer);
  // `request`: the heartbeat, with the worker's activity.
  AfterAnswer OnHeartbeat(const v1::HeartbeatRequest& request,
                          const absl::StatusOr<v1::HeartbeatResponse>& answer);

  // Returns whether a stream may be opened, once `stream_pause` has passed since the last one ended.
  bool MayAttach() const { return registrations_ > attach_after_; }
  absl::Duration stream_pause() const { return stream_pause_; }
  int64_t registrations() const { return registrations_; }
  // A stream that was opened after that many registrations has ended. Returns whether the next heartbeat is sent at once,
  // which finds out whether the coordinator is there.
  bool OnStreamEnded(int64_t registrations, absl::Duration open_for, const absl::Status& ended);

 private:
  absl::Duration NextBackoff();
  std::optional<absl::Status> NewsOf(const absl::Status& status);
  // Takes the answer to a heartbeat of a worker that leaves.
  AfterAnswer OnLeavingAnswer(const absl::Status& answer, bool has_run);
  // Takes the interval that the coordinator asks for.
  void AskedFor(int64_t milliseconds);

  bool registered_ = false;
  bool leaving_ = false;
  bool may_leave_ = false;
  absl::Duration interval_ = absl::Milliseconds(500);
  absl::Duration backoff_ = absl::ZeroDuration();
  absl::Status noted_ = absl::UnknownError("not registered yet");
  int unanswered_ = 0;  // heartbeats since it leaves
  int returns_ = 0;     // times that it has registered again since then, or is about to
  int64_t registrations_ = 0;
  int64_t attach_after_ = 0;  // no stream before there were more registrations
  absl::Duration stream_pause_ = absl::ZeroDuration();
};

}  // namespace penstock
