// Transport: how a worker's executor sends tensors to other workers and receives theirs.
//
// An edge is one direction of flow between two stages, or the collective exchange between two
// workers. Messages of an edge arrive in the order they were sent, each exactly once. An edge has a
// window of `capacity` messages: Send blocks while as many are sent and not yet received by the
// other executor. That is the system's only back-pressure.
//
// Implementations: memory_transport.h (threads of one process, for tests) and
// services/transport/ (gRPC). tests/worker/transport_suite.h holds what all must do.
//
// Thread safety: Send and Receive are called by the executor's thread; everything else by any.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "compute/buffer_pool.h"
#include "compute/tensor.h"

namespace penstock {

enum class EdgeKind : uint8_t {
  kActivation = 1,  // stage -> next stage
  kGradient = 2,    // stage -> previous stage
  kCollective = 3,  // worker -> worker, for REDUCE and NORM
};

const char* Name(EdgeKind kind);  // "activation"

// Names an edge of a job; the same on both ends.
struct EdgeId {
  EdgeKind kind = EdgeKind::kActivation;
  int32_t source = 0;       // stage; of kCollective the worker index
  int32_t destination = 0;  // stage; of kCollective the worker index

  std::string ToString() const;  // "activation 0->1"
  friend bool operator==(const EdgeId&, const EdgeId&) = default;
};

// What the receiving executor expects next on an edge.
struct TensorExpectation {
  int64_t sequence = 0;  // microbatch; of a collective its running number
  DType dtype = DType::kF32;
  Shape shape;

  std::string ToString() const;  // "message 7 of f32 [4, 128, 192]"
  friend bool operator==(const TensorExpectation&, const TensorExpectation&) = default;
};

// What every implementation checks in the same words.
// Errors: InvalidArgument.
absl::Status CheckEdgeLimits(const EdgeId& edge, int capacity, int64_t tensor_bytes_max);
absl::Status CheckMessageSize(const EdgeId& edge, int64_t sequence, const Tensor& tensor,
                              int64_t tensor_bytes_max);
// Errors: FailedPrecondition, naming both.
absl::Status CheckExpectation(const EdgeId& edge, const TensorExpectation& expected,
                              const TensorExpectation& got);

// The sending end of an edge.
class Sender {
 public:
  virtual ~Sender() = default;

  // Hands `tensor` over; its memory is read until the transport drops its reference, so the caller
  // must not write to it any more. Blocks while the window is full.
  // Errors: DeadlineExceeded (no credit until `deadline`), Aborted (the peer ended the run),
  // Unavailable (the peer is gone; names it), InvalidArgument (empty, or larger than the edge
  // allows), or the reason given to Cancel.
  virtual absl::Status Send(int64_t sequence, const Tensor& tensor, absl::Time deadline) = 0;

  // Whether the window has room (then Send does not block).
  virtual bool Ready() const = 0;

  virtual int64_t bytes_sent() const = 0;
  virtual int64_t messages_sent() const = 0;
};

// The receiving end of an edge.
class Receiver {
 public:
  virtual ~Receiver() = default;

  // The next message, in memory from the pool the edge was opened with, contiguous and its checksum
  // verified. Receiving gives the sender one credit back.
  // Errors: as Send; FailedPrecondition if the message is not what is expected (the sender follows
  // another plan; says both); DataLoss if its checksum was wrong.
  virtual absl::StatusOr<Tensor> Receive(const TensorExpectation& expected,
                                         absl::Time deadline) = 0;

  // Whether a message waits (then Receive does not block).
  virtual bool Ready() const = 0;
};

// The edges of one worker in one run of a job.
class Transport {
 public:
  virtual ~Transport() = default;

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
