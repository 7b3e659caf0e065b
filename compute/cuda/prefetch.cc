#include "compute/cuda/prefetch.h"

#include <utility>

#include "base/status.h"
#include "compute/cuda/error.h"

namespace penstock::cuda {

Prefetch::~Prefetch() {
  (void)cudaStreamSynchronize(cuda_.prefetch());
  for (Copy& copy : copies_) {
    for (cudaEvent_t event : {copy.begun, copy.copied}) {
      if (event != nullptr) (void)cudaEventDestroy(event);
    }
  }
}

absl::StatusOr<int64_t> Prefetch::FreeCopy() {
  for (size_t i = 0; i < copies_.size(); ++i) {
    Copy& copy = copies_[i];
    // The network may write to the host's block once it is back in its pool, so it stays here until then.
    if (copy.finished && cudaEventQuery(copy.copied) == cudaSuccess) {
      copy.host = Tensor();
      copy.finished = false;
    }
    if (!copy.host) return static_cast<int64_t>(i);
  }
  Copy& copy = copies_.emplace_back();
  for (cudaEvent_t* event : {&copy.begun, &copy.copied}) {
    PENSTOCK_RETURN_IF_ERROR(
        ToStatus(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "making an event"));
  }
  return static_cast<int64_t>(copies_.size()) - 1;
}

absl::StatusOr<Incoming> Prefetch::StartToDevice(const Tensor& host) {
  Tensor device = cuda_.pool().AcquireTensor(host.dtype, host.shape);
  if (!device) {
    return absl::ResourceExhaustedError("no memory for what comes back from the host");
  }
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t ticket, FreeCopy());
  Copy& copy = copies_[ticket];
  // Kernels queued so far may still work on the block that the pool gave.
  PENSTOCK_RETURN_IF_ERROR(
      ToStatus(cudaEventRecord(copy.begun, cuda_.stream()), "recording an event"));
  PENSTOCK_RETURN_IF_ERROR(
      ToStatus(cudaStreamWaitEvent(cuda_.prefetch(), copy.begun), "waiting for an event"));
  PENSTOCK_RETURN_IF_ERROR(
      ToStatus(cudaMemcpyAsync(device.data<void>(), host.data<void>(), host.size_bytes(),
                               cudaMemcpyHostToDevice, cuda_.prefetch()),
               "copying a tensor to the device"));
  PENSTOCK_RETURN_IF_ERROR(
      ToStatus(cudaEventRecord(copy.copied, cuda_.prefetch()), "recording an event"));
  copy.host = host;
  copy.device = device;
  return Incoming{.host = host, .device = std::move(device), .ticket = ticket};
}

absl::StatusOr<Tensor> Prefetch::FinishToDevice(Incoming incoming) {
  Copy& copy = copies_[incoming.ticket];
  PENSTOCK_RETURN_IF_ERROR(
      ToStatus(cudaStreamWaitEvent(cuda_.stream(), copy.copied), "waiting for an event"));
  copy.device = Tensor();  // from here on the order of the compute stream protects it
  copy.finished = true;
  return std::move(incoming.device);
}

}  // namespace penstock::cuda
