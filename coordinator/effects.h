// What the state machines of this folder want done.
//
// They call nobody, write nothing and have no clock: an event and a time go in, effects come out,
// and the owner (services/coordinator/event_loop.h, or a simulation) performs them in order. What
// an effect leads to comes back as another event.
//
// Plain values.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "base/trace_context.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/start.h"
#include "penstock/v1/cluster.pb.h"
#include "planner/job/plan_job.h"

namespace penstock {

// A moment: for timeouts, and for records that people read.
struct Now {
  int64_t monotonic_ns = 0;
  int64_t unix_ms = 0;
};

inline constexpr int64_t kNsPerMs = 1'000'000;

using WorkerRequest = std::variant<v1::PrepareRunRequest, v1::StartRunRequest, v1::HoldRunRequest,
                                   v1::CutRunRequest, v1::StopRunRequest>;

// Call a worker. Exactly one CallAnswer comes back, after retries and at the latest at the
// deadline.
struct CallWorker {
  std::string job_id;
  int64_t epoch = 0;
  int32_t worker_index = 0;  // in the plan; -1 for a run that no job knows
  std::string worker;
  std::string address;
  WorkerRequest request;
  std::optional<TraceContext> trace = std::nullopt;  // of the job
};
struct CallAnswer {
  std::string job_id;
  int64_t epoch = 0;
  int32_t worker_index = 0;
  size_t request = 0;  // the index of the WorkerRequest's alternative
  absl::Status status;
  std::string schedule_digest;  // of PrepareRun
  int64_t step = 0;             // of HoldRun
};

// Holds a checkpoint directory for one job: nobody else writes there while a copy lives. Null: there
// is nothing to hold.
using DirectoryLease = std::shared_ptr<const void>;

// Make the job's checkpoint directory its own, clear up what dead attempts left there, and find where
// the job goes on. Answered with a FoundStart and the lease.
struct FindCheckpoint {
  std::string job_id;
  StartQuery query;
};

// Make a checkpoint of files that all workers have written. Answered with its directory.
struct CommitStaged {
  std::string job_id;
  DirectoryLease lease;  // the run may end before the commit does
  CommitOptions options;
  Manifest manifest;
};

// Fetch the run's timeline from its workers and keep it with the job. Answered when done or given
// up.
struct GatherTimeline {
  std::string job_id;
  v1::Plan plan;
  std::optional<TraceContext> trace = std::nullopt;  // of the job
};

// Fetch what the run's workers computed in the last `last_ns`. Answered once, with as much as they told.
struct GatherPasses {
  std::string job_id;
  int64_t epoch = 0;
  v1::Plan plan;
  int64_t last_ns = 0;
};

// Look up times of layers that were kept earlier. Answered with what is kept under each key, in their order.
struct FindLayerTimes {
  std::string job_id;
  std::vector<std::string> keys;
};

// Keep times of layers for later profiles.
struct KeepLayerTimes {
  std::string key;
  v1::DeviceProfile times;
};

// Search for ways to run a job (PlanJob). It takes seconds, so it must not keep the owner from other events. Answered
// with the plan.
struct JudgeCandidates {
  std::string job_id;
  std::shared_ptr<const PlanningInput> input;
  PlanJobOptions options;
  double budget_s = 0;
};

// Append to the job's events and wake those who watch it. Events are numbered already.
struct PublishEvent {
  std::string job_id;
  v1::JobEvent event;
};

// Keep the job's record so that it survives this process.
struct SaveJob {
  v1::GetJobResponse record;
  std::string idempotency_key = {};  // of its submission; empty: as it was
};

using CoordinatorEffect =
    std::variant<CallWorker, FindCheckpoint, CommitStaged, GatherTimeline, GatherPasses,
                 FindLayerTimes, KeepLayerTimes, JudgeCandidates, PublishEvent, SaveJob>;
using CoordinatorEffects = std::vector<CoordinatorEffect>;

}  // namespace penstock
