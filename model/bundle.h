// Bundle: what crosses a cut between two layers, as one flat tensor.
//
// Forward, these are the values that nodes before the cut made and nodes behind it read; backward, the gradients of
// those that need one. A value that passes through a stage is in its input's bundle and in its output's. Ports are in
// none: who needs them reads them from data. The planner counts the same bytes (a tensor crosses every cut up to its
// last reader), so what is planned is what is sent.
//
// Where everything before a cut is frozen, no gradient crosses it. Schedules have a message there all the same, since what
// is frozen is the job's affair and not theirs; it is one element, a signal, whose value nobody reads.
//
// Plain values.
#pragma once

#include <cstdint>
#include <vector>

#include "model/graph.h"

namespace penstock {

struct Bundle {
  struct Part {
    int value = 0;
    int64_t offset = 0;  // elements
    friend bool operator==(const Part&, const Part&) = default;
  };
  std::vector<Part> parts;  // in the order of the values
  int64_t elements = 0;     // of all, with padding between them

  bool empty() const { return parts.empty(); }
  bool is_signal() const { return parts.empty() && elements > 0; }
  friend bool operator==(const Bundle&, const Bundle&) = default;
};

// Before layer `layer`, for `samples` samples: empty at both ends of the model. Gradients between them are a signal at least.
Bundle ActivationsAt(const ModelGraph& model, int layer, int64_t samples);
Bundle GradientsAt(const ModelGraph& model, int layer, int64_t samples);

}  // namespace penstock
