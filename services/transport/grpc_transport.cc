#include "services/transport/grpc_transport.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace penstock {
namespace {

absl::Status AtEdge(const EdgeId& edge, const absl::Status& status) {
  return Annotate(status, absl::StrCat("edge ", edge.ToString()));
}

class EdgeSender final : public Sender {
 public:
  EdgeSender(const EdgeId& edge, int64_t tensor_bytes_max, std::shared_ptr<SendingStream> stream)
      : edge_(edge), tensor_bytes_max_(tensor_bytes_max), stream_(std::move(stream)) {}

  absl::Status Reserve(int64_t sequence, const Tensor& tensor, absl::Time deadline) override {
    PENSTOCK_RETURN_IF_ERROR(CheckMessageSize(edge_, sequence, tensor, tensor_bytes_max_));
    return AtEdge(edge_, stream_->edge().Reserve(sequence, deadline));
  }
  absl::Status Put(int64_t sequence, const Tensor& tensor) override {
    return AtEdge(edge_, stream_->Put({sequence, tensor, {}}));
  }
  absl::StatusOr<ShareBytes> Describe(const Tensor& tensor) override {
    absl::StatusOr<ShareBytes> descriptor = stream_->options().exporter->Describe(tensor);
    if (!descriptor.ok()) return AtEdge(edge_, descriptor.status());
    return descriptor;
  }
  absl::Status Export(int64_t sequence, const Tensor& tensor,
                      const ShareBytes& descriptor) override {
    return AtEdge(edge_, stream_->Put({sequence, tensor, descriptor}));
  }
  bool exports() const override { return stream_->edge().exports(); }
  std::string path() const override { return stream_->edge().path(); }
  bool Ready() const override { return stream_->edge().Ready(); }
  int64_t bytes_sent() const override { return stream_->edge().bytes_sent(); }
  int64_t messages_sent() const override { return stream_->edge().messages_sent(); }

 private:
  const EdgeId edge_;
  const int64_t tensor_bytes_max_;
  const std::shared_ptr<SendingStream> stream_;  // shared with the hub, which may outlive this
};

class EdgeReceiver final : public Receiver {
 public:
  explicit EdgeReceiver(std::shared_ptr<InboundEdge> edge) : edge_(std::move(edge)) {}
  ~EdgeReceiver() override {
    edge_->mailbox().SetDoorbell(nullptr);
    edge_->StopImporting();
  }

  absl::StatusOr<Arrival> Take(const TensorExpectation& expected, absl::Time deadline) override {
    const EdgeId& id = edge_->options().key.edge;
    absl::StatusOr<Message> message = edge_->Pop(deadline);
    if (!message.ok()) return AtEdge(id, message.status());
    Tensor& tensor = message->tensor;
    PENSTOCK_RETURN_IF_ERROR(
        CheckExpectation(id, expected, {message->sequence, tensor.dtype, tensor.shape}));
    return Arrival{message->sequence, std::move(tensor), message->exported};
  }
  absl::StatusOr<Importer::Fetched> Fetch(const Arrival& exported) override {
    absl::StatusOr<Importer::Fetched> fetched = edge_->Fetch(exported);
    if (fetched.ok()) return fetched;
    return AtEdge(edge_->options().key.edge,
                  Annotate(fetched.status(), absl::StrCat("message ", exported.sequence)));
  }
  void Release() override { edge_->Release(); }
  bool Ready() const override { return edge_->mailbox().Ready(); }
  std::optional<Waiting> FirstWaiting() const override { return edge_->mailbox().FirstWaiting(); }
  void RingOnArrival(Doorbell* bell) override { edge_->mailbox().SetDoorbell(bell); }

 private:
  const std::shared_ptr<InboundEdge> edge_;  // shared with its stream
};

}  // namespace

GrpcTransport::GrpcTransport(TensorHub& hub, RunPeers peers)
    : hub_(hub), peers_(std::move(peers)), job_(JobHash(peers_.job_id)) {}

GrpcTransport::~GrpcTransport() {
  End(absl::OkStatus());
  hub_.Leave(*this);
}

int GrpcTransport::WorkerAt(EdgeKind kind, int32_t end) const {
  const size_t ends =
      kind == EdgeKind::kCollective ? peers_.workers.size() : peers_.worker_of_stage.size();
  if (end < 0 || static_cast<size_t>(end) >= ends) return -1;
  return kind == EdgeKind::kCollective ? end : peers_.worker_of_stage[end];
}

absl::Status GrpcTransport::CheckEndsHere(const EdgeId& edge) const {
  if (WorkerAt(edge.kind, edge.destination) == peers_.self &&
      WorkerAt(edge.kind, edge.source) >= 0) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(KeyOf(edge).ToString(), ": not an edge to ",
                                                    peers_.workers[peers_.self].ToString(),
                                                    " in its plan"));
}

absl::Status GrpcTransport::CheckOpen(const EdgeId& edge, bool sending, int capacity,
                                      int64_t tensor_bytes_max) const {
  PENSTOCK_RETURN_IF_ERROR(CheckEdgeLimits(edge, capacity, tensor_bytes_max));
  const int source = WorkerAt(edge.kind, edge.source);
  const int destination = WorkerAt(edge.kind, edge.destination);
  if ((sending ? source : destination) != peers_.self || (sending ? destination : source) < 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("edge ", edge.ToString(), ": worker ", peers_.workers[peers_.self].name,
                     " is not its ", sending ? "source" : "destination"));
  }
  MutexLock lock(mutex_);
  if (!cancelled_.ok()) return AtEdge(edge, cancelled_);
  bool open = false;
  for (const auto& [id, stream] : outbound_) open = open || (sending && id == edge);
  for (const auto& inbound : inbound_) {
    open = open || (!sending && inbound->options().key.edge == edge);
  }
  if (!open) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat("edge ", edge.ToString(), " is open at this end"));
}

