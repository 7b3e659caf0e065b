// EmulatedLinks: a transport whose messages take the time of links that are not there.
//
// A message is held back where it arrives: it counts as there once its link has carried it, after all that came
// before it on the same edge, and its latency is over. Until then it keeps its place in the window, as on a slow
// network, and the receiver sees nothing of it. The sender does not wait for the link, and neither computes
// meanwhile what it would not compute. schedule/simulate.h counts the same.
//
// Messages arrive when the transport below delivers them, so the emulated time starts a little late: by what that
// one takes. Nothing rings for a message that is held back, so a run in recorded order cannot have such links.
//
// Thread safety: as Transport.
#pragma once

#include <memory>
#include <vector>

#include "schedule/simulate.h"
#include "worker/transport.h"

namespace penstock {

class EmulatedLinks : public Transport {
 public:
  // `worker_of`: by stage. REQUIRES: `below` outlives this.
  EmulatedLinks(Transport& below, WorkerLinks links, std::vector<WorkerId> worker_of)
      : below_(below), links_(std::move(links)), worker_of_(std::move(worker_of)) {}

  void UseShare(DeviceShare* share) override { below_.UseShare(share); }
  absl::StatusOr<std::unique_ptr<Sender>> OpenSender(const EdgeId& edge, int capacity,
                                                     int64_t tensor_bytes_max) override {
    return below_.OpenSender(edge, capacity, tensor_bytes_max);
  }
  absl::StatusOr<std::unique_ptr<Receiver>> OpenReceiver(const EdgeId& edge, int capacity,
                                                         int64_t tensor_bytes_max,
                                                         BufferPool& pool) override;
  void Cancel(const absl::Status& reason) override { below_.Cancel(reason); }

 private:
  // That the edge's messages take.
  const LinkSpeed& LinkOf(const EdgeId& edge) const;

  Transport& below_;
  const WorkerLinks links_;
  const std::vector<WorkerId> worker_of_;
};

}  // namespace penstock
