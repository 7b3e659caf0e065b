// Predicts how much memory each worker of a run will need at its peak, before anything runs.
//
// One rule serves a worker, which knows from its device what the passes of each layer leave behind, and a planner,
// which knows it from a profile (job/profile/model_profile.h). It takes a stage's arrays (compute/array_bytes.h), the
// verified number of weight versions, and its program walked with the bytes that each action takes and gives back
// (planner/cost/memory_plan.h), and the scratch memory of its passes. From a profile of the worker's device with
// microbatches of that many samples the two are equal to the byte, as far as a device takes nothing else from its pool,
// which the CPU does not. With a number of samples between two profiled ones they are equal where what a layer leaves,
// and its scratch memory, grow linearly with it. On the CPU the first does, except for what it rounds up to 64 bytes
// inside a block, which shows where the time steps of a sample are no multiple of 16: some hundred bytes of a worker.
//
// Plain functions without I/O.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compute/op_kernels.h"
#include "job/run/stage_options.h"
#include "penstock/v1/profile.pb.h"

namespace penstock {

// Counts the bytes of one worker's device, of all its stages together.
struct WorkerMemory {
  int64_t weights = 0;            // one version of each stage, with its mirror in bf16
  int64_t stashed_weights = 0;    // older versions that are still to be read
  int64_t predicted_weights = 0;  // predicted or corrected ones
  int64_t gradients = 0;
  int64_t optimizer = 0;    // its state, and what updates remember
  int64_t activations = 0;  // of the microbatches in flight, of messages and reductions, at most
  // Of nodes: statistics of batch norms, carried state; and of messages that are compressed: their numbers.
  int64_t buffers = 0;
  int64_t scratch = 0;  // of passes while they run; 0 where a worker counts what it has
  int64_t in_file =
      0;  // beside its memory: weights, state and sums of gradients in the worker's file

  // Returns what is there before the first microbatch.
  int64_t held() const {
    return weights + predicted_weights + gradients + optimizer + buffers + scratch;
  }
  int64_t total() const { return held() + stashed_weights + activations; }
};

// Returns the bytes of the worker that needs most, or 0 if there is none.
int64_t MostBytes(absl::Span<const WorkerMemory> workers);

// `needs` is by layer of the model; those of other workers' layers are not read. `own_memory` is true if the worker's
// device has memory apart from the host's.
// Errors: those of BuildSchedule.
absl::StatusOr<WorkerMemory> PredictWorkerMemory(const RunLayout& run, WorkerId worker,
                                                 absl::Span<const TapeNeeds> needs,
                                                 bool own_memory);

// Returns what an update of `layers` takes where weights and state live in files: all that they have, gradients included.
int64_t UpdateBytesOf(const ResolvedJob& job, LayerRange layers);

// Returns OK if the `needed` bytes are no more than a worker has; else ResourceExhausted naming the worker, or the layer where one
// of `ranges`, which the worker updates, is too large by itself. `more`: what else to say where no single layer is.
absl::Status CheckFits(const ResolvedJob& job, absl::Span<const LayerRange> ranges, int64_t needed,
                       absl::string_view name, double has, absl::string_view more = "");

// Predicts by worker, all of whose devices are like that of `profile`. `layers` is by stage of the topology of
// `schedule`, all replicas and ways back included (LayersOfStages).
// Errors: InvalidArgument (the profile is of another model or precision, or has no microbatches of this size);
// FailedPrecondition (the schedule does not verify).
absl::StatusOr<std::vector<WorkerMemory>> PredictRunMemory(
    const ResolvedJob& job, const ScheduleOptions& schedule, absl::Span<const LayerRange> layers,
    int64_t first_step, absl::Span<const Cut> cuts, const v1::ModelProfile& profile,
    bool own_memory);

// Returns the layers of every stage of `topology`, if each part of the model has these.
std::vector<LayerRange> LayersOfStages(const Topology& topology,
                                       absl::Span<const LayerRange> parts);

}  // namespace penstock
