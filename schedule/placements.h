// Placements: which worker holds which stage, and a builder of the topology for each.
//
// To add one: a value of Placement, its row in placements.cc, and its builder.
//
// Plain functions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "schedule/topology.h"

namespace penstock {

enum class Placement : uint8_t {
  kStraight,   // one stage on each worker
  kLooped,     // the same number, two or more, on each: stage s on worker s mod W
  kV,          // two on each: down the workers and back up
  kReplicas,   // several pipelines, replicas of the model; stage d of each on worker d
  kRoundTrip,  // there and back, round the workers (RoundTripPipelines)
  kListed,     // as a schedule file says
};

// The fewest stages that a worker holds: 1 or 2.
int32_t StagesPerWorkerMin(Placement placement);
// REQUIRES: it is not kListed.
WorkerId WorkerAt(Placement placement, int32_t stage, int32_t workers);
// Checks that `stages` stages in a pipeline can be placed so; there and back these are the parts of the
// model that are passed in each direction, and only there do the microbatches of a step and `stages_per_forward` matter.
// REQUIRES: it is not kListed. Errors: InvalidArgument, with the numbers that would do.
absl::Status CheckPlacement(Placement placement, int32_t stages, int32_t workers,
                            int64_t microbatches_per_step, int32_t stages_per_forward = 1);
// The topology of `placement`. Its only groups are those of kReplicas, whose members average their
// weights (it has as many replicas as workers if `replicas` does not say), and those of kRoundTrip,
// which copy them. REQUIRES: it is not kListed. Errors: those of CheckPlacement; InvalidArgument
// (no replica).
absl::StatusOr<Topology> Place(Placement placement, int32_t stages, int32_t workers,
                               int64_t microbatches_per_step,
                               std::optional<int32_t> replicas = std::nullopt,
                               int32_t stages_per_forward = 1);

// Without groups. One stage on each worker: the plain pipeline.
Topology StraightPipeline(int32_t stages);
// Stage s on worker s mod workers. REQUIRES: stages is a multiple of workers.
Topology LoopedPipeline(int32_t stages, int32_t workers);
// Two stages on each worker, down the workers and back up: the first and the last stage share one.
Topology VPipeline(int32_t workers);
// Stage s on worker worker_of[s], wherever that is. REQUIRES: `worker_of` is not empty.
Topology PipelineOn(std::vector<WorkerId> worker_of);
// `pipelines` plain pipelines through the same `depth` workers. Where there are two or more, the
// replicas of each stage are a group whose weights are averaged, the groups in the order of the
// stages.
Topology ReplicatedPipelines(int32_t depth, int32_t pipelines);
// One pipeline with replicas[p] stages at place p, each on a worker of its own, the replicas of a
// place beside each other; those of each place with two or more are a group whose gradients are
// combined by `operation`, in the order of the places. With one replica everywhere the plain
// pipeline. REQUIRES: `replicas` is not empty, all are 1 or more, and they start over together
// within kCycleMax microbatches.
Topology ReplicatedStages(absl::Span<const int32_t> replicas, ReduceGroup::Operation operation);
// The same with as many replicas of each of `stages` stages, of which a worker has several: what `placement` puts
// on worker w of the `workers` of one pipeline is on worker w replicas + i in pipeline i. REQUIRES:
// CheckPlacement is OK for one of them, and replicas is 1 or more.
Topology PipelinesBesideEachOther(Placement placement, int32_t stages, int32_t workers,
                                  int32_t replicas, ReduceGroup::Operation operation);
// Pipelines that go there and back through `parts` parts of a model on `workers` workers: with S slots for a microbatch
// (SlotsOfRoundTrip), slot i of round r of a step is on worker (r S + i) mod
// workers. A round has as many microbatches as there are workers, or all of a step that has fewer.
// There are as many pipelines as rounds differ in their places.
// REQUIRES: CheckPlacement is OK.
Topology RoundTripPipelines(int32_t parts, int32_t workers, int64_t step,
                            int32_t stages_per_forward = 1);
// Forwards pass `stages_per_forward` parts in a slot, the last of these slots fewer where that does not divide parts - 1; the
// last part, and every backward, has a slot by itself.
int32_t SlotsOfRoundTrip(int32_t parts, int32_t stages_per_forward);
// The same with streamed weights (schedule/streamed_weights.h), and so without groups. REQUIRES: `round_trip` is such a
// topology. `in_file`: the workers that update the parts keep them in files. Errors: InvalidArgument (fewer parts than
// workers).
absl::StatusOr<Topology> StreamWeights(const Topology& round_trip, bool in_file = false);
// Its rounds, and the number of its pipelines.
Topology::Rounds RoundsOf(int32_t workers, int64_t step);
int32_t RoundTripsOf(int32_t slots, int32_t workers, int64_t step);

}  // namespace penstock
