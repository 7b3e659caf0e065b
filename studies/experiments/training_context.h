// TrainingContext: where a study that trains runs: what it may not reach for by itself.
//
// Works like StudyContext (theory/study.h), for a few long runs instead of many short calls: a run says
// how far it is, can be stopped between two microbatches, and can fail.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"

namespace penstock {

class TrainingContext {
 public:
  virtual ~TrainingContext() = default;

  // Calls `train` with every number below `runs`, perhaps with several at once, and returns when all that
  // began are done. `microbatches`: of all runs together. After an error no more begin.
  // Errors: the first of `train`; Cancelled if the study was asked to stop.
  virtual absl::Status ForEachRun(int64_t runs, int64_t microbatches,
                                  const std::function<absl::Status(int64_t)>& train) = 0;
  // Called by a run, from its thread: a microbatch is done. Errors: Cancelled if the study was asked to stop;
  // the run then returns it.
  virtual absl::Status MicrobatchDone(double loss, int64_t tokens) = 0;
  // A line for the user. Called on the study's thread.
  virtual void Note(const std::string& line) = 0;
};

}  // namespace penstock
