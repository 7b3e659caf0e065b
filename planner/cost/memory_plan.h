// Predicts the most memory that a worker's device will need: it walks the worker's program with the bytes that each
// action takes and gives back (compute/activation_bytes.h), and takes the verified number of weight versions.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "compute/activation_bytes.h"
#include "schedule/program.h"
#include "schedule/topology.h"

namespace penstock {

struct StageBytes {
  ActivationBytes activations;
  int64_t tied_gradient = 0;  // what a REDUCE takes for its time
  // Of compressed messages, which are there beside their tensors while one is made of the other; 0: there are none.
  int64_t input_message = 0, output_message = 0, grad_input_message = 0, grad_output_message = 0;
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
  // Where weights are streamed: those that the stage gets, and their mirror in bf16 (also of stages of other workers, which
  // get them from here), and the gradients, which are there only while there are any.
  int64_t streamed_weights = 0;
  int64_t streamed_mirror = 0;
  int64_t gradients = 0;
  // Where they live in files: what an UPDATE brings in, weights, their mirror, and the optimizer's state.
  bool in_file = false;
  int64_t updated = 0;
};

// Returns the most bytes of activations and messages over a range. `stages` is by stage of the pipeline; entries of other
// workers' stages are not read. A received tensor counts from its RECV on and a sent one until its SEND: what waits in
// mailboxes depends on timing, and lies with the host where that has memory of its own. Sums and weights, which may be
// large, count for as long as they can wait: a sum until the next one of its part, which continues it, comes here, or
// until the weights that it led to have come; weights, and gradients that replicas have combined, until the next ones,
// since another worker may be a whole step behind in taking them.
int64_t PeakActivationBytes(const Program& program, const std::vector<StageBytes>& stages);

// The same where `topology` streams weights. Borrowed weights count from SEND_Q until DROP, which covers the time in which
// they wait in a mailbox, and weights from a file from LOAD until DROP, or from RECV_Q on; gradients from the first W, or RECV_W, until SEND_W or UPDATE,
// with a file no longer than DROP unless an UPDATE comes. A sum that comes counts from the time on that
// schedule/streamed_weights.h gives. A message with weights or a sum counts at its sender until the worker passes a slot
// that comes after the one it was for: by then that has begun.
int64_t PeakStreamedBytes(const Program& program, const std::vector<StageBytes>& stages,
                          const Topology& topology);

}  // namespace penstock
