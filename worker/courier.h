// Courier: brings tensors from the device to the transport and back, so that the executor never waits for
// the device and goes on queueing work for it.
//
// A tensor that leaves may still have to be computed and copied. The executor takes its place in the
// edge's window, starts the copy and goes on; the courier's thread waits until the device is done and
// hands the tensor over, for each edge in the order of the calls. An exported tensor
// (compute/device_share.h) needs no copy here, only the same patience, and where one was fetched the
// thread tells its sender when the device has it. Where nothing is ever to wait for, as on the CPU,
// tensors go straight through, and there is no thread.
//
// The window bounds what is under way: a place is taken before a copy starts. The next call for that edge,
// and Drain, return an error of the thread.
//
// A tensor that an error or Cancel gives up is not handed over any more, but its memory stays here until
// the device is done with it: a pool would hand it out under a copy that still runs.
//
// All waits of the executor for other workers are here, so the pulse that it shows meanwhile is, too.
//
// Thread safety: the executor's thread, except Cancel, and what pulse.h says.
#pragma once

#include <cstdint>
#include <deque>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "compute/transfers.h"
#include "worker/pulse.h"
#include "worker/transport.h"

namespace penstock {

class Courier {
 public:
  // The time that the end waits for copies that were given up and still run. Memory that is written
  // to for longer, by a device that hangs, is lost rather than used again.
  static constexpr absl::Duration kLastWait = absl::Seconds(10);

  // REQUIRES: `device` outlives the courier, and so do the ends of edges it is given.
  explicit Courier(Transfers& device, absl::Duration last_wait = kLastWait)
      : device_(device), last_wait_(last_wait) {}
  // Gives up what is still under way, and waits for the device to be done with it.
  ~Courier();
  Courier(const Courier&) = delete;
  Courier& operator=(const Courier&) = delete;

  // Sends a tensor of the device as the calls so far leave it; it must not be written to any more. Waits
  // for a place in the window only. `deadline` is also the device's.
  // Errors: those of Sender, of Transfers, and of messages sent before on this edge.
  absl::Status Send(Sender& sender, int64_t sequence, const Tensor& tensor, absl::Time deadline);
  // Sends a tensor of host memory, after what was sent before.
  absl::Status SendFromHost(Sender& sender, int64_t sequence, const Tensor& tensor,
                            absl::Time deadline);
  struct Received {
    Tensor tensor;         // on the device; later calls of the back-end see it whole
    bool fetched = false;  // from the memory of another device, not from the host's
  };
  // The next message.
  absl::StatusOr<Received> Receive(Receiver& receiver, const TensorExpectation& expected,
                                   absl::Time deadline);
  // The next message of an edge over which nothing is exported, in host memory. Errors: those of Receiver.
  absl::StatusOr<Tensor> ReceiveToHost(Receiver& receiver, const TensorExpectation& expected,
                                       absl::Time deadline);
  Pulse& pulse() { return pulse_; }
  const Pulse& pulse() const { return pulse_; }
  // Returns whether the last error that a call here returned came from the other end of its edge.
  bool peer_failed() const { return peer_failed_; }

  // Waits until nothing is under way. Errors: the first of any edge, DeadlineExceeded.
  absl::Status Drain(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mutex_);

  // Any thread. Gives up what is under way and makes all calls that wait here return `reason`, later ones
  // too. The first reason counts.
  void Cancel(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  using TimePoint = CondVar::Clock::time_point;

  struct Errand {
    int64_t sequence = 0;
    Outgoing outgoing;  // of a fetched tensor only the ticket
    TimePoint deadline;
  };
  // One end of an edge; exactly one of the two is set.
  struct Lane {
    Sender* sender = nullptr;
    Receiver* receiver = nullptr;
    std::vector<Errand> errands = {};  // in order; never more than the window
    bool handing_over = false;         // the one before the first, with the mutex released
    absl::Status error = {};           // ends the lane
    bool peer_failed = false;
  };

  absl::Status Reserve(Sender& sender, int64_t sequence, const Tensor& tensor, absl::Time deadline);
  // Hands over now, if nothing is to wait for and nothing is ahead of it.
  absl::Status Dispatch(Sender& sender, int64_t sequence, Outgoing outgoing, absl::Time deadline);
  // `peer_failed`: whose the error is.
  static absl::Status HandOver(Sender& sender, int64_t sequence, const Outgoing& outgoing,
                               bool& peer_failed);
  absl::Status ErrorOf(const void* end) ABSL_LOCKS_EXCLUDED(mutex_);
  Lane& LaneOf(Sender* sender, Receiver* receiver) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Enqueue(Lane& lane, Errand errand) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Blame(bool peer, absl::Status status);

  // Keeps only the tensors that the device still works on.
  void GiveUp(Errand errand) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveUpAll(Lane& lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Runs on the courier's thread.
  void Main() ABSL_LOCKS_EXCLUDED(mutex_);
  // Does what can be done now. False if that is nothing.
  bool Round() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool TryFirst(Lane& lane, TimePoint now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Releases the mutex meanwhile.
  void HandOverFirst(Lane& lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool DropFinished() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Fail(Lane& lane, bool peer, const absl::Status& error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Transfers& device_;
  const absl::Duration last_wait_;
  bool peer_failed_ = false;
  Pulse pulse_;

  Mutex mutex_;
  CondVar work_;  // there is an errand, or the end
  CondVar idle_;  // there is none any more, or an error
  std::deque<Lane> lanes_ ABSL_GUARDED_BY(mutex_);
  int64_t errands_ ABSL_GUARDED_BY(mutex_) = 0;  // of all lanes, and being handed over
  std::vector<Outgoing> given_up_ ABSL_GUARDED_BY(mutex_);
  absl::Status cancelled_ ABSL_GUARDED_BY(mutex_);
  bool quit_ ABSL_GUARDED_BY(mutex_) = false;
  TimePoint last_look_ ABSL_GUARDED_BY(mutex_);  // at what was given up, once quit_ is set

  std::thread thread_;  // from the first errand on
};

}  // namespace penstock
