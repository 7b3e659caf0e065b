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
  PENSTOCK_ASSIGN_OR_RETURN(const Tickets::Ticket ticket, tickets_.Take());
  if (const absl::Status queued = CopyOut(host, tensor, ticket.event); !queued.ok()) {
    tickets_.GiveBack(ticket.number);
    return queued;
  }
  return Outgoing{.device = tensor, .host = std::move(host), .ticket = ticket.number};
}

absl::Status Copies::CopyOut(const Tensor& host, const Tensor& tensor, cudaEvent_t event) {
  // One event serves twice: the wait has taken note of it before it is recorded again.
  PENSTOCK_RETURN_IF_ERROR(ToStatus(cudaEventRecord(event, cuda_.stream()), "recording an event"));
  PENSTOCK_RETURN_IF_ERROR(
      ToStatus(cudaStreamWaitEvent(cuda_.copy_out(), event), "waiting for an event"));
  PENSTOCK_RETURN_IF_ERROR(
      ToStatus(cudaMemcpyAsync(host.data<void>(), tensor.data<void>(), tensor.size_bytes(),
                               cudaMemcpyDeviceToHost, cuda_.copy_out()),
               "copying a tensor to the host"));
  return ToStatus(cudaEventRecord(event, cuda_.copy_out()), "recording an event");
}

absl::StatusOr<Tensor> Copies::FinishToHost(Outgoing outgoing) {
  PENSTOCK_RETURN_IF_ERROR(tickets_.Await(outgoing.ticket, "a copy to the host"));
  return std::move(outgoing.host);
}

// A tensor that only we refer to is free once the kernels queued so far are done.
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
    if (!landing.release_marked || landing.host ||
        landing.device.size_bytes() != BufferPool::BlockBytes(size_bytes)) {
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

absl::StatusOr<Copies::Landing*> Copies::Land(const void* from, int64_t size_bytes) {
  PENSTOCK_ASSIGN_OR_RETURN(Landing * landing, FreeLanding(size_bytes));
  PENSTOCK_RETURN_IF_ERROR(ToStatus(
      cudaMemcpyAsync(landing->device.data(), from, size_bytes, cudaMemcpyDefault, cuda_.copy_in()),
      "copying a tensor to the device"));
  PENSTOCK_RETURN_IF_ERROR(
      ToStatus(cudaEventRecord(landing->copied, cuda_.copy_in()), "recording an event"));
  PENSTOCK_RETURN_IF_ERROR(
      ToStatus(cudaStreamWaitEvent(cuda_.stream(), landing->copied), "waiting for an event"));
  landing->release_marked = false;
  return landing;
}

absl::StatusOr<Tensor> Copies::ToDevice(const Tensor& host) {
  PENSTOCK_ASSIGN_OR_RETURN(Landing * landing, Land(host.data<void>(), host.size_bytes()));
  landing->host = host;
  return Tensor{landing->device, host.dtype, host.shape};
}

absl::StatusOr<Importer::Fetched> Copies::Fetch(const void* exported, DType dtype,
                                                const Shape& shape) {
  PENSTOCK_ASSIGN_OR_RETURN(const Landing* landing,
                            Land(exported, shape.elements() * SizeOf(dtype)));
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t ticket, tickets_.Record(cuda_.copy_in()));
  return Importer::Fetched{.tensor = {landing->device, dtype, shape}, .ticket = ticket};
}

}  // namespace penstock::cuda
