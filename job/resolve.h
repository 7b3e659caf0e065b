// ResolvedJob: a job's message turned into the values that the rest of Penstock computes with.
//
// Coordinator, workers, the serial reference and the command line all resolve the same JobSpec with
// this one function, so they cannot disagree about what the job means.
//
// Plain values without I/O.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compute/backend.h"
#include "compute/clip.h"
#include "compute/learning_rate.h"
#include "compute/optimizer.h"
#include "model/chain.h"
#include "penstock/v1/job.pb.h"
#include "schedule/catalog/catalog.h"

namespace penstock {

// In which order a worker performs its actions (pipeline.order).
enum class Order : uint8_t {
  kStatic,    // that of the schedule
  kRecorded,  // whatever is ready, and noted (schedule/ready_order.h)
};

struct ResolvedJob {
  Chain chain;
  const Method* method = nullptr;
  std::optional<Weights> weights;  // instead of the method's
  int32_t stages_per_worker = 1;
  std::shared_ptr<const Schedule> listed;  // of ListedMethod
  Order order = Order::kStatic;
  int32_t in_flight_factor = 1;  // of recorded order
  int64_t steps = 0;
  int64_t batch = 0;         // samples per step
  int64_t microbatches = 0;  // per step
  BatchShape microbatch;     // samples and time steps of one microbatch
  OptimizerConfig optimizer;
  LearningRate learning_rate;  // by samples
  Clip clip;
  Precision precision = Precision::kF32;
  Rounding rounding = Rounding::kNearest;
  StashPlace stash = StashPlace::kDevice;
  Repeatability repeatability = Repeatability::kBitwise;
  uint64_t seed = 0;
  int threads = 1;
  int64_t validation_batches = 0;  // microbatch-sized batches of one validation

  // The workers of a pipeline of so many stages, and the stages that so many workers hold.
  int64_t WorkersOf(int64_t stages) const {
    return listed == nullptr ? stages / stages_per_worker : listed->topology.workers;
  }
  int64_t StagesOn(int64_t workers) const {
    return listed == nullptr ? workers * stages_per_worker : listed->topology.stages();
  }

  int64_t samples_of_update() const { return microbatches_of_update() * microbatch.batch; }
  int64_t microbatches_of_update() const {
    return method->updates_each_microbatch ? 1 : microbatches;
  }
  int64_t tokens_per_step() const { return batch * microbatch.time; }
};

// Checks all of `spec` first, so whatever comes out of here is a job that can run somewhere.
//
// REQUIRES: `spec` has its defaults filled in (job/defaults.h).
// Errors: InvalidArgument naming the key ("training.microbatches"), what it is and what is allowed.
absl::StatusOr<ResolvedJob> ResolveJob(const v1::JobSpec& spec);

// The workers of a pipeline of `stages` stages, and who holds which stage.
// REQUIRES: CheckStages is OK.
Topology TopologyOf(const ResolvedJob& job, int64_t stages);

// Checks that the job can run as a pipeline of `stages` stages.
// Errors: InvalidArgument naming the key and the reason: more stages than the model has layers, more
// microbatches than a step of so many stages may hold, or what the method refuses (tied weights on two
// workers, a recorded order).
absl::Status CheckStages(const ResolvedJob& job, int64_t stages);

// Where a run drains. Ascending; the last one is the end of the job.
struct Cut {
  int64_t step = 0;  // after so many steps
  bool validate = false;
  bool checkpoint = false;
  friend bool operator==(const Cut&, const Cut&) = default;
};

// The cuts of `spec` after `first_step`, the drains of earlier runs (`extra_cuts`, in any order)
// among them; none if the job is done by then. They are constants of the job: part of the schedule
// digest and of the serial reference.
std::vector<Cut> CutsOf(const v1::JobSpec& spec, int64_t first_step,
                        absl::Span<const int64_t> extra_cuts);

// The schedule's options for this job on `topology`. A tied head that lives on another stage than
// the embedding makes a REDUCE group of the two.
ScheduleOptions ScheduleOptionsOf(const ResolvedJob& job, Topology topology);

}  // namespace penstock
