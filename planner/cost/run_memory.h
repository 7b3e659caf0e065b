// How much memory each worker of a run will need at its peak, told before anything runs.
//
// One rule for a worker, which knows from its device what the passes of each layer leave behind, and for a
// planner, which knows it from a profile (job/profile/model_profile.h): a stage's arrays (compute/array_bytes.h), the
// verified number of weight versions, and its program walked with the bytes that each action takes and gives
// back (planner/cost/memory_plan.h). From a profile of the worker's device with microbatches of that many samples the two
// are equal to the byte, as far as a device takes nothing else from its pool, which the CPU does not; with a number
// of samples between two profiled ones they are equal where what a layer leaves grows linearly with it. On the CPU it
// does, but for what it rounds up to 64 bytes inside of a block, which shows where the time steps of a sample are no
// multiple of 16: some hundred bytes of a worker.
//
// Plain functions without I/O.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compute/layer.h"
#include "job/run/stage_options.h"
#include "penstock/v1/profile.pb.h"

namespace penstock {

// Bytes of one worker's device, of all its stages together.
struct WorkerMemory {
  int64_t weights = 0;            // one version of each stage, with its mirror in bf16
  int64_t stashed_weights = 0;    // older versions that are still to be read
  int64_t predicted_weights = 0;  // predicted or corrected ones
  int64_t gradients = 0;
  int64_t optimizer = 0;    // its state, and what updates remember
  int64_t activations = 0;  // of the microbatches in flight, of messages and reductions, at most

  // What is there before the first microbatch.
  int64_t held() const { return weights + predicted_weights + gradients + optimizer; }
  int64_t total() const { return held() + stashed_weights + activations; }
};

// Of the worker that needs most; 0 of none.
int64_t MostBytes(absl::Span<const WorkerMemory> workers);

// `needs`: by layer of the chain; those of other workers' layers are not read. `own_memory`: whether the
// worker's device has memory apart from the host's.
// Errors: those of BuildSchedule.
absl::StatusOr<WorkerMemory> PredictWorkerMemory(const RunLayout& run, WorkerId worker,
                                                 absl::Span<const TapeNeeds> needs,
                                                 bool own_memory);

// By worker, all of whose devices are like that of `profile`. `layers`: by stage of the topology of `schedule`,
// all replicas and ways back included (LayersOfStages).
// Errors: InvalidArgument (the profile is of another model or precision, or has no microbatches of this size);
// FailedPrecondition (the schedule does not verify).
absl::StatusOr<std::vector<WorkerMemory>> PredictRunMemory(
    const ResolvedJob& job, const ScheduleOptions& schedule, absl::Span<const LayerRange> layers,
    int64_t first_step, absl::Span<const Cut> cuts, const v1::ModelProfile& profile,
    bool own_memory);

// The layers of every stage of `topology`, if each part of the model has these.
std::vector<LayerRange> LayersOfStages(const Topology& topology,
                                       absl::Span<const LayerRange> parts);

}  // namespace penstock
