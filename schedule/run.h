// Interpreter: runs the programs of all workers against each other, without doing the work.
//
// Why one run is a proof. A worker performs its actions strictly in list order; a channel between
// two stages is first-in-first-out with one sender and one receiver, also where replicas of stages are
// wired to several others, each by a channel of its own, whose turn is told by the microbatch; and a worker never asks
// whether a message has come: it only blocks, on an empty channel when it receives and on a full
// one when it sends (which is a blocking read of a free place). That is a bounded Kahn network
// (Kahn, "The semantics of a simple language for parallel programming", 1974), and such networks
// are determinate: how far every worker gets, which weight version each microbatch reads and how
// much is stashed do not depend on timing. So whatever order this interpreter happens to choose,
// its answer about deadlock, stash, versions and staleness holds for every run on every machine. A
// collective (REDUCE, NORM) is a barrier with fixed members and keeps the property. Two rules carry
// all this and must never be broken by an executor: list order is kept, and nobody receives
// "whichever comes first".
//
// Runs are streamed: memory is in proportion to what is in flight, not to the length of the range.
//
// Thread-compatible.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "schedule/machine.h"
#include "schedule/program.h"
#include "schedule/schedule.h"

namespace penstock {

// A message: which channel, the number of an edge of the topology, it takes and how many went through it before.
struct MessageId {
  int32_t channel = -1;
  int64_t number = 0;
};

// Told what happens, in an order that respects every program, channel and barrier.
class RunObserver {
 public:
  virtual ~RunObserver() = default;

  // `worker` performed an action of its own; `message` is set for sends and receives. An error ends
  // the run with it.
  virtual absl::Status OnAction(WorkerId worker, const Action& action, const Effect& effect,
                                MessageId message) = 0;
  // All `members` together performed a REDUCE or NORM.
  virtual void OnCollective(const Action& action, absl::Span<const WorkerId> members) = 0;
};

class Interpreter {
 public:
  // REQUIRES: CheckSchedule(schedule) is OK; channel_capacity >= 1 messages; `schedule` and
  // `observer` outlive the interpreter.
  Interpreter(const Schedule& schedule, int32_t channel_capacity, RunObserver& observer);

  // Goes on until every worker is done or no worker can move. Returns whether all are done.
  // Errors: FailedPrecondition from a machine, a message out of order, or one never received.
  absl::StatusOr<bool> RunToEnd();

  // Does the same, but no worker goes beyond its first `periods` copies of the period. Returns whether
  // all got exactly there. REQUIRES: 1 <= periods <= the repeats of every program.
  absl::StatusOr<bool> RunToPeriod(int64_t periods);

  // After RunToEnd returned false: whether a worker is blocked on a full channel, so that a larger
  // capacity may help; and who is blocked where and why, with the lists around these places.
  bool BlockedOnFullChannel() const;
  std::string DescribeBlocked() const;
  // After an error: the list of the worker whose action it was, with an arrow at it; empty if no action
  // was at fault.
  std::string DrawFailure() const;

  const Machine& machine(WorkerId worker) const { return workers_[worker.value].machine; }

  // Appends everything that decides how the run goes on, except for the positions in the programs;
  // see Machine::AppendRelativeState.
  void AppendRelativeState(int64_t origin, std::vector<int64_t>& state) const;

 private:
  struct Worker {
    WorkerId id;
    ProgramCursor cursor;
    Machine machine;
  };

  // The messages on their way, by microbatch.
  struct Channel {
    std::deque<int64_t> messages;
    int64_t sent = 0;
    int64_t received = 0;
  };

  absl::StatusOr<bool> RunUntilBlocked();
  bool Halted(const Worker& worker) const {
    return worker.cursor.Done() || worker.cursor.periods_done() >= periods_max_;
  }
  // Performs the worker's current action. Returns false if it must wait.
  absl::StatusOr<bool> TryAdvance(Worker& worker);
  absl::StatusOr<bool> TryMessage(Worker& worker, const Action& action);
  absl::StatusOr<bool> TryCollective(const Action& action);

  // The workers that pass a collective together; empty if there is no such group.
  absl::Span<const WorkerId> MembersOf(const Action& action) const;
  bool IsFull(const Action& send) const;
  std::string WhyBlocked(const Action& action) const;

  const Schedule& schedule_;
  const int32_t channel_capacity_;
  RunObserver& observer_;
  std::vector<Worker> workers_;
  std::vector<Channel> channels_;               // by number of the edge
  std::vector<std::vector<WorkerId>> members_;  // by GroupId; the last entry is all workers
  // Whose action is in progress, and where it stands in the worker's program.
  WorkerId current_worker_;
  int64_t current_position_ = -1;
  int64_t periods_max_;
};

}  // namespace penstock
