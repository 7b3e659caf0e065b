// StageEdges: a worker's ends of the edges between stages.
//
// Thread safety: the executor's thread; the senders' counters may be read by any.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "schedule/topology.h"
#include "worker/transport.h"

namespace penstock {

// By number of the edge (Topology::edges); null if it does not end here, or joins stages of one
// worker.
struct StageEdges {
  std::vector<std::unique_ptr<Receiver>> receivers;
  std::vector<std::unique_ptr<Sender>> senders;

  // Calls `visit(edge, sender)` for each that `stage` sends over.
  template <typename Visit>
  void ForEachSender(const Topology& topology, StageId stage, const Visit& visit) const {
    for (const int32_t number : topology.outgoing) {
      const Edge& edge = topology.edges[number];
      if (edge.from == stage && senders[number] != nullptr) visit(edge, *senders[number]);
    }
  }
};

}  // namespace penstock
