// Sizes of the messages that the workers of a run send each other.
//
// Plain functions.
#pragma once

#include <cstdint>

#include "job/resolve.h"
#include "model/chain.h"

namespace penstock {

// Bytes of a tensor at a stage boundary: activation, gradient or kept stage input.
int64_t BoundaryBytes(const ResolvedJob& job);

// Floats of a message with a sum of `gradients` gradients; the last part's go with the step's losses so
// far.
int64_t SumFloats(int64_t gradients, bool with_loss);

// Which part of `count` gradients replica `rank` of `replicas` adds up: whole vector registers, as equal as can
// be. The largest part, in bytes.
struct ReplicaChunk {
  int64_t first = 0;
  int64_t count = 0;
};
ReplicaChunk ReplicaChunkOf(int64_t count, int64_t replicas, int64_t rank);
int64_t ReplicaChunkBytes(int64_t count, int64_t replicas);

// The gradient of the tied weight, which is also its size; 0 if the head is untied.
int64_t TiedBytes(const Chain& chain);

// Floats of the weights and of the gradients of a stage with these layers (compute/parameter_arena.h).
int64_t WeightsOfLayers(const Chain& chain, LayerRange layers);
int64_t GradientsOfLayers(const Chain& chain, LayerRange layers);

}  // namespace penstock
