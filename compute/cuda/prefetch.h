// Copies to the device of what is needed later, beside the computation: weight versions that were stashed
// on the host. In a stream of their own, so that a tensor which a stage waits for never queues behind them.
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

class Prefetch {
 public:
  explicit Prefetch(CudaContext& context) : cuda_(context) {}
  ~Prefetch();
  Prefetch(const Prefetch&) = delete;
  Prefetch& operator=(const Prefetch&) = delete;

  // Work like Backend::StartToDevice and FinishToDevice.
  absl::StatusOr<Incoming> StartToDevice(const Tensor& host);
  absl::StatusOr<Tensor> FinishToDevice(Incoming incoming);

 private:
  struct Copy {
    cudaEvent_t begun = nullptr;   // in the compute stream: the block's last reader is done
    cudaEvent_t copied = nullptr;  // in the copy stream
    Tensor host;                   // kept until `copied`; empty: free for another copy
    Tensor device;                 // kept until `finished`
    bool finished = false;         // FinishToDevice was called
  };

  absl::StatusOr<int64_t> FreeCopy();

  CudaContext& cuda_;
  std::vector<Copy> copies_;  // by ticket
};

}  // namespace penstock::cuda
