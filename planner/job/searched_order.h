// The order of a job with pipeline.method searched: the one that schedule/search.h finds for the times of its stages.
//
// A number of moves bounds a search, so the same job and times give the same order on any machine. A worker may have
// several stages, and stages may have replicas. A search leaves the reductions of replicas out of its times
// (schedule/search.h); the simulation that judges an order counts them.
//
// Pure functions.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "job/resolve.h"
#include "penstock/v1/job.pb.h"
#include "schedule/schedule.h"
#include "schedule/simulate.h"

namespace penstock {

// How many microbatches a worker may have between forward and weight gradient, over all its stages: what 1f1b keeps of
// each of them. Without replicas the worker that keeps most is the first, with S on S stages.
enum class OrderRoom : uint8_t {
  kTwice,      // twice the most of 1f1b, which is what zb-h2 keeps
  kOfFirst,    // on every worker the most that one of 1f1b keeps
  kOfOneFOneB  // what each worker of 1f1b keeps
};

struct OrderSearch {
  OrderRoom room = OrderRoom::kOfOneFOneB;
  // The most of the local search; long steps get fewer, so that a search takes tenths of a second.
  int64_t moves = 0;
};

// Returns the complete order of a step of `draft` (job/open_job.h). Steps run on from one to the next, and the time
// from one to the next is what counts. `options`, `costs`: of the draft.
// Errors: those of SearchSchedule.
absl::StatusOr<Schedule> SearchOrder(const ResolvedJob& draft, const ScheduleOptions& options,
                                     const SimulationCosts& costs, const OrderSearch& search);

// Returns `draft` in `order`.
ResolvedJob InOrder(const ResolvedJob& draft, Schedule order);

// Writes `order` into `spec` as that of pipeline.method searched. Errors: InvalidArgument if a job cannot hold it.
absl::Status SetOrder(const Schedule& order, v1::JobSpec& spec);

// Finds the order of a job whose workers are not measured, on `stages` stages: for the layers of SplitLayers, by their
// estimated cost, with messages that take no time, in the memory of 1f1b. REQUIRES: OrderIsOpen; defaults are filled in.
// Errors: those of ResolveSubmitted, SplitLayers and SearchOrder.
absl::Status FillEstimatedOrder(int64_t stages, v1::JobSpec& spec);

}  // namespace penstock
