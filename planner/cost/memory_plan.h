// The most memory a worker's device will need, told before it runs: its program walked with the bytes that
// each action takes and gives back (compute/activation_bytes.h), and the verified number of weight versions.
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
  // There and back: the part of the model, the bytes of the message with a sum of gradients, of
  // that with weights which the stage gets, and of that which it sends.
  int32_t part = 0;
  int64_t sum = 0;
  int64_t copied_weights = 0;
  int64_t sent_weights = 0;
  // Of a stage with replicas: what its REDUCE takes for its time, and what it leaves under way.
  int64_t reduced_gradients = 0;
  int64_t sent_gradients = 0;
};

// Of activations and messages, at most, over a range. `stages`: by stage of the chain; of those of other
// workers the entries are not read. A received tensor counts from its RECV on and a sent one until its SEND:
// what waits in mailboxes depends on timing, and lies with the host where that has memory of its
// own. Sums and weights, which may be large, count for as long as they can wait: a sum until the
// next one of its part comes here, which went on from it, or until the weights that it led to have
// come; weights, and gradients that replicas have combined, until the next ones, since another worker may be a
// whole step behind in taking them.
int64_t PeakActivationBytes(const Program& program, const std::vector<StageBytes>& stages);

}  // namespace penstock
