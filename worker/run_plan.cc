#include "worker/run_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "job/run_schedule.h"

namespace penstock {
namespace {

absl::Status BadPlan(const std::string& message) {
  return absl::InvalidArgumentError(absl::StrCat("plan: ", message));
}

absl::Status CheckAllLayers(const RunPlan& plan, int layers) {
  if (layers == plan.job.chain.size()) return absl::OkStatus();
  return BadPlan(
      absl::StrCat("its stages have ", layers, " layers, the model has ", plan.job.chain.size()));
}

// Replicas of a stage average their weights, so they must be equal. (There and back stages of one
// part were read as equal.)
absl::Status CheckReplicas(const RunPlan& plan, const Topology& topology) {
  const int32_t expected = plan.job.PipelinesOf(topology.depth());
  if (topology.pipelines != expected) {
    return BadPlan(absl::StrCat("has ", topology.pipelines, " pipelines of ", topology.depth(),
                                " stages, the job has ", expected));
  }
  for (int32_t s = 0; s < topology.stages(); ++s) {
    const int32_t first = topology.DepthOf(StageId(s));
    if (plan.layers[s] == plan.layers[first]) continue;
    return BadPlan(absl::StrCat("stage ", s, " has ", plan.layers[s].count, " layers from ",
                                plan.layers[s].first, ", but it is a replica of stage ", first));
  }
  return absl::OkStatus();
}

// The stage of the same pipeline that the stage has the layers of; -1: it goes on where the one
// before it ended.
int TwinBefore(const RunPlan& plan, int stage, int depth) {
  if (plan.topology().replicated()) {
    const int replica = plan.topology().ReplicaOf(StageId(stage));
    return replica == 0 ? -1 : stage - replica;
  }
  if (plan.job.method->placement != Placement::kRoundTrip) return -1;
  const int place = stage % depth;
  const int parts = (depth + 1) / 2;
  return place < parts ? -1 : stage - place + depth - 1 - place;
}

absl::Status CheckLayers(const RunPlan& plan, const v1::StageAssignment& stage, int twin,
                         int next_layer) {
  const int s = stage.stage();
  if (twin >= 0) {
    const LayerRange& expected = plan.layers[twin];
    if (LayerRange{stage.first_layer(), stage.layers()} == expected) return absl::OkStatus();
    return BadPlan(absl::StrCat(
        "stage ", s, " has ", stage.layers(), " layers from ", stage.first_layer(), ", but it is ",
        plan.topology().replicated() ? "a replica" : "the backward", " of stage ", twin));
  }
  if (stage.first_layer() == next_layer && stage.layers() >= 1 &&
      stage.layers() <= plan.job.chain.size() - next_layer) {
    return absl::OkStatus();
  }
  return BadPlan(absl::StrCat("stage ", s, " has ", stage.layers(), " layers from ",
                              stage.first_layer(), ", but the next of the model's ",
                              plan.job.chain.size(), " layers is ", next_layer));
}

// Whether the stages have the layers that the job lists, if it does.
absl::Status CheckStageLayers(const RunPlan& plan) {
  const std::vector<int32_t>& listed = plan.job.stage_layers;
  if (listed.empty()) return absl::OkStatus();
  const Topology& topology = plan.topology();
  if (topology.parts() != static_cast<int32_t>(listed.size())) {
    return BadPlan(
        absl::StrCat("has ", topology.parts(), " stages, the job's stage_layers ", listed.size()));
  }
  for (int32_t s = 0; s < topology.stages(); ++s) {
    const int32_t expected = listed[topology.PartOf(StageId(s))];
    if (plan.layers[s].count == expected) continue;
    return BadPlan(absl::StrCat("stage ", s, " has ", plan.layers[s].count,
                                " layers, the job's stage_layers ", expected));
  }
  return absl::OkStatus();
}

// Where the replicas of each stage of the job begin, of so many together; empty without replicas.
absl::StatusOr<std::vector<int32_t>> FirstOfPlaces(const ResolvedJob& job, int stages) {
  if (job.stage_replicas.empty()) return std::vector<int32_t>();
  const int64_t places = job.StagesOn(stages);
  if (places < 1 || job.WorkersOf(places) != stages) {
    return BadPlan(absl::StrCat("has ", stages, " stages, the job's replicas make ",
                                job.WorkersOf(std::max<int64_t>(places, 1))));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckStages(job, places));
  return TopologyOf(job, places).first_of_place;
}

// Stages in order, in each pipeline their layers one after the other over the whole chain; there
// and back once there, and the same on the way back.
absl::Status ReadStages(const v1::PrepareRunRequest& request, RunPlan& plan) {
  const auto& stages = request.plan().stages();
  const int pipelines = std::max(request.plan().pipelines(), 1);
  if (stages.size() % pipelines != 0) {
    return BadPlan(absl::StrCat("its ", stages.size(), " stages cannot make ", pipelines,
                                " pipelines of equal depth"));
  }
  const int depth = stages.size() / pipelines;
  plan.schedule.topology.pipelines = pipelines;
  PENSTOCK_ASSIGN_OR_RETURN(plan.schedule.topology.first_of_place,
                            FirstOfPlaces(plan.job, stages.size()));
  plan.workers.resize(stages.size());
  int next_layer = 0;
  for (int s = 0; s < stages.size(); ++s) {
    const v1::StageAssignment& stage = stages[s];
    if (s % depth == 0 && s > 0) {
      PENSTOCK_RETURN_IF_ERROR(CheckAllLayers(plan, next_layer));
      next_layer = 0;
    }
    if (stage.stage() != s) return BadPlan(absl::StrCat("entry ", s, " is stage ", stage.stage()));
    if (stage.worker_index() < 0 || stage.worker_index() >= stages.size()) {
      return BadPlan(absl::StrCat("stage ", s, " is on worker ", stage.worker_index(),
                                  ", expected 0 to ", stages.size() - 1));
    }
    const int twin = TwinBefore(plan, s, depth);
    PENSTOCK_RETURN_IF_ERROR(CheckLayers(plan, stage, twin, next_layer));
    plan.layers.push_back({stage.first_layer(), stage.layers()});
    plan.schedule.topology.worker_of.push_back(WorkerId(stage.worker_index()));
    plan.workers[stage.worker_index()] = stage.worker();
    if (twin < 0) next_layer += stage.layers();
  }
  return CheckAllLayers(plan, next_layer);
}

// The topology there and back that the job has, if the plan's stages are where it has them.
absl::StatusOr<Topology> RoundTripOf(const RunPlan& plan, const Topology& read) {
  const int64_t parts = (read.depth() + 1) / 2;
  if (plan.job.WorkersOf(parts) != read.workers) {
    return BadPlan(absl::StrCat("has ", read.workers, " workers for ", parts,
                                " stages there and back, the job has ", plan.job.WorkersOf(parts)));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckStages(plan.job, parts));
  Topology expected = TopologyOf(plan.job, parts);
  if (expected.worker_of == read.worker_of && expected.pipelines == read.pipelines) return expected;
  return BadPlan(absl::StrCat("its ", read.stages(), " stages in ", read.pipelines,
                              " pipelines do not go round the ", read.workers,
                              " workers as those of the job, ", expected.stages(), " in ",
                              expected.pipelines));
}

absl::Status ReadTopology(const v1::PrepareRunRequest& request, RunPlan& plan) {
  PENSTOCK_RETURN_IF_ERROR(ReadStages(request, plan));
  Topology topology = std::move(plan.schedule.topology);
  const auto last = std::max_element(topology.worker_of.begin(), topology.worker_of.end());
  topology.workers = last->value + 1;
  plan.workers.resize(topology.workers);
  plan.worker = WorkerId(request.worker_index());
  if (topology.replicated()) topology.groups = TopologyOf(plan.job, topology.depth()).groups;
  PENSTOCK_RETURN_IF_ERROR(CheckTopology(topology));
  if (plan.job.method->placement == Placement::kRoundTrip) {
    PENSTOCK_ASSIGN_OR_RETURN(topology, RoundTripOf(plan, topology));
    plan.schedule = ScheduleOptionsOf(plan.job, std::move(topology));
    if (plan.worker.value >= 0 && plan.worker.value < plan.topology().workers) {
      return absl::OkStatus();
    }
    return BadPlan(absl::StrCat("worker ", request.worker_index(), " has no stage"));
  }
  if (!topology.replicated()) PENSTOCK_RETURN_IF_ERROR(CheckReplicas(plan, topology));
  if (topology.pipelines > 1) {
    PENSTOCK_RETURN_IF_ERROR(CheckStages(plan.job, topology.depth()));
    topology.groups = TopologyOf(plan.job, topology.depth()).groups;
  }
  if (topology.StagesOf(plan.worker).empty()) {
    return BadPlan(absl::StrCat("worker ", request.worker_index(), " has no stage"));
  }
  plan.schedule = ScheduleOptionsOf(plan.job, std::move(topology));
  return absl::OkStatus();
}

absl::StatusOr<int> ReadEdgeCapacity(const v1::Plan& plan, const RunLimits& limits) {
  const int64_t capacity = plan.channel_capacity();
  if (capacity == 0) return limits.edge_capacity;
  if (capacity >= 1 && capacity <= limits.edge_capacity_max) return static_cast<int>(capacity);
  return BadPlan(
      absl::StrCat("channel_capacity is ", capacity, ", expected 0 to ", limits.edge_capacity_max));
}

absl::Status CheckDigest(const v1::PrepareRunRequest& request, RunPlan& plan) {
  PENSTOCK_ASSIGN_OR_RETURN(plan.digest,
                            DigestOfRun(plan.job, plan.schedule, plan.first_step, plan.cuts));
  if (plan.digest == request.plan().schedule_digest()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "this worker derives the schedule ", plan.digest, ", the coordinator's plan has ",
      request.plan().schedule_digest(), "; run the same build of Penstock everywhere"));
}

}  // namespace

