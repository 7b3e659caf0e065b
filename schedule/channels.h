// ChannelTable: the channels of a topology, numbered.
//
// A channel carries the messages of one kind from one stage to one other. Where places have replicas a stage
// is wired to several stages before and after it, by a channel of its own each, so that every channel has one
// sender and one receiver (run.h lives by it).
//
// Immutable.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/action.h"
#include "schedule/schedule.h"

namespace penstock {

class ChannelTable {
 public:
  // REQUIRES: CheckTopology(topology) is OK; it outlives the table.
  explicit ChannelTable(const Topology& topology);

  int32_t size() const { return static_cast<int32_t>(receives_.size()); }
  // The channel of a message action, or -1 where there is none.
  int32_t Of(const Action& action) const;
  // What takes a message of `channel`.
  Action ReceiveOf(int32_t channel, int64_t microbatch) const {
    return {receives_[channel].op, receives_[channel].index, microbatch};
  }

 private:
  // Those of one kind into a stage, which microbatches take in turn.
  struct Into {
    int32_t first = 0;
    int32_t count = 0;
  };

  void Add(Op receive, StageId stage, size_t senders, std::vector<Into>& into);
  int32_t Turn(const std::vector<Into>& into, StageId stage, int64_t microbatch) const;

  const Topology& topology_;
  std::vector<Action> receives_;  // by channel; any microbatch
  // By receiving stage. Without a sender there is a channel that nothing goes through.
  std::vector<Into> activations_;
  std::vector<Into> gradients_;
  std::vector<Into> checkpoints_;  // these two there and back alone
  std::vector<Into> sums_;
};

}  // namespace penstock
