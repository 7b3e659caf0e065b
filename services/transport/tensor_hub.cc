#include "services/transport/tensor_hub.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/seen_epoch.h"
#include "base/status.h"
#include "services/rpc/limits.h"
#include "services/transport/grpc_transport.h"

namespace penstock {
namespace {

absl::Status CheckPeers(const RunPeers& peers) {
  const int workers = static_cast<int>(peers.workers.size());
  const auto is_worker = [&](int worker) { return worker >= 0 && worker < workers; };
  if (peers.epoch < 1 || !is_worker(peers.self) ||
      !std::all_of(peers.worker_of_stage.begin(), peers.worker_of_stage.end(), is_worker)) {
    return absl::InvalidArgumentError(
        absl::StrCat("job ", peers.job_id, ", epoch ", peers.epoch, ": worker ", peers.self, " of ",
                     workers, ": the plan names workers that it does not list"));
  }
  return absl::OkStatus();
}

// Does the stream that said `hello` fit the edge that waits for it?
absl::Status CheckHello(const InboundEdgeOptions& edge, const Hello& hello) {
  if (hello.destination_incarnation != edge.hello.destination_incarnation) {
    return absl::FailedPreconditionError(
        absl::StrCat(edge.key.ToString(), ": ", hello.source_name,
                     " looks for an earlier life of this worker, which has restarted since"));
  }
  if (hello.source_incarnation != edge.hello.source_incarnation ||
      hello.source_name != edge.hello.source_name) {
    return absl::FailedPreconditionError(
        absl::StrCat(edge.key.ToString(), ": expected ", edge.peer, ", incarnation ",
                     edge.hello.source_incarnation, ", got worker ", hello.source_name,
                     ", incarnation ", hello.source_incarnation));
  }
  return absl::OkStatus();
}

absl::Status CheckWindow(const InboundEdgeOptions& edge, const FrameHeader& header) {
  if (header.value == edge.capacity && header.tensor_bytes == edge.tensor_bytes_max) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      edge.key.ToString(), ": the receiver has a window of ", edge.capacity,
      " messages of at most ", edge.tensor_bytes_max, " bytes, the sender of ", header.value,
      " and ", header.tensor_bytes, "; the workers follow different plans"));
}

absl::Status Connect(InboundEdge& edge, const FrameHeader& header, const Hello& hello,
                     const std::shared_ptr<ReceivingStream>& stream) {
  PENSTOCK_RETURN_IF_ERROR(CheckHello(edge.options(), hello));
  const absl::Status window = CheckWindow(edge.options(), header);
  if (!window.ok()) edge.Fail(window);  // it is the right peer, so the run cannot go on
  PENSTOCK_RETURN_IF_ERROR(window);
  return edge.Attach(stream, header.number);
}

}  // namespace

std::string TensorPeer::ToString() const {
  return absl::StrCat("worker ", name, " (", address, ")");
}

TensorHub::TensorHub(Log log, std::shared_ptr<grpc::ChannelCredentials> peers, StreamLimits limits)
    : log_(std::move(log)), peers_(std::move(peers)), limits_(limits) {}

TensorHub::~TensorHub() = default;

void TensorHub::Register(grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(rpc_limits::kTensorMessageBytesMax);
  builder.SetMaxSendMessageSize(rpc_limits::kTensorMessageBytesMax);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, rpc_limits::kTensorFrameBytesMax);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, rpc_limits::kTensorWindowBytes);
  builder.RegisterAsyncGenericService(&service_);
}

void TensorHub::Start(std::vector<grpc::ServerCompletionQueue*> queues) {
  queues_ = std::move(queues);
  for (grpc::ServerCompletionQueue* queue : queues_) OnAccepted(*queue);
}

void TensorHub::Close() {
  {
    MutexLock lock(mutex_);
    closed_ = true;
  }
  streams_.BreakAll();
}

void TensorHub::AwaitEnd() {
  streams_.BreakAll();  // those that came in meanwhile
  streams_.AwaitEmpty();
}

void TensorHub::OnAccepted(grpc::ServerCompletionQueue& queue) {
  {
    MutexLock lock(mutex_);
    if (closed_) return;
  }
  streams_.Add(std::make_shared<ReceivingStream>(service_, static_cast<StreamDirectory&>(*this),
                                                 limits_, queue, streams_));
}

absl::Status TensorHub::OnHello(const FrameHeader& header, const Hello& hello,
                                const std::shared_ptr<ReceivingStream>& stream) {
  absl::Status greeted = Greet(header, hello, stream);
  if (!greeted.ok()) log_.refused(Annotate(greeted, absl::StrCat("stream of ", hello.source_name)));
  return greeted;
}

absl::Status TensorHub::Greet(const FrameHeader& header, const Hello& hello,
                              const std::shared_ptr<ReceivingStream>& stream) {
  MutexLock lock(mutex_);
  PENSTOCK_RETURN_IF_ERROR(CheckEpoch(header.key.job, header.key.epoch));
  for (GrpcTransport* run : runs_) {
    if (run->job() != header.key.job || run->epoch() != header.key.epoch) continue;
    PENSTOCK_RETURN_IF_ERROR(run->CheckEndsHere(header.key.edge));
    if (const std::shared_ptr<InboundEdge> edge = run->FindInbound(header.key.edge)) {
      PENSTOCK_RETURN_IF_ERROR(penstock::Connect(*edge, header, hello, stream));
      stream->Attach(edge);
      return absl::OkStatus();
    }
  }
  if (parked_.size() >= kParkedStreamsMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat(kParkedStreamsMax, " streams wait for runs to open their edges"));
  }
  parked_.push_back({header, hello, stream});
  return absl::OkStatus();
}

