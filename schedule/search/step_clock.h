// StepClock: how long steps in an order take, thousands of times a second.
//
// Times orders by the model of simulate.h, to the nanosecond (the tests compare them), but for lists of passes alone
// and with arrays that are allocated once. Also the critical path: the passes whose places in the lists
// decide the length.
//
// There is no REDUCE here: replicas do not wait for each other at the end of a step.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "schedule/search/problem.h"

namespace penstock {

// Thread-compatible.
class StepClock {
 public:
  // REQUIRES: `problem` outlives the clock.
  explicit StepClock(const StepProblem& problem);

  // The time of an order that does not end because the workers wait for each other.
  static constexpr int64_t kNever = INT64_MAX;

  // The makespan. REQUIRES: ListCheck allows all lists.
  // `order` must live, unchanged, until CriticalPath was called.
  int64_t Measure(const StepOrder& order);

  // The time when each worker has done its last action of the last order measured, if that ends.
  int64_t end_ns(int32_t worker) const { return workers_[worker].now_ns; }

  struct Place {
    int32_t worker;
    int32_t position;
  };
  // The passes on one longest path, from the last to the first; a place comes once for each step it is on the path.
  const std::vector<Place>& CriticalPath();

 private:
  // The next thing that a worker does within a pass: receive and compute, or send.
  enum class Phase : uint8_t { kCompute, kSend };
  struct Worker {
    int64_t now_ns = 0;
    int32_t position = 0;  // in the list
    int32_t done = 0;      // passes of all steps
    Phase phase = Phase::kCompute;
    bool queued = false;
  };
  // The channels that the microbatches of a pass take in turn.
  struct Turns {
    int32_t count = 0;         // 0: nothing is sent
    int32_t first = 0;         // the channel, if it is one; otherwise a place in channels_in_turn_
    size_t first_message = 0;  // of the channel, if it is one: no other is looked up then
  };
  struct PassFacts {
    int64_t compute_ns = 0;
    Turns in;
    Turns out;
  };
  // One direction of a link.
  struct Channel {
    // Constant after construction.
    int64_t transfer_ns = 0;
    int64_t latency_ns = 0;
    size_t first_message = 0;
    int32_t sender = 0;  // worker
    int32_t receiver = 0;
    // Of the order that is measured.
    int64_t sent = 0;
    int64_t received = 0;
    int64_t link_free_ns = 0;
  };
  struct MessageId {
    int32_t channel;
    int64_t number;  // in the channel
    size_t index;    // in messages_
  };
  struct Message {
    int64_t arrival_ns = 0;
    int64_t freed_ns = 0;  // when it was received
    int32_t sent_at = 0;   // which pass of the sender did: its `done`
  };
  // A pass that a worker has done.
  struct Step {
    int32_t microbatch = 0;
    bool waited = false;  // for its message
  };

  Turns AddTurns(absl::Span<const int32_t> links, int32_t way);
  MessageId MessageOf(const Turns& turns, int64_t microbatch) const {
    if (turns.count == 1) [[likely]] {
      return {turns.first, microbatch, turns.first_message + static_cast<size_t>(microbatch)};
    }
    const int32_t channel = channels_in_turn_[turns.first + microbatch % turns.count];
    const int64_t number = microbatch / turns.count;
    return {channel, number, channels_[channel].first_message + static_cast<size_t>(number)};
  }
  // Runs a worker until it waits or is done.
  void Advance(int32_t id, const PassList& list);
  // False where the message, or the room for it, is not there yet.
  bool Receive(int32_t id, const Turns& in, int64_t microbatch);
  bool Send(Worker& worker, const Turns& out, int64_t microbatch);
  void Wake(int32_t worker);

  const StepProblem& problem_;
  std::vector<PassFacts> facts_;           // by pass id
  std::vector<int64_t> done_;              // by pass id
  std::vector<Channel> channels_;          // two for each link
  std::vector<int32_t> channels_in_turn_;  // of passes that have several
  std::vector<Message> messages_;          // by Channel::first_message and number
  std::vector<Worker> workers_;
  std::vector<std::vector<Step>> steps_;  // by worker and `done`
  std::vector<int32_t> queue_;            // workers that may go on
  const StepOrder* order_ = nullptr;
  std::vector<Place> path_;
};

}  // namespace penstock
