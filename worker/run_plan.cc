#include "worker/run_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "job/run/run_schedule.h"
#include "job/run/ties.h"

namespace penstock {
namespace {

absl::Status BadPlan(const std::string& message) {
  return absl::InvalidArgumentError(absl::StrCat("plan: ", message));
}

// The topology that the job has on as many stages as the plan.
absl::StatusOr<Topology> TopologyOfPlan(const v1::Plan& plan, const ResolvedJob& job) {
  const int stages = plan.stages_size();
  const int pipelines = std::max(plan.pipelines(), 1);
  if (stages % pipelines != 0) {
    return BadPlan(absl::StrCat("its ", stages, " stages cannot make ", pipelines,
                                " pipelines of equal depth"));
  }
  const int depth = stages / pipelines;
  const int64_t parts = job.goes_there_and_back()    ? (depth + 1) / 2
                        : job.stage_replicas.empty() ? depth
                                                     : job.StagesOn(depth / job.stages_per_worker);
  PENSTOCK_RETURN_IF_ERROR(Annotate(CheckStages(job, std::max<int64_t>(parts, 1)), "plan"));
  Topology topology = TopologyOf(job, std::max<int64_t>(parts, 1));
  if (topology.stages() == stages && topology.pipelines == pipelines) return topology;
  return BadPlan(absl::StrCat("has ", pipelines, " pipelines of ", depth, " stages, the job has ",
                              topology.pipelines, " of ", topology.stages() / topology.pipelines));
}

absl::Status CheckPlace(const v1::StageAssignment& stage, int s, const Topology& topology) {
  if (stage.stage() != s) return BadPlan(absl::StrCat("entry ", s, " is stage ", stage.stage()));
  const int32_t expected = topology.table[s].worker.value;
  if (stage.worker_index() == expected) return absl::OkStatus();
  return BadPlan(absl::StrCat("stage ", s, " is on worker ", stage.worker_index(),
                              ", the job has it on worker ", expected));
}

// Adds the layers of stage `s`. The parts of the model have their layers one after the other, and
// all stages of a part the same. `first_of_part`: the first stage of each part so far.
absl::Status AddLayers(const v1::StageAssignment& stage, int s, RunPlan& plan,
                       std::vector<int>& first_of_part) {
  const StageWiring& row = plan.topology().table[s];
  const LayerRange layers = {stage.first_layer(), stage.layers()};
  const std::string what =
      absl::StrCat("stage ", s, " has ", layers.count, " layers from ", layers.first, ", but ");
  plan.layers.push_back(layers);
  if (row.part < static_cast<int>(first_of_part.size())) {
    const int twin = first_of_part[row.part];
    if (layers == plan.layers[twin]) return absl::OkStatus();
    return BadPlan(absl::StrCat(what, "it is ", row.forward ? "a replica" : "the backward",
                                " of stage ", twin));
  }
  const int next = first_of_part.empty() ? 0 : plan.layers[first_of_part.back()].end();
  const int model = plan.job.model.size();
  if (layers.first != next || layers.count < 1 || layers.count > model - next) {
    return BadPlan(absl::StrCat(what, "the next of the model's ", model, " layers is ", next));
  }
  first_of_part.push_back(s);
  if (plan.job.stage_layers.empty() || plan.job.stage_layers[row.part] == layers.count) {
    return absl::OkStatus();
  }
  return BadPlan(absl::StrCat("stage ", s, " has ", layers.count,
                              " layers, the job's stage_layers ", plan.job.stage_layers[row.part]));
}

absl::Status ReadStages(const v1::PrepareRunRequest& request, RunPlan& plan) {
  PENSTOCK_ASSIGN_OR_RETURN(Topology topology, TopologyOfPlan(request.plan(), plan.job));
  plan.schedule = ScheduleOptionsOf(plan.job, std::move(topology));
  plan.workers.resize(plan.topology().workers);
  std::vector<int> first_of_part;
  for (int s = 0; s < plan.topology().stages(); ++s) {
    const v1::StageAssignment& stage = request.plan().stages(s);
    PENSTOCK_RETURN_IF_ERROR(CheckPlace(stage, s, plan.topology()));
    PENSTOCK_RETURN_IF_ERROR(AddLayers(stage, s, plan, first_of_part));
    plan.workers[stage.worker_index()] = stage.worker();
  }
  const int layers = plan.layers[first_of_part.back()].end();
  if (layers != plan.job.model.size()) {
    return BadPlan(
        absl::StrCat("its stages have ", layers, " layers, the model has ", plan.job.model.size()));
  }
  const std::vector<LayerRange> parts = LayersOfParts(plan.topology(), plan.layers);
  PENSTOCK_RETURN_IF_ERROR(Annotate(CheckParts(plan.job, parts), "plan"));
  plan.schedule = ScheduleOptionsOf(plan.job, plan.topology(), parts);
  plan.worker = WorkerId(request.worker_index());
  if (plan.worker.value >= 0 && plan.worker.value < plan.topology().workers) {
    return absl::OkStatus();
  }
  return BadPlan(absl::StrCat("worker ", request.worker_index(), " has no stage"));
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
  if (plan.first_step > 0 && request.checkpoint().empty() && !request.has_snapshot()) {
    return BadPlan(absl::StrCat("the run would start after step ", plan.first_step,
                                " without a checkpoint or a snapshot"));
  }
  if (request.plan().stages().empty()) return BadPlan("has no stages");
  PENSTOCK_ASSIGN_OR_RETURN(plan.edge_capacity, ReadEdgeCapacity(request.plan(), limits));
  PENSTOCK_RETURN_IF_ERROR(ReadStages(request, plan));
  const std::vector<int64_t> extra_cuts(request.extra_cuts().begin(), request.extra_cuts().end());
  plan.snapshots = SnapshotRuleOf(request.spec(), plan.job);
  plan.cuts = CutsOf(request.spec(), plan.first_step, extra_cuts);
  PENSTOCK_RETURN_IF_ERROR(CheckDigest(request, plan));
  PENSTOCK_ASSIGN_OR_RETURN(plan.counts, CountsOfRun(plan.job, plan.schedule, plan.first_step,
                                                     plan.cuts, plan.edge_capacity));
  PENSTOCK_ASSIGN_OR_RETURN(plan.lateness, LatenessOf(plan.job, plan.schedule));
  return plan;
}

}  // namespace penstock
