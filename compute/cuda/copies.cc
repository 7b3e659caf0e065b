#include "compute/cuda/copies.h"

#include <utility>

#include "base/status.h"
#include "compute/cuda/error.h"

namespace penstock::cuda {
Copies::~Copies() {
  (void)cudaStreamSynchronize(cuda_.copy_in());
  (void)cudaStreamSynchronize(cuda_.copy_out());
  for (cudaEvent_t event : events_) (void)cudaEventDestroy(event);
}

absl::StatusOr<cudaEvent_t> Copies::MakeEvent() {
  cudaEvent_t event = nullptr;
  PENSTOCK_RETURN_IF_ERROR(
      ToStatus(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event"));
  events_.push_back(event);
  return event;
}

absl::StatusOr<Outgoing> Copies::StartToHost(const Tensor& tensor) {
  Tensor host = cuda_.host_pool().AcquireTensor(tensor.dtype, tensor.shape);
  if (!host) return absl::ResourceExhaustedError("no page-locked memory for a tensor to be sent");
  if (free_tickets_.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(const cudaEvent_t made, MakeEvent());
    free_tickets_.push_back(static_cast<int64_t>(by_ticket_.size()));
    by_ticket_.push_back(made);
  }
  const int64_t ticket = free_tickets_.back();
  free_tickets_.pop_back();
  const cudaEvent_t event = by_ticket_[ticket];
  // One event serves twice: the wait has taken note of it before it is recorded again.
  PENSTOCK_RETURN_IF_ERROR(ToStatus(cudaEventRecord(event, cuda_.stream()), "recording an event"));
  PENSTOCK_RETURN_IF_ERROR(
      ToStatus(cudaStreamWaitEvent(cuda_.copy_out(), event), "waiting for an event"));
  PENSTOCK_RETURN_IF_ERROR(
      ToStatus(cudaMemcpyAsync(host.data<void>(), tensor.data<void>(), tensor.size_bytes(),
                               cudaMemcpyDeviceToHost, cuda_.copy_out()),
               "copying a tensor to the host"));
  PENSTOCK_RETURN_IF_ERROR(
      ToStatus(cudaEventRecord(event, cuda_.copy_out()), "recording an event"));
  return Outgoing{.device = tensor, .host = std::move(host), .ticket = ticket};
}

absl::StatusOr<Tensor> Copies::FinishToHost(Outgoing outgoing) {
  const absl::Status done = cuda_.WaitFor(by_ticket_[outgoing.ticket], "a copy to the host");
  free_tickets_.push_back(outgoing.ticket);
  PENSTOCK_RETURN_IF_ERROR(done);
  return std::move(outgoing.host);
}

// What nobody but us refers to any more is free once the kernels queued so far are done.
absl::Status Copies::MarkReleases() {
  for (Landing& landing : landings_) {
    if (landing.host && cudaEventQuery(landing.copied) != cudaErrorNotReady) {
      landing.host = Tensor();
    }
    if (landing.release_marked || landing.device.shared()) continue;
    PENSTOCK_RETURN_IF_ERROR(
        ToStatus(cudaEventRecord(landing.released, cuda_.stream()), "recording an event"));
    landing.release_marked = true;
  }
  return absl::OkStatus();
}

absl::StatusOr<Copies::Landing*> Copies::FreeLanding(int64_t size_bytes) {
  PENSTOCK_RETURN_IF_ERROR(MarkReleases());
  Landing* released = nullptr;
  for (Landing& landing : landings_) {
    if (!landing.release_marked || landing.host || landing.device.size_bytes() < size_bytes) {
      continue;
    }
    if (cudaEventQuery(landing.released) == cudaSuccess) return &landing;
    if (released == nullptr) released = &landing;
  }
  if (released != nullptr) {  // free as soon as the kernels queued so far are done
    PENSTOCK_RETURN_IF_ERROR(
        ToStatus(cudaStreamWaitEvent(cuda_.copy_in(), released->released), "waiting for an event"));
    return released;
  }
  Landing landing;
  landing.device = cuda_.pool().Acquire(size_bytes);
  if (!landing.device) return absl::ResourceExhaustedError("no memory for a received tensor");
  // The block may come from the pool while a kernel still works on it.
  PENSTOCK_RETURN_IF_ERROR(cuda_.WaitForStream("a block of memory"));
  PENSTOCK_ASSIGN_OR_RETURN(landing.copied, MakeEvent());
  PENSTOCK_ASSIGN_OR_RETURN(landing.released, MakeEvent());
  landings_.push_back(std::move(landing));
  return &landings_.back();
}

absl::StatusOr<Tensor> Copies::ToDevice(const Tensor& host) {
  PENSTOCK_ASSIGN_OR_RETURN(Landing * landing, FreeLanding(host.size_bytes()));
  PENSTOCK_RETURN_IF_ERROR(
      ToStatus(cudaMemcpyAsync(landing->device.data(), host.data<void>(), host.size_bytes(),
                               cudaMemcpyHostToDevice, cuda_.copy_in()),
               "copying a tensor to the device"));
  PENSTOCK_RETURN_IF_ERROR(
      ToStatus(cudaEventRecord(landing->copied, cuda_.copy_in()), "recording an event"));
  PENSTOCK_RETURN_IF_ERROR(
      ToStatus(cudaStreamWaitEvent(cuda_.stream(), landing->copied), "waiting for an event"));
  landing->host = host;
  landing->release_marked = false;
  return Tensor{landing->device, host.dtype, host.shape};
}

}  // namespace penstock::cuda
