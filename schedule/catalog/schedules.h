// The functions behind the table of catalog.cc, one per file of this folder.
//
// Each lists the compute actions of `worker`, as a prologue, a period and an epilogue.
// REQUIRES for all: range.count > 0 is a multiple of options.microbatches_per_step; the topology is the
// method's placement.
#pragma once

#include "schedule/catalog/catalog.h"

namespace penstock {

Program Gpipe(const ScheduleOptions& options, WorkerId worker, MicrobatchRange range);
Program OneFOneB(const ScheduleOptions& options, WorkerId worker, MicrobatchRange range);
Program InterleavedOneFOneB(const ScheduleOptions& options, WorkerId worker, MicrobatchRange range);
Program LoopedBreadthFirst(const ScheduleOptions& options, WorkerId worker, MicrobatchRange range);
Program ZeroBubbleH1(const ScheduleOptions& options, WorkerId worker, MicrobatchRange range);
Program ZeroBubbleH2(const ScheduleOptions& options, WorkerId worker, MicrobatchRange range);
Program ZeroBubbleV(const ScheduleOptions& options, WorkerId worker, MicrobatchRange range);
Program DualPipeV(const ScheduleOptions& options, WorkerId worker, MicrobatchRange range);
Program LocalSgd(const ScheduleOptions& options, WorkerId worker, MicrobatchRange range);
Program RoundPipe(const ScheduleOptions& options, WorkerId worker, MicrobatchRange range);
Program PipeDream(const ScheduleOptions& options, WorkerId worker, MicrobatchRange range);
Program RandomizedPipeDream(const ScheduleOptions& options, WorkerId worker, MicrobatchRange range);
Program PipeDream2BW(const ScheduleOptions& options, WorkerId worker, MicrobatchRange range);
Program Paci(const ScheduleOptions& options, WorkerId worker, MicrobatchRange range);
Program ListedStep(const ScheduleOptions& options, WorkerId worker, MicrobatchRange range);

// Where a worker holds one stage alone.
inline StageId StageOf(WorkerId worker) { return StageId(worker.value); }

// The words that catalog files write their lists in.
inline void Forward(ActionList& list, StageId stage, int64_t microbatch) {
  list.push_back({Op::kForward, stage.value, microbatch});
}
// A whole backward: I, then W.
inline void Backward(ActionList& list, StageId stage, int64_t microbatch) {
  list.push_back({Op::kBackwardInput, stage.value, microbatch});
  list.push_back({Op::kBackwardWeight, stage.value, microbatch});
}
inline void BackwardInput(ActionList& list, StageId stage, int64_t microbatch) {
  list.push_back({Op::kBackwardInput, stage.value, microbatch});
}
inline void BackwardWeight(ActionList& list, StageId stage, int64_t microbatch) {
  list.push_back({Op::kBackwardWeight, stage.value, microbatch});
}
inline void Step(ActionList& list, StageId stage) { list.push_back({Op::kStep, stage.value}); }
// The replicas of a group take the mean of their weights.
inline void Average(ActionList& list, GroupId group) {
  list.push_back({Op::kReduce, group.value});
}
// Where pipelines go there and back: all stages of a part get the weights of the one that updates.
inline void CopyWeights(ActionList& list, GroupId group) {
  list.push_back({Op::kReduce, group.value});
}

}  // namespace penstock