std::vector<int64_t> RunPlan::InFlightMax() const {
  std::vector<int64_t> in_flight_max;
  for (const StageCounts& stage : counts) in_flight_max.push_back(stage.activations_peak);
  return in_flight_max;
}

absl::StatusOr<RunPlan> MakeRunPlan(const v1::PrepareRunRequest& request, const RunLimits& limits) {
  RunPlan plan;
  PENSTOCK_ASSIGN_OR_RETURN(plan.job, ResolveJob(request.spec()));
  plan.first_step = request.first_step();
  // A run that has nothing left to do is fine: it was ended after its last checkpoint.
  if (plan.first_step < 0 || plan.first_step > plan.job.steps) {
    return BadPlan(
        absl::StrCat("the run would start after step ", plan.first_step, " of ", plan.job.steps));
  }
  if (request.plan().stages().empty()) return BadPlan("has no stages");
  PENSTOCK_ASSIGN_OR_RETURN(plan.edge_capacity, ReadEdgeCapacity(request.plan(), limits));
  PENSTOCK_RETURN_IF_ERROR(ReadTopology(request, plan));
  PENSTOCK_RETURN_IF_ERROR(CheckStageLayers(plan));
  const std::vector<int64_t> extra_cuts(request.extra_cuts().begin(), request.extra_cuts().end());
  plan.cuts = CutsOf(request.spec(), plan.first_step, extra_cuts);
  PENSTOCK_RETURN_IF_ERROR(CheckDigest(request, plan));
  PENSTOCK_ASSIGN_OR_RETURN(plan.counts, CountsOfRun(plan.job, plan.schedule, plan.first_step,
                                                     plan.cuts, plan.edge_capacity));
  PENSTOCK_ASSIGN_OR_RETURN(plan.lateness, LatenessOf(plan.job, plan.schedule));
  return plan;
}

}  // namespace penstock
