// Candidate: one way to run a job, and what it would be worth.
//
// A candidate is judged by what will run: its job is resolved, its schedule built and verified, and the
// simulator counts the time of its steps on the cluster's workers, by a profile of the model's layers; memory
// is what each worker would predict for itself.
//
// Plain values and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "job/run/run_schedule.h"
#include "model/graph.h"
#include "penstock/v1/device_times.pb.h"
#include "penstock/v1/job.pb.h"
#include "penstock/v1/profile.pb.h"
#include "planner/cost/run_memory.h"
#include "planner/graph/cluster.h"
#include "planner/job/update_pattern.h"
#include "schedule/block_delay.h"
#include "schedule/offload.h"
#include "schedule/recompute.h"

namespace penstock {

// The input of planning. It must outlive whatever is made of it.
struct PlanningInput {
  v1::JobSpec spec;  // as it is written: defaults are filled in for each candidate
  v1::ModelProfile profile;
  Cluster cluster;
  bool names_workers = false;  // in the jobs: the cluster's are those of a coordinator
  bool keeps_order = false;    // the cluster's workers are those of the pipeline, in their order
};

struct Candidate {
  std::string method;
  int32_t stages = 1;  // of the model
  int64_t microbatches = 1;
  RecomputeChoice recompute;
  std::vector<int32_t> replicas;              // by stage; empty: one each
  std::vector<std::string> layer_order = {};  // as in pipeline.layer_order; empty: the job's
  OffloadChoice offload = {};
  int32_t workers =
      0;  // that the stages go round (roundpipe); 0: as the job says, or as many as stages
  friend bool operator==(const Candidate&, const Candidate&) = default;
};
// "1f1b, 3-1, 8 microbatches, recomputing, offloading stages 0,2:4, reordered"; without replicas "4 stages", with one stage "4 replicas",
// and round workers "6 stages on 4 workers".
std::string NameOf(const Candidate& candidate);

// Where the stages of a candidate are.
struct StagePlacement {
  std::vector<int> workers;        // of the cluster, by worker of the pipeline
  std::vector<LayerRange> layers;  // by stage of the model
};

struct JudgedCandidate {
  Candidate candidate;
  std::string rejected;       // why it cannot run; empty: it can
  bool lacks_memory = false;  // what is missing is memory alone; time and memory are then there

  v1::JobSpec spec;                       // that runs it, with the prediction below
  std::vector<LayerRange> layers;         // by stage of the model
  std::vector<int> workers;               // of the cluster, by worker of the pipeline
  v1::DeviceTimes times;                  // what it was simulated on, as `--emulate` reads it
  double step_s = 0;                      // of a step in a long run
  double bubble_ratio = 0;                // in it, the mean over workers
  std::vector<double> busy_s;             // that a worker computes in it, by worker of the pipeline
  std::vector<double> sent_bytes;         // in it, by worker of the pipeline
  std::vector<WorkerMemory> memory;       // by worker of the pipeline
  std::vector<StageLateness> lateness;    // by stage
  std::optional<BlockDelay> block_delay;  // absent where it is not known
  UpdatePattern pattern;                  // once it is placed
  double step_bound_s = 0;                // no placement of its stages has a shorter step

  bool runs() const { return rejected.empty(); }
  // True if it has a placement; a candidate that the method's rules refuse has none.
  bool is_placed() const { return !workers.empty(); }
  int64_t most_memory() const { return MostBytes(memory); }
  int64_t most_staleness() const;
};

// Judges a candidate with the layers cut so that the slowest stage is as fast as can be, or as `layers` says (by
// stage). `rejected` says what makes it impossible: the method's rules, memory, too few workers or layers.
//
// Errors: InvalidArgument if the profile is not of the job's model, or has no microbatches of that size.
absl::StatusOr<JudgedCandidate> JudgeCandidate(const PlanningInput& input,
                                               const Candidate& candidate,
                                               const std::vector<LayerRange>& layers = {});

}  // namespace penstock
