// Effects: how the state machines of this folder say what they want done.
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
#include "schedule/timeline.h"

namespace penstock {

// A moment: for timeouts, and for records that people read.
struct Now {
  int64_t monotonic_ns = 0;
  int64_t unix_ms = 0;
};

inline constexpr int64_t kNsPerMs = 1'000'000;

using StageReports = google::protobuf::RepeatedPtrField<v1::StageReport>;

// A call to a worker (WorkerControl in cluster.proto), and its response.
using WorkerRequest =
    std::variant<v1::PrepareRunRequest, v1::PrepareProfileRequest, v1::StartRunRequest,
                 v1::HoldRunRequest, v1::CutRunRequest, v1::StopRunRequest>;
using WorkerResponse =
    std::variant<absl::StatusOr<v1::PrepareRunResponse>, absl::StatusOr<v1::PrepareProfileResponse>,
                 absl::StatusOr<v1::StartRunResponse>, absl::StatusOr<v1::HoldRunResponse>,
                 absl::StatusOr<v1::CutRunResponse>, absl::StatusOr<v1::StopRunResponse>>;

// Call a worker. Exactly one CallAnswer comes back, after retries and at the latest at the deadline.
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
  int64_t epoch = 0;
  int32_t worker_index = 0;
  WorkerResponse response;
};

// Try to reach a worker whose stream has ended, where it listens. Answered with Coordinator::OnProbed.
struct ProbeWorker {
  std::string worker;
  std::string address;
  int64_t stream = 0;  // Membership::Attach
};

// News of the attempt's calls to prepare, between the effect and its CallAnswer: they are not sent yet, because the
// store that has its epoch cannot be written, or they are sent now. May come once for each call.
struct PrepareWithheld {
  int64_t epoch = 0;
  bool withheld = true;
};

// Holds a checkpoint directory for one job: nobody else writes there while a copy lives. Null: there
// is nothing to hold.
using DirectoryLease = std::shared_ptr<const void>;

// Make the job's checkpoint directory its own, clear up what dead attempts left there, and find where
// the job goes on. Answered with StartFound.
struct FindCheckpoint {
  std::string job_id;
  StartQuery query;
  int64_t limit_ms = 0;  // nobody waits longer for the answer
  // Of the attempt that goes on in the directory (StagingTag), so that no start is looked for; empty: there is none.
  std::string adopted_tag = {};
};
struct StartFound {
  absl::StatusOr<FoundStart> start;
  DirectoryLease lease;
  bool adopted = false;  // the directory was claimed for an attempt that goes on in it
};

// Make a checkpoint of files that all workers have written. Answered with CheckpointCommitted.
struct CommitStaged {
  std::string job_id;
  DirectoryLease lease;  // the run may end before the commit does
  CommitOptions options;
  Manifest manifest;
};
struct CheckpointCommitted {
  int64_t step = 0;
  absl::StatusOr<CommittedCheckpoint> checkpoint;
};

// Remove what an attempt staged for steps up to this one and will not be committed, after all that was asked for in this
// directory before. Not answered: what cannot be removed goes with a later one, or at the next start.
struct DiscardStaged {
  std::string root;
  std::string tag;  // of the attempt
  int64_t step = 0;
};

// Fetch the run's timeline from its workers and keep it with the job. Answered with TimelineGathered, when done or
// given up.
struct GatherTimeline {
  std::string job_id;
  v1::Plan plan;
  std::optional<TraceContext> trace = std::nullopt;  // of the job
};
struct TimelineGathered {
  Timeline timeline;  // of all workers that answered
};

// Fetch how the run's workers get on: the reports of their stages so far, and what they computed in the last `last_ns`.
// Answered once, with PassesGathered.
struct GatherPasses {
  std::string job_id;
  int64_t epoch = 0;
  v1::Plan plan;
  int64_t last_ns = 0;  // 0: the reports alone
};
struct PassesGathered {
  int64_t epoch = 0;
  Timeline passes;                        // as much as the workers reported
  std::vector<StageReports> stages = {};  // by worker; none of those that did not answer
};

// Look up times of layers that were kept earlier. Answered with LayerTimesFound.
struct FindLayerTimes {
  std::string job_id;
  std::vector<std::string> keys;
};
struct LayerTimesFound {
  std::vector<std::optional<v1::DeviceProfile>> known;  // by key
};

// Keep times of layers for later profiles.
struct KeepLayerTimes {
  std::string key;
  v1::DeviceProfile times;
};

// Search for ways to run a job (PlanJob). It takes seconds, so it must not keep the owner from other events. Answered
// with CandidatesJudged.
struct JudgeCandidates {
  std::string job_id;
  std::shared_ptr<const PlanningInput> input;
  PlanJobOptions options;
  double budget_s = 0;
};
struct CandidatesJudged {
  absl::StatusOr<JobPlan> plan;
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

using CoordinatorEffect = std::variant<CallWorker, ProbeWorker, FindCheckpoint, CommitStaged,
                                       DiscardStaged, GatherTimeline, GatherPasses, FindLayerTimes,
                                       KeepLayerTimes, JudgeCandidates, PublishEvent, SaveJob>;
using CoordinatorEffects = std::vector<CoordinatorEffect>;

// The owner of the state machines uses one of these to give a job the result of an effect.
using EffectAnswer =
    std::variant<CallAnswer, PrepareWithheld, StartFound, CheckpointCommitted, TimelineGathered,
                 PassesGathered, LayerTimesFound, CandidatesJudged>;

}  // namespace penstock
