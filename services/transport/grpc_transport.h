// GrpcTransport: worker/transport.h over gRPC, for one run. Made by TensorHub::Join.
//
// Thread safety: as worker/transport.h; one thread opens edges.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "services/transport/inbound_edge.h"
#include "services/transport/sending_stream.h"
#include "services/transport/tensor_hub.h"
#include "worker/transport.h"

namespace penstock {

class GrpcTransport final : public Transport {
 public:
  GrpcTransport(TensorHub& hub, RunPeers peers);
  // Sent messages still arrive; those that were not received are dropped.
  ~GrpcTransport() override;

  absl::StatusOr<std::unique_ptr<Sender>> OpenSender(const EdgeId& edge, int capacity,
                                                     int64_t tensor_bytes_max) override;
  absl::StatusOr<std::unique_ptr<Receiver>> OpenReceiver(const EdgeId& edge, int capacity,
                                                         int64_t tensor_bytes_max,
                                                         BufferPool& pool) override;
  void UseShare(DeviceShare* share) override;
  void Cancel(const absl::Status& reason) override ABSL_LOCKS_EXCLUDED(mutex_);

  // Returns the traffic over each open edge so far. Any thread.
  std::vector<LinkTraffic> Traffic() const ABSL_LOCKS_EXCLUDED(mutex_);

  // ---- For the hub.
  uint64_t job() const { return job_; }
  int64_t epoch() const { return peers_.epoch; }
  // Errors: FailedPrecondition if the edge is none of this run's or ends at another worker.
  absl::Status CheckEndsHere(const EdgeId& edge) const;
  // Null if it is not open.
  std::shared_ptr<InboundEdge> FindInbound(const EdgeId& edge) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // The worker that holds a stage, or a worker by its index on a collective edge; -1 if none.
  int WorkerAt(EdgeKind kind, int32_t end) const;
  // Errors: as Transport, for either end.
  absl::Status CheckOpen(const EdgeId& edge, bool sending, int capacity,
                         int64_t tensor_bytes_max) const;
  StreamKey KeyOf(const EdgeId& edge) const { return {job_, peers_.epoch, edge}; }
  Hello HelloOf(const EdgeId& edge) const;
  void End(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mutex_);

  TensorHub& hub_;
  const RunPeers peers_;
  const uint64_t job_;
  // Used by the thread that opens edges.
  DeviceShare* share_ = nullptr;
  std::shared_ptr<Exporter> exporter_;

  mutable Mutex mutex_;
  absl::Status cancelled_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::pair<EdgeId, std::shared_ptr<SendingStream>>> outbound_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<InboundEdge>> inbound_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace penstock
