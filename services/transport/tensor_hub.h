// TensorHub: a worker process's place in the network of tensor streams.
//
// It lives in the worker's gRPC server, takes in the streams of neighbours, and brings them together
// with the run that expects them. A run gets its edges as a Transport (Join); the hub outlives runs,
// so that a stream's last messages leave after its run has ended.
//
// Thread safety: Join from any thread; the ServerExtension methods are the server's.
#pragma once

#include <grpcpp/generic/async_generic_service.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/rejected_messages.h"
#include "services/rpc/server.h"
#include "services/transport/receiving_stream.h"
#include "services/transport/sending_stream.h"
#include "services/transport/stream_end.h"
#include "worker/transport.h"

namespace penstock {

// A worker as the others reach it.
struct TensorPeer {
  std::string name;
  std::string address;  // host:port
  uint64_t incarnation = 0;

  std::string ToString() const;  // "worker right (127.0.0.1:4000)"
  friend bool operator==(const TensorPeer&, const TensorPeer&) = default;
};

// Who takes part in one attempt at a job.
struct RunPeers {
  std::string job_id;
  int64_t epoch = 1;
  int self = 0;  // index in `workers`
  std::vector<TensorPeer> workers;
  std::vector<int> worker_of_stage;
};

// One end of an edge.
struct LinkTraffic {
  EdgeId edge;
  std::string peer;   // the other worker's name
  bool sent = false;  // else received
  std::string path;   // "host", "shared-memory", "cuda-ipc", "peer" (compute/device_share.h)
  int64_t bytes = 0;
  int64_t messages = 0;
  int waiting = 0;      // messages: at the sender without credit yet, at the receiver not taken yet
  int64_t wait_ns = 0;  // as LinkMeter
  int64_t transfer_ns = 0;
  int64_t round_trip_ns = 0;  // of the sender's end
  int64_t redials = 0;  // streams after one that broke: at the sender dialled, at the receiver come
  int64_t resent = 0;   // messages that the sender sent once more
  int64_t duplicates = 0;  // messages that the receiver had, and dropped
  int64_t silent_ns =
      0;                // at the sender: for how long the receiver has answered nothing; 0: it does
  int64_t damaged = 0;  // frames that did not fit their checksums
};

class GrpcTransport;

class TensorHub final : public ServerExtension, private StreamDirectory {
 public:
  // Streams that wait for a run to open their edge; more are refused.
  static constexpr size_t kParkedStreamsMax = 64;
  // Jobs whose last epoch is remembered, so that late streams of an older one are refused.
  static constexpr size_t kRememberedJobsMax = 64;

  // The hub's messages for the log. Must not block, nor call the hub.
  struct Log {
    // Streams of others that were refused.
    std::function<void(const absl::Status&)> refused;
    // An edge's two ends found each other; how its tensors travel: "activation 0->1 to worker right
    // (127.0.0.1:4000): cuda-ipc".
    std::function<void(const std::string&)> opened;
    // An edge's stream broke, brought what was damaged, or is there again.
    std::function<void(const std::string&)> disturbed;
  };
  // `peers`: what workers are reached with (TransportSecurity::ForChannel).
  TensorHub(Log log, std::shared_ptr<grpc::ChannelCredentials> peers, StreamLimits limits = {});
  ~TensorHub() override;

  // The edges of one run.
  // REQUIRES: the server has started; the transport is destroyed before the hub.
  // Errors: InvalidArgument (peers do not fit together); Aborted (the epoch is over);
  // AlreadyExists (it has joined).
  absl::StatusOr<std::unique_ptr<Transport>> Join(RunPeers peers) ABSL_LOCKS_EXCLUDED(mutex_);

  // Returns the traffic over the open edges of a job's runs here.
  std::vector<LinkTraffic> Traffic(const std::string& job_id) ABSL_LOCKS_EXCLUDED(mutex_);
  // Counts streams' hellos, frames, welcomes and credits that were refused.
  const RejectedMessages& rejected() const { return rejected_; }

  void Register(grpc::ServerBuilder& builder) override;
  // Streams are spread over the queues.
  void Start(std::vector<grpc::ServerCompletionQueue*> queues) override;
  void Close() override ABSL_LOCKS_EXCLUDED(mutex_);
  void AwaitEnd() override;

 private:
  friend class GrpcTransport;

  struct ParkedStream {
    FrameHeader header;
    Hello hello;
    std::shared_ptr<ReceivingStream> stream;
  };

  // ---- StreamDirectory
  void OnAccepted(grpc::ServerCompletionQueue& queue) override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status OnHello(const FrameHeader& header, const Hello& hello,
                       const std::shared_ptr<ReceivingStream>& stream) override
      ABSL_LOCKS_EXCLUDED(mutex_);
  void OnLeft(ReceivingStream* stream) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnOpen(const InboundEdge& edge, const absl::Status& not_exported) override;
  void OnDisturbed(const InboundEdge& edge, const std::string& what) override;
  void OnRejected(const absl::Status& violation) override { rejected_.Count(violation); }

  // ---- For GrpcTransport A run has a device that might export, and does not.
  void ReportNoExporting(const absl::Status& reason);
  std::shared_ptr<SendingStream> Connect(SendingStreamOptions options) ABSL_LOCKS_EXCLUDED(mutex_);
  // The run expects a stream for `edge`; takes it if it has come already.
  void Expect(const std::shared_ptr<InboundEdge>& edge) ABSL_LOCKS_EXCLUDED(mutex_);
  void Leave(GrpcTransport& run) ABSL_LOCKS_EXCLUDED(mutex_);

  absl::Status Greet(const FrameHeader& header, const Hello& hello,
                     const std::shared_ptr<ReceivingStream>& stream) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status CheckEpoch(uint64_t job, int64_t epoch) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // From now on, epochs of the job below `epoch` are over.
  void SetFirstEpoch(uint64_t job, int64_t epoch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Log log_;
  RejectedMessages rejected_;
  const std::shared_ptr<grpc::ChannelCredentials> peers_;
  const StreamLimits limits_;
  grpc::AsyncGenericService service_;
  StreamSet streams_;
  std::vector<grpc::ServerCompletionQueue*> queues_;  // constant from Start on

  Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  size_t next_queue_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<GrpcTransport*> runs_ ABSL_GUARDED_BY(mutex_);
  std::vector<ParkedStream> parked_ ABSL_GUARDED_BY(mutex_);
  // The first epoch of a job that is not over, by job, the least recently used job first.
  std::vector<std::pair<uint64_t, int64_t>> first_epochs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace penstock