void TensorHub::OnLeft(ReceivingStream* stream) {
  MutexLock lock(mutex_);
  std::erase_if(parked_, [&](const ParkedStream& parked) { return parked.stream.get() == stream; });
}

void TensorHub::OnOpen(const InboundEdge& edge, const absl::Status& not_exported) {
  const InboundEdgeOptions& options = edge.options();
  const std::string line =
      absl::StrCat(options.key.edge.ToString(), " from ", options.peer, ": ", edge.path());
  log_.opened(not_exported.ok() ? line : absl::StrCat(line, " (", not_exported.message(), ")"));
}

void TensorHub::OnDisturbed(const InboundEdge& edge, const std::string& what) {
  const InboundEdgeOptions& options = edge.options();
  log_.disturbed(absl::StrCat(options.key.edge.ToString(), " from ", options.peer, ": ", what));
}

void TensorHub::ReportNoExporting(const absl::Status& reason) {
  log_.opened(absl::StrCat("tensors travel in host memory: ", reason.message()));
}

absl::StatusOr<std::unique_ptr<Transport>> TensorHub::Join(RunPeers peers) {
  PENSTOCK_RETURN_IF_ERROR(CheckPeers(peers));
  auto run = std::make_unique<GrpcTransport>(*this, std::move(peers));
  MutexLock lock(mutex_);
  PENSTOCK_RETURN_IF_ERROR(CheckEpoch(run->job(), run->epoch()));
  for (const GrpcTransport* other : runs_) {
    if (other->job() == run->job() && other->epoch() == run->epoch()) {
      return absl::AlreadyExistsError(
          absl::StrCat("epoch ", run->epoch(), " of the job has joined already"));
    }
  }
  SetFirstEpoch(run->job(), run->epoch());
  runs_.push_back(run.get());
  return run;
}

std::vector<LinkTraffic> TensorHub::Traffic(const std::string& job_id) {
  MutexLock lock(mutex_);
  std::vector<LinkTraffic> traffic;
  for (const GrpcTransport* run : runs_) {
    if (run->job() != JobHash(job_id)) continue;
    for (LinkTraffic& link : run->Traffic()) traffic.push_back(std::move(link));
  }
  return traffic;
}

void TensorHub::Leave(GrpcTransport& run) {
  std::vector<ParkedStream> refused;
  {
    MutexLock lock(mutex_);
    const auto left = std::find(runs_.begin(), runs_.end(), &run);
    if (left == runs_.end()) return;
    runs_.erase(left);
    SetFirstEpoch(run.job(), run.epoch() + 1);
    std::erase_if(parked_, [&](const ParkedStream& parked) {
      const StreamKey& key = parked.header.key;
      if (key.job != run.job() || key.epoch > run.epoch()) return false;
      refused.push_back(parked);
      return true;
    });
  }
  for (const ParkedStream& parked : refused) {
    parked.stream->Attach(absl::AbortedError(
        absl::StrCat(parked.header.key.ToString(), ": the run is over on this worker")));
  }
}

std::shared_ptr<SendingStream> TensorHub::Connect(SendingStreamOptions options) {
  grpc::ServerCompletionQueue* queue = nullptr;
  {
    MutexLock lock(mutex_);
    queue = queues_[next_queue_++ % queues_.size()];
  }
  options.on_rejected = [this](const absl::Status& violation) { rejected_.Count(violation); };
  options.on_open = [this, edge = options.key.edge, peer = options.peer](const std::string& path) {
    log_.opened(absl::StrCat(edge.ToString(), " to ", peer, ": ", path));
  };
  options.on_disturbed = [this, edge = options.key.edge,
                          peer = options.peer](const std::string& what) {
    log_.disturbed(absl::StrCat(edge.ToString(), " to ", peer, ": ", what));
  };
  options.limits = limits_;
  options.credentials = peers_;
  auto stream = std::make_shared<SendingStream>(std::move(options), *queue, streams_);
  streams_.Add(stream);
  return stream;
}

void TensorHub::Expect(const std::shared_ptr<InboundEdge>& edge) {
  MutexLock lock(mutex_);
  std::erase_if(parked_, [&](const ParkedStream& parked) {
    if (parked.header.key != edge->options().key) return false;
    const absl::Status connected =
        penstock::Connect(*edge, parked.header, parked.hello, parked.stream);
    if (connected.ok()) {
      parked.stream->Attach(edge);
    } else {
      parked.stream->Attach(connected);
      rejected_.Count(connected);
      log_.refused(connected);
    }
    return true;
  });
}

absl::Status TensorHub::CheckEpoch(uint64_t job, int64_t epoch) const {
  for (const auto& [known_job, first_epoch] : first_epochs_) {
    if (known_job == job && epoch < first_epoch) {
      return WithSeenEpoch(absl::AbortedError(absl::StrFormat(
                               "job %016x: epoch %d is over on this worker, expected at least %d",
                               job, epoch, first_epoch)),
                           first_epoch);
    }
  }
  return absl::OkStatus();
}

void TensorHub::SetFirstEpoch(uint64_t job, int64_t epoch) {
  std::erase_if(first_epochs_, [&](const auto& known) { return known.first == job; });
  if (first_epochs_.size() >= kRememberedJobsMax) first_epochs_.erase(first_epochs_.begin());
  first_epochs_.emplace_back(job, epoch);
}

}  // namespace penstock
