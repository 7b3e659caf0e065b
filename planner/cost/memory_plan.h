// Predicts the most memory that a worker's device will need: it walks the worker's program with the bytes that each
// action takes and gives back (compute/activation_bytes.h), and takes the verified number of weight versions.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "compute/activation_bytes.h"
#include "schedule/program.h"

namespace penstock {

struct StageBytes {
  ActivationBytes activations;
  int64_t tied_gradient = 0;  // what a REDUCE takes for its time
  // There and back, these are the part of the model, and the bytes of the message with a sum of gradients, of the one
  // with weights that the stage gets, and of the one that it sends.
  int32_t part = 0;
  int64_t sum = 0;
  int64_t copied_weights = 0;
  int64_t sent_weights = 0;
  // The REDUCE of a stage with replicas takes the first for its time, which starts at its BEGIN_REDUCE if there is one,
  // and leaves the second under way.
  int64_t reduced_gradients = 0;
  int64_t sent_gradients = 0;
};

// Returns the most bytes of activations and messages over a range. `stages` is by stage of the pipeline; entries of other
// workers' stages are not read. A received tensor counts from its RECV on and a sent one until its SEND: what waits in
// mailboxes depends on timing, and lies with the host where that has memory of its own. Sums and weights, which may be
// large, count for as long as they can wait: a sum until the next one of its part, which continues it, comes here, or
// until the weights that it led to have come; weights, and gradients that replicas have combined, until the next ones,
// since another worker may be a whole step behind in taking them.
int64_t PeakActivationBytes(const Program& program, const std::vector<StageBytes>& stages);

}  // namespace penstock
