// What a minibatch takes and sends if a profiled model trains on several workers alike, by data parallelism, model
// parallelism, GPipe or PipeDream.
//
// The unit is PipeDream's: a minibatch of the size that was profiled goes through the model on one worker or one pipeline, so
// that m workers of data parallelism take m minibatches in a step. Each worker has a network card of the same speed
// both ways (schedule/network_cards.h); computing goes on while it carries messages.
//
// Pipelines, and data parallelism as this runtime does it, which adds gradients up after the backward, are schedules of
// the catalog in simulated time. The data parallelism that papers compare with overlaps the two; no schedule
// here can, so its step is played by itself (OverlappedDataParallelism).
//
// Pure functions.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "planner/graph/layer_graph.h"
#include "planner/graph/stage_plan.h"

namespace penstock {

// Of one minibatch, once the pipeline is full.
struct MinibatchCost {
  double seconds = 0;
  double bytes = 0;  // that all workers together send
};

// A method of the catalog on the stages of a plan. A method that drains does so, and updates, at the end of every step; another
// one goes on, and updates after each minibatch or round of replicas.
struct PipelineRun {
  absl::string_view method;               // "gpipe", "pipedream"
  absl::Span<const PlannedStage> stages;  // of the graph, in order; not empty
  int64_t minibatches_per_step = 1;       // taken up to a multiple of the numbers of replicas
  double bytes_per_second = 0;            // of a worker's card
};

// Errors: those of FindMethod, PlaceReplicas, BuildSchedule and Simulate.
absl::StatusOr<MinibatchCost> SimulatePipeline(const LayerGraph& graph, const PipelineRun& run);

// The whole model as one stage with a replica on each worker, for SimulatePipeline.
PlannedStage ReplicatedModel(const LayerGraph& graph, int workers);

// Data parallelism with wait-free backpropagation (Zhang et al., "Poseidon", USENIX ATC 2017), as PipeDream's papers
// compare with: the gradients of a layer go into an all-reduce as soon as its backward is done and those of layers
// behind it have gone, while the backward goes on. A step ends when both have ended. An all-reduce of P bytes among m
// workers takes 2 (m-1)/m P of each card, either way, the least that it can.
// REQUIRES: CheckLayerGraph(graph) is OK; workers > 0; bytes_per_second > 0.
MinibatchCost OverlappedDataParallelism(const LayerGraph& graph, int workers,
                                        double bytes_per_second);

// The graph with another number of samples in a minibatch, `factor` times those that were profiled: times and activations
// grow with it, parameters do not.
LayerGraph WithMinibatch(LayerGraph graph, double factor);

}  // namespace penstock