Hello GrpcTransport::HelloOf(const EdgeId& edge) const {
  const TensorPeer& source = peers_.workers[WorkerAt(edge.kind, edge.source)];
  const TensorPeer& destination = peers_.workers[WorkerAt(edge.kind, edge.destination)];
  return {source.incarnation, destination.incarnation, source.name, {}};
}

void GrpcTransport::UseShare(DeviceShare* share) {
  share_ = share;
  exporter_ = nullptr;
  if (share == nullptr) return;
  absl::StatusOr<std::shared_ptr<Exporter>> exporter = share->MakeExporter();
  if (exporter.ok()) {
    exporter_ = *std::move(exporter);
  } else {
    hub_.ReportNoExporting(exporter.status());
  }
}

absl::StatusOr<std::unique_ptr<Sender>> GrpcTransport::OpenSender(const EdgeId& edge, int capacity,
                                                                  int64_t tensor_bytes_max) {
  PENSTOCK_RETURN_IF_ERROR(CheckOpen(edge, /*sending=*/true, capacity, tensor_bytes_max));
  const TensorPeer& peer = peers_.workers[WorkerAt(edge.kind, edge.destination)];
  Hello hello = HelloOf(edge);
  if (exporter_ != nullptr) hello.offer = exporter_->offer();
  std::shared_ptr<SendingStream> stream = hub_.Connect({.key = KeyOf(edge),
                                                        .capacity = capacity,
                                                        .tensor_bytes_max = tensor_bytes_max,
                                                        .hello = std::move(hello),
                                                        .peer = peer.ToString(),
                                                        .address = peer.address,
                                                        .exporter = exporter_});
  {
    MutexLock lock(mutex_);
    outbound_.emplace_back(edge, stream);
    if (!cancelled_.ok()) stream->End(cancelled_);
  }
  return std::make_unique<EdgeSender>(edge, tensor_bytes_max, std::move(stream));
}

absl::StatusOr<std::unique_ptr<Receiver>> GrpcTransport::OpenReceiver(const EdgeId& edge,
                                                                      int capacity,
                                                                      int64_t tensor_bytes_max,
                                                                      BufferPool& pool) {
  PENSTOCK_RETURN_IF_ERROR(CheckOpen(edge, /*sending=*/false, capacity, tensor_bytes_max));
  const TensorPeer& peer = peers_.workers[WorkerAt(edge.kind, edge.source)];
  auto inbound =
      std::make_shared<InboundEdge>(InboundEdgeOptions{.key = KeyOf(edge),
                                                       .capacity = capacity,
                                                       .tensor_bytes_max = tensor_bytes_max,
                                                       .hello = HelloOf(edge),
                                                       .peer = peer.ToString()},
                                    pool, share_);
  {
    MutexLock lock(mutex_);
    inbound_.push_back(inbound);
    if (!cancelled_.ok()) inbound->End(cancelled_);
  }
  hub_.Expect(inbound);
  return std::make_unique<EdgeReceiver>(std::move(inbound));
}

std::shared_ptr<InboundEdge> GrpcTransport::FindInbound(const EdgeId& edge) const {
  MutexLock lock(mutex_);
  for (const auto& inbound : inbound_) {
    if (inbound->options().key.edge == edge) return inbound;
  }
  return nullptr;
}

std::vector<LinkTraffic> GrpcTransport::Traffic() const {
  MutexLock lock(mutex_);
  std::vector<LinkTraffic> traffic;
  for (const auto& [edge, stream] : outbound_) {
    const std::string& peer = peers_.workers[WorkerAt(edge.kind, edge.destination)].name;
    const OutboundEdge& outbound = stream->edge();
    const LinkMeter& meter = outbound.meter();
    traffic.push_back({.edge = edge,
                       .peer = peer,
                       .sent = true,
                       .path = outbound.path(),
                       .bytes = outbound.bytes_sent(),
                       .messages = outbound.messages_sent(),
                       .waiting = outbound.messages_waiting(),
                       .wait_ns = meter.wait_ns(),
                       .transfer_ns = meter.transfer_ns(),
                       .round_trip_ns = meter.round_trip_ns(),
                       .redials = meter.redials(),
                       .resent = meter.resent(),
                       .silent_ns = absl::ToInt64Nanoseconds(stream->Silent()),
                       .damaged = meter.damaged()});
  }
  for (const auto& inbound : inbound_) {
    const EdgeId& edge = inbound->options().key.edge;
    const std::string& peer = peers_.workers[WorkerAt(edge.kind, edge.source)].name;
    const LinkMeter& meter = inbound->meter();
    traffic.push_back({.edge = edge,
                       .peer = peer,
                       .sent = false,
                       .path = inbound->path(),
                       .bytes = inbound->bytes_received(),
                       .messages = inbound->messages_received(),
                       .waiting = inbound->mailbox().waiting(),
                       .wait_ns = meter.wait_ns(),
                       .transfer_ns = meter.transfer_ns(),
                       .redials = meter.redials(),
                       .duplicates = meter.duplicates(),
                       .damaged = meter.damaged()});
  }
  return traffic;
}

void GrpcTransport::Cancel(const absl::Status& reason) {
  {
    MutexLock lock(mutex_);
    if (!cancelled_.ok()) return;
    cancelled_ = reason;
  }
  End(reason);
}

void GrpcTransport::End(const absl::Status& reason) {
  MutexLock lock(mutex_);
  for (const auto& [edge, stream] : outbound_) stream->End(reason);
  for (const auto& inbound : inbound_) inbound->End(reason);
}

}  // namespace penstock
