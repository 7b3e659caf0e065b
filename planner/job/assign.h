// Assigning a job to workers: which worker holds which layers, verified before anybody hears of it.
//
// Plain functions without I/O.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "job/resolve.h"
#include "penstock/v1/cluster.pb.h"

namespace penstock {

// A worker that may take part.
struct WorkerOffer {
  std::string name;
  std::string address;
  uint64_t incarnation = 0;
  // The device as the worker registered it: a profile tells workers apart by it.
  std::string device = "";
  int64_t memory_bytes = 0;
  std::string build = "";
};

// Returns how many workers `job` takes when `free` are free: what the spec asks for, or as many as there are (with at
// most as many stages as the model can have). 0 if there are too few.
int64_t WorkersFor(const v1::JobSpec& spec, const ResolvedJob& job, int64_t free);

// The layers of each of `stages` stages of the model: as many as the job says (pipeline.stage_layers), or cut so
// that the slowest stage is as fast as possible by estimated cost. The one place where that is decided.
//
// Errors: InvalidArgument naming the key (CheckStages).
absl::StatusOr<std::vector<LayerRange>> SplitLayers(const ResolvedJob& job, int64_t stages);

// The plan for `job` on all of `workers`, stages placed as the method wants them: the layers of
// SplitLayers, messages in flight as the schedule needs, and the digest of everything that will be
// run from `first_step` on.
//
// Errors: InvalidArgument naming the key (the job cannot run in this many stages), FailedPrecondition (the schedule
// does not verify).
absl::StatusOr<v1::Plan> MakePlan(const v1::JobSpec& spec, const ResolvedJob& job,
                                  absl::Span<const WorkerOffer> workers, int64_t first_step,
                                  absl::Span<const int64_t> extra_cuts);

}  // namespace penstock
