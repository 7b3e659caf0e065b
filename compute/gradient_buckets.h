// GradientBuckets: which gradients of a stage travel together when its replicas add theirs up.
//
// The backward of the weights goes from the last layer to the first, so the gradients of the last layers are whole while
// the pass still works on the others. A bucket is a run of the stage's gradient array, layer by layer, that holds enough
// bytes to be worth its messages.
//
// Plain functions.
#pragma once

#include <cstdint>
#include <vector>

#include "compute/parameter_arena.h"
#include "model/graph.h"

namespace penstock {

// A bucket is closed when it has as much, or this part of all gradients of the stage: less would be spent on what each
// message takes, and more leaves a longer wait after the pass.
inline constexpr int64_t kBucketBytesMin = 256 << 10;
inline constexpr int64_t kBucketsMax = 16;

struct GradientBucket {
  int64_t first = 0;  // floats
  int64_t count = 0;
  // It is whole once W of this layer of the stage, and of those behind it, has come.
  int layer = 0;
};

// In the order in which they are whole; together they are all of the array. At least one, which is empty where there are
// no gradients. REQUIRES: `arena` is that of `layers`.
std::vector<GradientBucket> GradientBucketsOf(const ParameterArena& arena, LayerRange layers,
                                              int64_t bytes_min = kBucketBytesMin);

}  // namespace penstock
