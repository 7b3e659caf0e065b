#include "schedule/channels.h"

#include <algorithm>

namespace penstock {

ChannelTable::ChannelTable(const Topology& topology) : topology_(topology) {
  for (int32_t id = 0; id < topology.stages(); ++id) {
    const StageId stage(id);
    Add(Op::kRecvActivation, stage, topology.All(&Topology::Before, stage).size(), activations_);
    Add(Op::kRecvGradient, stage, topology.All(&Topology::GradientFrom, stage).size(), gradients_);
  }
  for (int32_t id = 0; topology.there_and_back() && id < topology.stages(); ++id) {
    Add(Op::kRecvCheckpoint, StageId(id), 1, checkpoints_);
    Add(Op::kRecvSum, StageId(id), 1, sums_);
  }
}

void ChannelTable::Add(Op receive, StageId stage, size_t senders, std::vector<Into>& into) {
  const size_t count = std::max<size_t>(1, senders);
  into.push_back({static_cast<int32_t>(receives_.size()), static_cast<int32_t>(count)});
  receives_.insert(receives_.end(), count, {receive, stage.value, 0});
}

int32_t ChannelTable::Turn(const std::vector<Into>& into, StageId stage, int64_t microbatch) const {
  if (stage.value < 0 || into.empty()) return -1;
  const Into& channels = into[stage.value];
  return channels.first +
         static_cast<int32_t>(topology_.TurnOf(stage, microbatch) % channels.count);
}

int32_t ChannelTable::Of(const Action& action) const {
  if (action.index < 0 || action.index >= topology_.stages() || action.microbatch < 0) return -1;
  const StageId stage = action.stage();
  const int64_t m = action.microbatch;
  if (topology_.replicated() && !topology_.Visits(m, stage)) return -1;
  switch (action.op) {
    case Op::kSendActivation:
      return Turn(activations_, topology_.After(stage, m), m);
    case Op::kRecvActivation:
      return Turn(activations_, stage, m);
    case Op::kSendGradient:
      return Turn(gradients_, topology_.GradientTo(stage, m), m);
    case Op::kRecvGradient:
      return Turn(gradients_, stage, m);
    case Op::kSendCheckpoint:
      return Turn(checkpoints_, topology_.CheckpointTo(stage), m);
    case Op::kRecvCheckpoint:
      return Turn(checkpoints_, stage, m);
    case Op::kSendSum:
      return Turn(sums_, topology_.StageAt(topology_.DepthOf(stage), m), m);
    case Op::kRecvSum:
      return Turn(sums_, stage, m);
    default:
      return -1;
  }
}

}  // namespace penstock
