// The words in which the files of this folder write their lists.
//
// Each file defines a function that lists the compute actions of a worker, as a prologue, a period
// and an epilogue. It is named in the table of catalog.cc. REQUIRES for all: range.count > 0 is a
// multiple of options.microbatches_per_step; the topology is the method's placement.
#pragma once

#include <algorithm>
#include <set>
#include <vector>

#include "schedule/catalog/catalog.h"

namespace penstock {

// Where a worker holds one stage alone.
inline StageId StageOf(WorkerId worker) { return StageId(worker.value); }

inline void Forward(ActionList& list, StageId stage, int64_t microbatch) {
  list.push_back({ActionKind::kForward, stage.value, microbatch});
}
// A whole backward: I, then W.
inline void Backward(ActionList& list, StageId stage, int64_t microbatch) {
  list.push_back({ActionKind::kBackwardInput, stage.value, microbatch});
  list.push_back({ActionKind::kBackwardWeight, stage.value, microbatch});
}
inline void BackwardInput(ActionList& list, StageId stage, int64_t microbatch) {
  list.push_back({ActionKind::kBackwardInput, stage.value, microbatch});
}
inline void BackwardWeight(ActionList& list, StageId stage, int64_t microbatch) {
  list.push_back({ActionKind::kBackwardWeight, stage.value, microbatch});
}
inline void Update(ActionList& list, StageId stage) {
  list.push_back({ActionKind::kUpdate, stage.value});
}
// The replicas of a group take the mean of their weights.
inline void Average(ActionList& list, GroupId group) {
  list.push_back({ActionKind::kReduce, group.value});
}
// What ends a step: the updates of the worker's stages but those in `updated`. Where pipelines go there and back, all stages
// of a part then get the weights of the one that updates.
inline void UpdateAtEnd(ActionList& list, const Topology& topology, WorkerId worker,
                        const std::set<StageId>& updated = {}) {
  for (const StageId stage : topology.StagesOf(worker)) {
    if (topology[stage].updates && !updated.contains(stage)) Update(list, stage);
  }
  for (int32_t id = 0; id < static_cast<int32_t>(topology.groups.size()); ++id) {
    const ReduceGroup& group = topology.groups[id];
    if (group.operation != ReduceGroup::Operation::kCopy) continue;
    const std::vector<WorkerId> members = topology.WorkersOf(GroupId(id));
    if (std::find(members.begin(), members.end(), worker) == members.end()) continue;
    list.push_back({ActionKind::kReduce, id});
  }
}

}  // namespace penstock
