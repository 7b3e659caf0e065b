// Copies between host and device that run beside the computation, each way in a stream of its own, tied to
// the compute stream by events.
//
// Thread safety: the thread that owns the back-end.
#pragma once

#include <cuda_runtime_api.h>

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compute/backend.h"
#include "compute/cuda/context.h"

namespace penstock::cuda {

class Copies {
 public:
  explicit Copies(CudaContext& context) : cuda_(context) {}
  ~Copies();
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;

  // As Backend::StartToHost, FinishToHost and ToDevice.
  absl::StatusOr<Outgoing> StartToHost(const Tensor& tensor);
  absl::StatusOr<Tensor> FinishToHost(Outgoing outgoing);
  absl::StatusOr<Tensor> ToDevice(const Tensor& host);

 private:
  // Device memory for what arrives. Not from the pool: its blocks are free again in the order of the
  // compute stream, and the copy must not wait for that stream.
  struct Landing {
    Buffer device;
    Tensor host;                     // what is being copied; kept until `copied`
    cudaEvent_t copied = nullptr;    // in the copy stream
    cudaEvent_t released = nullptr;  // in the compute stream, after the last kernel that reads it
    bool release_marked = true;      // `released` is recorded, or there was no reader
  };

  absl::StatusOr<cudaEvent_t> MakeEvent();
  absl::StatusOr<Landing*> FreeLanding(int64_t size_bytes);
  absl::Status MarkReleases();

  CudaContext& cuda_;
  std::vector<cudaEvent_t> events_;     // all of them
  std::vector<cudaEvent_t> by_ticket_;  // of outgoing copies
  std::vector<int64_t> free_tickets_;
  std::vector<Landing> landings_;
};

}  // namespace penstock::cuda
