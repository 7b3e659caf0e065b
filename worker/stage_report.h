// StageReport: what a stage measured, as the message that users see.
//
// Plain function; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/v1/cluster.pb.h"
#include "worker/local_stage.h"
#include "worker/stage_edges.h"

namespace penstock {

// The measures that the stages of one worker share.
struct WorkerMeasures {
  std::string worker;
  int64_t window_ns = 0;  // training, cuts and validation left out
  int64_t checkpoint_wait_ns =
      0;  // at cuts: copying what is saved, and waiting for what was saved before
  int64_t memory_bytes = 0;  // in use now
  int64_t peak_memory_bytes = 0;
  int64_t scratch_bytes = 0;           // in both of them
  int64_t predicted_memory_bytes = 0;  // what the peak must be
  int64_t allocations_steady = 0;
  int64_t collective_bytes_sent = 0;  // counted with the worker's first stage
  int64_t collective_messages_sent = 0;
  std::vector<EdgePath> collective_paths;
  Order order = Order::kStatic;
  double product_rate = 0;  // of the device, in FLOP/s (product_rate.h); 0: not measured
  const Topology& topology;
  const StageEdges& edges;
};

// Busy is the time in F, I, W and UPDATE. The rest of the window is idle: its causes, and what remains of
// it (handing over, exchanging, the executor's own work), the overhead.
v1::StageReport MakeStageReport(const LocalStage& local, const WorkerMeasures& worker,
                                bool first_of_worker);

}  // namespace penstock
