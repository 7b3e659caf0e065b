// Sizes of the messages that the workers of a run send each other.
//
// Plain functions.
#pragma once

#include <cstdint>
#include <vector>

#include "compute/gradient_buckets.h"
#include "job/resolve.h"
#include "model/graph.h"

namespace penstock {

// Bytes of a microbatch's tensors between layers `layer` - 1 and `layer`: of activations, which a kept stage input has,
// too, and of gradients. 0 at the ends of the model.
int64_t ActivationBytesAt(const ResolvedJob& job, int layer);
int64_t GradientBytesAt(const ResolvedJob& job, int layer);
// Bytes of the messages that carry them from worker to worker while the job trains: fewer where they are compressed.
int64_t ActivationMessageBytesAt(const ResolvedJob& job, int layer);
int64_t GradientMessageBytesAt(const ResolvedJob& job, int layer);

// Floats of a message with a sum of `gradients` gradients; the last part's go with the step's losses so
// far. At least one, also of a part without parameters, because no message is empty.
int64_t SumFloats(int64_t gradients, bool with_loss);

// Which part of `count` gradients replica `rank` of `replicas` adds up: whole vector registers, as equal as can
// be. The largest part, in bytes.
struct ReplicaChunk {
  int64_t first = 0;
  int64_t count = 0;
};
ReplicaChunk ReplicaChunkOf(int64_t count, int64_t replicas, int64_t rank);
int64_t ReplicaChunkBytes(int64_t count, int64_t replicas);

// Floats of a stage's request for its weights, and of the message with these; at least one, because no message is empty.
inline constexpr int64_t kRequestFloats = 1;
int64_t StreamedFloats(const ModelGraph& model, LayerRange layers);

// Floats of the weights and of the gradients of a stage with these layers (compute/parameter_arena.h).
int64_t WeightsOfLayers(const ModelGraph& model, LayerRange layers);
int64_t GradientsOfLayers(const ModelGraph& model, LayerRange layers);
// How the gradients of a stage with replicas travel (compute/gradient_buckets.h).
std::vector<GradientBucket> GradientBucketsOfLayers(const ModelGraph& model, LayerRange layers);

}  // namespace penstock
