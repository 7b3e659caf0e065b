// Tickets: numbered moments in streams that a thread waits for.
//
// Thread safety: all methods may be called from any thread, two of them for one ticket not at once.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "compute/cuda/context.h"

namespace penstock::cuda {

class Tickets {
 public:
  explicit Tickets(const CudaContext& context) : cuda_(context) {}
  // REQUIRES: nothing records any more.
  ~Tickets();
  Tickets(const Tickets&) = delete;
  Tickets& operator=(const Tickets&) = delete;

  struct Ticket {
    int64_t number = 0;
    cudaEvent_t event = nullptr;  // the taker of the ticket records it
  };
  absl::StatusOr<Ticket> Take() ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns a ticket that no thread will wait for, because its work failed.
  void GiveBack(int64_t number) ABSL_LOCKS_EXCLUDED(mutex_);
  // A ticket for the end of what is in `stream` so far.
  absl::StatusOr<int64_t> Record(cudaStream_t stream);

  // Works like Transfers::Poll.
  absl::StatusOr<bool> Poll(int64_t number);
  // Waits for a ticket, which is used up then. Errors: as CudaContext::WaitFor.
  absl::Status Await(int64_t number, absl::string_view what);

 private:
  cudaEvent_t EventOf(int64_t number) ABSL_LOCKS_EXCLUDED(mutex_);

  const CudaContext& cuda_;
  Mutex mutex_;
  std::vector<cudaEvent_t> events_ ABSL_GUARDED_BY(mutex_);  // by number
  std::vector<int64_t> free_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace penstock::cuda
