// Transport: how a worker's executor sends tensors to other workers and receives theirs.
//
// An edge is one direction of flow between two stages, or the collective exchange between two
// workers. Messages of an edge arrive in the order they were sent, each exactly once. An edge has a
// window of `capacity` messages: Send blocks while as many are sent and not yet received by the
// other executor. That is the system's only back-pressure.
//
// A connection that breaks, or brings a tensor damaged, is no error of an edge as long as the peer can be reached again
// soon: its messages still arrive, each once.
//
// Tensors travel in host memory, or, between processes that can, as exported memory of a device
// (compute/device_share.h). Then the message is received when the receiver's device has its own copy.
//
// Implementations: tests/worker/memory_transport.h (threads of one process) and
// services/transport/ (gRPC). tests/worker/transport_suite.h holds what all must do.
//
// Thread safety: Open*, Reserve, Send, Take and Receive are called by the executor's thread, and ends are
// destroyed on it; everything else by any.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "compute/buffer_pool.h"
#include "compute/device_share.h"
#include "compute/tensor.h"
#include "compute/transfers.h"
#include "schedule/topology.h"
#include "worker/doorbell.h"

namespace penstock {

const char* Name(EdgeKind kind);  // "activation"

// Names an edge of a job; the same on both ends.
struct EdgeId {
  EdgeKind kind = EdgeKind::kActivation;
  int32_t source = 0;       // stage; of kCollective the worker index
  int32_t destination = 0;  // stage; of kCollective the worker index

  std::string ToString() const;  // "activation 0->1"
  friend bool operator==(const EdgeId&, const EdgeId&) = default;
};

// The tensor that the receiving executor expects next on an edge.
struct TensorExpectation {
  int64_t sequence = 0;  // microbatch; of a collective its running number
  DType dtype = DType::kF32;
  Shape shape;

  std::string ToString() const;  // "message 7 of f32 [4, 128, 192]"
  friend bool operator==(const TensorExpectation&, const TensorExpectation&) = default;
};

// Checks the limits, which every implementation does in the same words.
// Errors: InvalidArgument.
absl::Status CheckEdgeLimits(const EdgeId& edge, int capacity, int64_t tensor_bytes_max);
absl::Status CheckMessageSize(const EdgeId& edge, int64_t sequence, const Tensor& tensor,
                              int64_t tensor_bytes_max);
// Errors: FailedPrecondition, naming both.
absl::Status CheckExpectation(const EdgeId& edge, const TensorExpectation& expected,
                              const TensorExpectation& got);

// The path of an edge's tensors, for people: a tensor that is not exported travels in host memory.
inline constexpr char kHostPath[] = "host";
struct EdgePath {
  EdgeId edge;
  std::string path;  // "host", "cuda-ipc", "peer"
};

// The sending end of an edge.
class Sender {
 public:
  virtual ~Sender() = default;

  // Takes a place in the window for message `sequence`, which will be of this tensor's size. Blocks
  // while the window is full.
  // Errors: DeadlineExceeded (no credit until `deadline`), Aborted (the peer ended the run),
  // Unavailable (the peer is gone; names it), InvalidArgument (empty, or larger than the edge
  // allows), or the reason given to Cancel.
  virtual absl::Status Reserve(int64_t sequence, const Tensor& tensor, absl::Time deadline) = 0;

  // Fills the place reserved with a tensor in host memory; does not block. The memory is read until
  // the transport drops its reference, so the caller must not write to it any more.
  // REQUIRES: one Reserve for each Put or Export, with the same sequence, in the same order.
  // Errors: as Reserve, but no deadline.
  virtual absl::Status Put(int64_t sequence, const Tensor& tensor) = 0;

