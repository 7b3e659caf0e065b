// BufferLayout: where the buffers of a stage's nodes (model/op.h) are in one flat array: statistics first, then, of what
// is carried, a row for each sample of a step.
//
// Plain values and functions.
#pragma once

#include <cstdint>
#include <vector>

#include "model/graph.h"

namespace penstock {

// In floats.
struct BufferLayout {
  int64_t statistics = 0;
  int64_t count = 0;                          // in all
  std::vector<std::vector<int64_t>> offsets;  // by node of the stage and buffer; -1: it is not kept

  int64_t carried() const { return count - statistics; }
};

// `step_samples`: see StageOptions.
BufferLayout LayOutBuffers(const ModelGraph& model, LayerRange layers, int64_t step_samples);

// What is carried is kept if there are steps.
inline bool IsKept(const BufferSpec& buffer, int64_t step_samples) {
  return buffer.kind == BufferSpec::Kind::kStatistic || step_samples > 0;
}

}  // namespace penstock
