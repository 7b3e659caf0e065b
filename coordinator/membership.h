// Membership: which workers there are, told apart by incarnation, and which of them are alive.
//
// A worker registers, then says "still alive" all the time; silence beyond the timeout makes it
// lost. A worker that registers with another incarnation is a restarted process: the old one has
// departed and whatever it did is over.
//
// A worker is also attached by a stream, whose end is a suspicion: the process may be gone, or its connection alone. So
// somebody tries to reach the worker where it listens. It is lost at once if nobody is there; if there is no answer, unless it
// has been heard of meanwhile; and if somebody listens, its heartbeats decide as ever. Builds without such streams are judged
// by their heartbeats alone.
//
// A state machine without clock or I/O; thread-compatible. Invariants (CheckInvariants):
//   1. the key of a member is its name;
//   2. an alive member was heard of within the timeout, as of the last Expire;
//   3. no member was heard of, or suspected, in the future;
//   4. there are at most `workers_max` members.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/heartbeat.h"
#include "base/loss_counts.h"
#include "coordinator/effects.h"
#include "penstock/v1/cluster.pb.h"

namespace penstock {

struct MembershipLimits {
  int64_t heartbeat_interval_ms = kHeartbeatIntervalMs;
  int64_t heartbeat_timeout_ms = kHeartbeatTimeoutMs;
  size_t workers_max = 1024;
  // A lost worker is remembered for this long, unless it comes back.
  int64_t remember_lost_ms = 3'600'000;
};

struct Member {
  v1::RegisterWorkerRequest registration;
  bool alive = true;
  bool leaving = false;  // it ends when it has no run any more
  int64_t heard_ns = 0;  // the last registration, heartbeat or attachment
  int64_t number = 0;    // order of first registration
  int64_t stream = 0;    // the last by which this incarnation was attached; 0: it was not yet
  // When that stream ended, or the worker was doubted, until another stream is there.
  std::optional<int64_t> suspected_ns = std::nullopt;
};

// The end of one incarnation of a worker.
struct Departure {
  std::string worker;
  uint64_t incarnation = 0;
  std::string reason;  // "no heartbeat for 3.0 s"
  LossCause cause = LossCause::kSilent;
  int64_t detection_ns =
      0;  // from the end of its stream, or else from the last that was heard of it
  friend bool operator==(const Departure&, const Departure&) = default;
};

// Whether this process of a worker is a member that counts as alive.
using IsWorkerHere = std::function<bool(const std::string& worker, uint64_t incarnation)>;

class Membership {
 public:
  explicit Membership(MembershipLimits limits) : limits_(limits) {}

  // Adds a worker or brings it back. Returns the departure of its previous incarnation, if that was
  // alive. Idempotent for one incarnation.
  //
  // Errors: InvalidArgument (no name or address), FailedPrecondition (protocol versions differ),
  // AlreadyExists (an alive worker has this name and another address), ResourceExhausted (too
  // many).
  absl::StatusOr<std::optional<Departure>> Register(const v1::RegisterWorkerRequest& request,
                                                    int64_t now_ns);

  // Errors: NotFound (unknown, lost, or another incarnation: register again).
  absl::Status Heartbeat(const std::string& worker, uint64_t incarnation, int64_t now_ns);
  // Between two heartbeats of a worker, by how many workers there are.
  int64_t HeartbeatIntervalMs() const;

  // A stream of the worker begins, and takes the place of one before. Returns its number. Errors: as Heartbeat.
  absl::StatusOr<int64_t> Attach(const std::string& worker, uint64_t incarnation, int64_t now_ns);
  // A stream of the worker has ended. Returns whether that is a reason to try to reach it: it was the newest, of an alive
  // worker.
  bool Detach(const std::string& worker, int64_t stream, int64_t now_ns);
  // Another process tries to register under the name of this worker, which counts as alive. Perhaps its process is gone, and
  // was started again at another address.
  // Returns the number of its stream if that is a reason to try to reach it: it was not tried a moment ago.
  std::optional<int64_t> Doubt(const std::string& worker, int64_t now_ns);
  // Somebody has tried to reach the worker because this stream had ended, or it was doubted. `answer`: OK if somebody listens, Unavailable if
  // nobody does, DeadlineExceeded without an answer; other errors say nothing. Returns its departure, if it is lost.
  std::optional<Departure> OnProbed(const std::string& worker, int64_t stream,
                                    const absl::Status& answer, int64_t now_ns);

  // It gets nothing to do any more. REQUIRES: alive.
  void SetLeaving(const std::string& worker);
  // It has left in good order, and is as unknown as if it had never been there.
  void Dismiss(const std::string& worker) {
    members_.erase(worker);
    heard_since_ns_.reset();
  }

  // Marks the workers as lost that were silent for too long, and returns them.
  std::vector<Departure> Expire(int64_t now_ns);

  // Returns when to call Expire next (0: now); nothing if no worker is alive.
  std::optional<int64_t> NextExpiryNs() const;

  // Returns the member, or null. Valid until the next Register.
  const Member* Find(const std::string& worker) const;
  // Returns when a worker last joined: one that was unknown or counted as lost.
  std::optional<int64_t> joined_ns() const { return joined_ns_; }
  // Returns the workers that can be given work: alive and not leaving, in the order of their first registration.
  std::vector<const Member*> Available() const;
  // Returns the members by name, lost ones among them.
  const std::map<std::string, Member>& members() const { return members_; }
  const MembershipLimits& limits() const { return limits_; }

  // Errors: Internal naming the invariant that does not hold.
  absl::Status CheckInvariants() const;

 private:
  absl::Status CheckRegistration(const v1::RegisterWorkerRequest& request) const;
  // The member, which has been heard of. Errors: as Heartbeat.
  absl::StatusOr<Member*> Hear(const std::string& worker, uint64_t incarnation, int64_t now_ns);
  // Makes room by forgetting the worker that has been lost for longest.
  absl::Status MakeRoom();

  // Expire is called at least this often. Time beyond that without a call is the coordinator's own, and counts for no worker's
  // silence; twice this time without a call is a gap.
  int64_t expire_interval_ns() const {
    return limits_.heartbeat_timeout_ms * kNsPerMs / kHeartbeatChecks;
  }

  const MembershipLimits limits_;
  std::map<std::string, Member> members_;
  int64_t next_number_ = 0;
  int64_t last_stream_ = 0;
  int64_t latest_ns_ = 0;              // the latest time that any call brought
  std::optional<int64_t> expired_ns_;  // of the last Expire
  // Every member that is alive, of which there is one or more, was heard of then or later. Unknown from the loss of a member
  // until the next Expire. It spares the thousands of heartbeats in a second a look at all members.
  std::optional<int64_t> heard_since_ns_;
  std::optional<int64_t> joined_ns_;
};

}  // namespace penstock
