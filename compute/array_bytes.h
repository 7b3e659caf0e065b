// ArrayBytes: what the arrays of a stage take that it holds from its first pass to its last. Weights that it borrows, weights
// and state that it stores elsewhere, and gradients that it drops, are none of them.
//
// Follows what Stage::Create and the steps acquire, block for block, so that a stage's memory can be told without
// a device (planner/cost/run_memory.h). For activations see compute/activation_bytes.h.
//
// Plain functions.
#pragma once

#include <cstdint>

#include "compute/stage.h"
#include "model/graph.h"

namespace penstock {

struct ArrayBytes {
  int64_t version = 0;  // weights of one version, with their mirror in bf16
  int64_t frozen = 0;   // of those that all versions share, likewise
  int64_t gradients = 0;
  int64_t optimizer =
      0;  // its state, the history's (update_history.h), and the average of the weights
  int64_t predicted = 0;  // predicted weights, and the average's mirror in bf16
  int64_t buffers = 0;    // of nodes (model/op.h), and what evaluation carries

  int64_t held() const { return version + frozen + gradients + optimizer + predicted + buffers; }
};

// The floats that a buffer of a node takes of a stage's array of buffers.
inline int64_t FloatsOf(const BufferSpec& buffer) {
  constexpr int64_t kAlignmentFloats = 16;
  return (buffer.size() + kAlignmentFloats - 1) / kAlignmentFloats * kAlignmentFloats;
}

ArrayBytes ArrayBytesOf(const ModelGraph& model, const StageOptions& options);

// What a stage that stores its weights and state elsewhere takes of a file, and what an update brings in of it.
struct StoredBytes {
  int64_t in_file = 0;
  int64_t updated = 0;
};
StoredBytes StoredBytesOf(const ModelGraph& model, StageOptions options);

// Weight versions on the device at once if `versions` are live. `own_memory`: whether the device's memory is
// apart from the host's, so that what waits on the host is not on it.
int64_t DeviceVersionsOf(StashPlace stash, bool own_memory, int64_t versions);

}  // namespace penstock
