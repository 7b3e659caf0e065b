// Copies to and from the device that run beside the computation, each way in a stream of its own, tied to
// the compute stream by events.
//
// Thread safety: the thread that owns the back-end, except tickets() and FinishToHost: any.
#pragma once

#include <cuda_runtime_api.h>

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compute/cuda/context.h"
#include "compute/cuda/tickets.h"
#include "compute/device_share.h"
#include "compute/transfers.h"

namespace penstock::cuda {

class Copies {
 public:
  explicit Copies(CudaContext& context) : cuda_(context), tickets_(context) {}
  ~Copies();
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;

  // Works like Transfers::StartToHost.
  absl::StatusOr<Outgoing> StartToHost(const Tensor& tensor);
  absl::StatusOr<Tensor> FinishToHost(Outgoing outgoing);
  absl::StatusOr<Tensor> ToDevice(const Tensor& host);
  Tickets& tickets() { return tickets_; }

  // Works like Importer::Fetch, from memory that this device can read.
  absl::StatusOr<Importer::Fetched> Fetch(const void* exported, DType dtype, const Shape& shape);

 private:
  // Device memory for what arrives. Not from the pool: its blocks are free again in the order of the
  // compute stream, and the copy must not wait for that stream.
  struct Landing {
    Buffer device;
    Tensor host;                     // what is being copied, if from the host; kept until `copied`
    cudaEvent_t copied = nullptr;    // in the copy stream
    cudaEvent_t released = nullptr;  // in the compute stream, after the last kernel that reads it
    bool release_marked = true;      // `released` is recorded, or there was no reader
  };

  // Queues the copy of `tensor` to `host` after the calls so far; `event` tells when it is done.
  absl::Status CopyOut(const Tensor& host, const Tensor& tensor, cudaEvent_t event);
  absl::StatusOr<cudaEvent_t> MakeEvent();
  // One of exactly this size, as a pool's blocks are: an activation in the memory of a tied gradient would
  // make the next gradient take more.
  absl::StatusOr<Landing*> FreeLanding(int64_t size_bytes);
  absl::Status MarkReleases();
  // Queues the copy of `size_bytes` to a landing, which the compute stream then waits for.
  absl::StatusOr<Landing*> Land(const void* from, int64_t size_bytes);

  CudaContext& cuda_;
  Tickets tickets_;
  std::vector<cudaEvent_t> events_;  // of the landings
  std::vector<Landing> landings_;
};

}  // namespace penstock::cuda
