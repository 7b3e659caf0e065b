#include "compute/cuda/tickets.h"

#include "base/check.h"
#include "base/status.h"
#include "compute/cuda/error.h"

namespace penstock::cuda {

Tickets::~Tickets() {
  MutexLock lock(mutex_);
  for (cudaEvent_t event : events_) (void)cudaEventDestroy(event);
}

absl::StatusOr<Tickets::Ticket> Tickets::Take() {
  MutexLock lock(mutex_);
  if (free_.empty()) {
    cudaEvent_t event = nullptr;
    PENSTOCK_RETURN_IF_ERROR(
        ToStatus(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event"));
    free_.push_back(static_cast<int64_t>(events_.size()));
    events_.push_back(event);
    free_.reserve(events_.size());  // so that giving it back allocates nothing
  }
  const int64_t number = free_.back();
  free_.pop_back();
  return Ticket{number, events_[number]};
}

absl::StatusOr<int64_t> Tickets::Record(cudaStream_t stream) {
  PENSTOCK_ASSIGN_OR_RETURN(const Ticket ticket, Take());
  const cudaError_t error = cudaEventRecord(ticket.event, stream);
  if (error == cudaSuccess) return ticket.number;
  GiveBack(ticket.number);
  return ToStatus(error, "recording an event");
}

absl::StatusOr<bool> Tickets::Poll(int64_t number) {
  // A thread that has not chosen a device would start one up.
  cudaError_t state = cudaSetDevice(cuda_.device());
  if (state == cudaSuccess) state = cudaEventQuery(EventOf(number));
  if (state == cudaErrorNotReady) return false;
  GiveBack(number);
  PENSTOCK_RETURN_IF_ERROR(ToStatus(state, "waiting for the device"));
  return true;
}

absl::Status Tickets::Await(int64_t number, absl::string_view what) {
  const absl::Status done = cuda_.WaitFor(EventOf(number), what);
  GiveBack(number);
  return done;
}

cudaEvent_t Tickets::EventOf(int64_t number) {
  MutexLock lock(mutex_);
  PENSTOCK_CHECK(number >= 0 && number < static_cast<int64_t>(events_.size()));
  return events_[number];
}

void Tickets::GiveBack(int64_t number) {
  MutexLock lock(mutex_);
  free_.push_back(number);
}

}  // namespace penstock::cuda