  // Names a tensor of the device for Export; may take milliseconds for memory that is new. Any thread.
  // REQUIRES: exports(). Errors: those of Exporter, which are of this worker's device.
  virtual absl::StatusOr<ShareBytes> Describe(const Tensor& tensor);
  // Fills the place with a tensor of the device, which the peer fetches from where `descriptor` says.
  // The memory must not change, as with Put, until the transport drops its reference.
  // REQUIRES: exports(). Errors: as Put.
  virtual absl::Status Export(int64_t sequence, const Tensor& tensor, const ShareBytes& descriptor);
  // Returns whether Export may be used; final once a Reserve has returned OK.
  virtual bool exports() const { return false; }
  // "host", "shared-memory", "cuda-ipc", "peer"; final as exports().
  virtual std::string path() const { return kHostPath; }

  // Reserve and Put.
  absl::Status Send(int64_t sequence, const Tensor& tensor, absl::Time deadline);

  // Returns whether the window has room (then Reserve does not block).
  virtual bool Ready() const = 0;

  virtual int64_t bytes_sent() const = 0;
  virtual int64_t messages_sent() const = 0;
};

// A message as it was received.
struct Arrival {
  int64_t sequence = 0;
  // Contiguous host memory of the pool the edge was opened with; if exported, type and shape only.
  Tensor tensor;
  ShareBytes exported;  // where it lies

  bool is_exported() const { return !exported.empty(); }
};

// A message that was not taken yet.
struct Waiting {
  CondVar::Clock::time_point since;
  int64_t size_bytes = 0;
};

// The receiving end of an edge.
class Receiver {
 public:
  virtual ~Receiver() = default;

  // The next message, its checksum verified. Taking one in host memory gives the sender one credit back;
  // an exported one is to be fetched next.
  // Errors: as Reserve; FailedPrecondition if the message is not what is expected (the sender follows
  // another plan; says both); DataLoss if its checksum was wrong again and again.
  virtual absl::StatusOr<Arrival> Take(const TensorExpectation& expected, absl::Time deadline) = 0;

  // Fetches an exported one to the device. Release must follow, when the device has done the ticket.
  // Errors: those of Importer.
  virtual absl::StatusOr<Importer::Fetched> Fetch(const Arrival& exported);
  // The sender may have the memory of the first fetched message back that was not released yet.
  virtual void Release() {}

  // Calls Take, where nothing may be exported. Errors also: FailedPrecondition if it was.
  absl::StatusOr<Tensor> Receive(const TensorExpectation& expected, absl::Time deadline);

  // Returns whether a message waits, or the edge has ended (then Take does not block).
  virtual bool Ready() const = 0;
  // The next message, if it is there; without a value also at the end of the edge.
  virtual std::optional<Waiting> FirstWaiting() const = 0;
  // From now on `bell` rings whenever Ready becomes true. Null: it rings no more. REQUIRES: it
  // outlives this end.
  virtual void RingOnArrival(Doorbell* bell) = 0;
};

// The edges of one worker in one run of a job.
class Transport {
 public:
  virtual ~Transport() = default;

  // Edges that are opened from now on may carry tensors of this device directly; null: they may not.
  // REQUIRES: what it is of outlives the ends of these edges.
  virtual void UseShare(DeviceShare* /*share*/) {}

  // `capacity`: messages in flight, at least 1. `tensor_bytes_max`: the largest message allowed.
  // Does not wait for the other end; the first Send or Receive does.
  // REQUIRES: `pool` outlives the transport.
  // Errors: InvalidArgument (a limit is not positive), AlreadyExists (the end is open),
  // FailedPrecondition (the edge does not touch this worker, or the other end has other limits).
  virtual absl::StatusOr<std::unique_ptr<Sender>> OpenSender(const EdgeId& edge, int capacity,
                                                             int64_t tensor_bytes_max) = 0;
  virtual absl::StatusOr<std::unique_ptr<Receiver>> OpenReceiver(const EdgeId& edge, int capacity,
                                                                 int64_t tensor_bytes_max,
                                                                 BufferPool& pool) = 0;

  // Makes all blocked and later calls on all edges return `reason` (not OK), and those of the peers
  // Aborted with its message. The first reason counts. Destroying a transport ends its edges too,
  // but lets peers receive what was sent before.
  virtual void Cancel(const absl::Status& reason) = 0;
};

}  // namespace penstock
