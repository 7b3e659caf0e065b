// MemoryTransport: the edges between workers that are threads of one process.
//
// A network belongs to one run: it knows who holds which stage and owns one mailbox per edge; each
// worker has a transport on it. A received tensor is a copy in the receiver's pool, as it would be
// over a network, so the same tests hold for both.
//
// Thread safety: as worker/transport.h; a network may be used by all its workers' threads.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "worker/transport.h"

namespace penstock {

class MemoryNetwork {
 public:
  // `worker_names` by worker index, for messages; `worker_of_stage` by stage.
  MemoryNetwork(std::vector<std::string> worker_names, std::vector<int> worker_of_stage);
  ~MemoryNetwork();
  MemoryNetwork(const MemoryNetwork&) = delete;
  MemoryNetwork& operator=(const MemoryNetwork&) = delete;

  // REQUIRES: the network outlives the transport; at most one at a time per worker.
  std::unique_ptr<Transport> MakeTransport(int worker);

  // Shows the others a worker whose process died: all its edges answer Unavailable with its name.
  void Disconnect(int worker);

 private:
  friend class MemoryTransport;
  struct Edge;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace penstock
