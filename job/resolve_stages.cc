// The part of resolve.h that depends on the number of stages.
#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "job/keys/check_fields.h"
#include "job/keys/limits.h"
#include "job/resolve_pipeline.h"
#include "job/run/recorded.h"
#include "job/run/run_schedule.h"
#include "job/run/ties.h"
#include "model/families/gpt.h"
#include "schedule/block_draws.h"
#include "schedule/lower.h"

namespace penstock {
namespace {

absl::StatusOr<Topology> PlaceStages(const ResolvedJob& job, int64_t stages) {
  if (job.listed != nullptr) {
    Topology topology = job.listed->topology;
    // The model says what is shared, but for what replicas of a stage do, and the copies of a part.
    topology.groups.clear();
    const bool loops = job.goes_there_and_back();
    if (!job.stage_replicas.empty() || loops) topology.groups = GroupsOfParts(topology);
    if (!loops) topology.Recompute({});  // part of the job's choice
    return topology;
  }
  if (!job.stage_replicas.empty()) {
    return PlaceReplicas(*job.method, job.ReplicasOfStages(stages), job.stages_per_worker);
  }
  absl::StatusOr<Topology> topology = Place(job.method->placement, static_cast<int32_t>(stages),
                                            static_cast<int32_t>(job.WorkersOf(stages)),
                                            job.microbatches, job.replicas, job.stages_per_forward);
  return topology.ok() && job.streams_weights ? StreamWeights(*topology, job.weights_in_file)
                                              : topology;
}

// The methods that can have the stages where the job's cannot.
std::string OthersThatPlace(const ResolvedJob& job, int64_t stages) {
  std::vector<absl::string_view> names;
  for (const Method& method : Methods()) {
    const absl::Status placed =
        CheckPlacement(method.placement, static_cast<int32_t>(stages),
                       static_cast<int32_t>(stages / job.stages_per_worker), job.microbatches);
    if (placed.ok()) names.push_back(method.name);
  }
  return names.empty() ? "other numbers" : absl::StrJoin(names, ", ");
}

// Checks that there are as many places to cut as the stages need: the first layers may have none, nor those between uses
// of a shared parameter.
absl::Status CheckPlacesToCut(const ResolvedJob& job, int64_t stages) {
  const std::vector<bool> places = PlacesToCut(job);
  const int64_t most = std::count(places.begin(), places.end(), true);
  if (stages <= most) return absl::OkStatus();
  if (stages > job.model.stages_max()) {
    const LayerSpec& last = job.model.layers[job.model.first_stage_layers_min() - 1];
    return InvalidKey(
        "pipeline.stages",
        absl::StrCat("is ", stages, ", but layers ", job.model.layers.front().name, " to ",
                     last.name, " have to be on one stage: no layer before ", last.name,
                     " has parameters, so that no gradient would flow back over a cut there; ",
                     most, most == 1 ? " stage" : " stages", " would do"));
  }
  const std::string why = absl::StrCat(
      " for ", job.method->name, " with ", stages,
      " stages: the method updates every stage by itself, so two stages cannot share ");
  if (job.model.architecture == kGptArchitecture) {
    return InvalidKey("model.gpt.tied_head",
                      absl::StrCat("must be false", why,
                                   "the embedding's weight; model.untie: true would do as well, "
                                   "with a head that is equal to the embedding at the start"));
  }
  const Tie& tie = *std::find_if(job.model.ties.begin(), job.model.ties.end(),
                                 [](const Tie& each) { return !each.frozen(); });
  return InvalidKey(
      "model",
      absl::StrCat("must not share weights", why, tie.parameters.front().name, ", which layers ",
                   job.model.layers[tie.uses.front()].name, " and ",
                   job.model.layers[tie.uses.back()].name, " use; ", most,
                   most == 1 ? " stage" : " stages",
                   " would do, weights of its own for each use (model.untie: true), or a method "
                   "that drains at every step"));
}

// Checks that what nodes keep from step to step is with those who do their forwards: on one worker, or on replicas, each
// of which does the forwards of the same rows of every step.
absl::Status CheckBuffers(const ResolvedJob& job, const Topology& topology) {
  const bool replicated =
      !job.stage_replicas.empty() || job.method->placement == Placement::kReplicas;
  if (topology.parts() == topology.stages() || replicated) return absl::OkStatus();
  for (const Node& node : job.model.nodes) {
    if (node.buffers.empty()) continue;
    const bool carried = node.buffers.front().kind == BufferSpec::Kind::kCarried;
    return InvalidKey(
        "pipeline.method",
        absl::StrCat(job.method->name, " takes microbatches through any worker, but ", node.name,
                     " (", node.op->name, ") keeps ",
                     carried ? "a state of its own for each of them, carried from step to step"
                             : "running statistics of all of them",
                     "; use a method with one copy of each stage, pipeline.replicas or local-sgd, "
                     "or ",
                     carried ? "leave carried out" : "group_norm"));
  }
  return absl::OkStatus();
}

// A user who writes numbers, and no layers, learns here which there are.
std::string WhatLayersAre(const ModelGraph& model) {
  if (model.architecture == kGptArchitecture) {
    return " (embedding, attention and MLP of each block, final norm, head)";
  }
  return absl::StrCat(" (", model.layers.front().name, " to ", model.layers.back().name,
                      ", see penstock model show)");
}

// Checks that the layers that the job gives to each stage are those of the model.
absl::Status CheckStageLayers(const ResolvedJob& job, int64_t stages) {
  constexpr absl::string_view kKey = "pipeline.stage_layers";
  const auto listed = static_cast<int64_t>(job.stage_layers.size());
  if (listed == 0) return absl::OkStatus();
  if (listed != stages) {
    return InvalidKey(kKey, absl::StrCat("has ", listed, " numbers, but the pipeline has ", stages,
                                         " stages; one number for each stage, or pipeline.stages: ",
                                         listed, ", would do"));
  }
  const int64_t layers =
      std::accumulate(job.stage_layers.begin(), job.stage_layers.end(), int64_t{0});
  if (layers == job.model.size()) return absl::OkStatus();
  const int64_t of_last = job.stage_layers.back() + job.model.size() - layers;
  return InvalidKey(
      kKey,
      absl::StrCat("is ", absl::StrJoin(job.stage_layers, ","), ", together ", layers,
                   " layers, but the model has ", job.model.size(), WhatLayersAre(job.model), "; ",
                   of_last >= 1 ? absl::StrCat(of_last, " as the last number")
                                : absl::StrCat("numbers that add up to ", job.model.size()),
                   " would do"));
}

absl::Status CheckWorkerNames(const ResolvedJob& job, int64_t stages) {
  const auto named = static_cast<int64_t>(job.worker_names.size());
  const int64_t needed = job.WorkersOf(stages);
  if (named == 0 || named == needed) return absl::OkStatus();
  return InvalidKey("pipeline.worker_names",
                    absl::StrCat("has ", named, " names, but the pipeline has ", needed,
                                 " workers; one name for each, or none, would do"));
}

absl::Status CheckListedStages(const ResolvedJob& job, int64_t stages) {
  const Schedule& listed = *job.listed;
  if (stages != listed.topology.parts()) {
    return InvalidKey("pipeline.stages",
                      absl::StrCat("is ", stages, ", but pipeline.schedule_file lists ",
                                   listed.topology.parts(), " stages"));
  }
  if (job.goes_there_and_back() && listed.topology.rounds.step != listed.range.count) {
    return InvalidKey(
        "pipeline.schedule_file",
        absl::StrCat("lists ", listed.range.count, " microbatches in rounds of a step of ",
                     listed.topology.rounds.step, "; a file with one step would do"));
  }
  if (listed.range.count != job.microbatches) {
    return InvalidKey("training.microbatches",
                      absl::StrCat("is ", job.microbatches, ", but pipeline.schedule_file lists ",
                                   listed.range.count, " microbatches"));
  }
  return absl::OkStatus();
}

}  // namespace

int64_t FewestStages(const ResolvedJob& job) {
  std::vector<int32_t> places = job.recompute.places;
  for (const OffloadChoice::Stage& stage : job.offload.stages) places.push_back(stage.place);
  std::sort(places.begin(), places.end());
  if (job.knows_stages()) return job.StagesOn(0);
  const int64_t of_stage = job.stage_replicas.empty() ? 1 : job.stage_replicas.front();
  if (job.listed != nullptr || places.empty()) return job.StagesOn(of_stage);
  return job.StagesOn((places.back() / job.stages_per_worker + 1) * of_stage);
}

absl::Status CheckStages(const ResolvedJob& job, int64_t stages) {
  if (stages > job.model.size()) {
    return InvalidKey(
        "pipeline.stages",
        absl::StrCat("is ", stages, ", but the model has only ", job.model.size(), " layers",
                     WhatLayersAre(job.model), " and every stage needs one"));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckStageLayers(job, stages));
  PENSTOCK_RETURN_IF_ERROR(CheckWorkerNames(job, stages));
  if (job.listed != nullptr) {
    PENSTOCK_RETURN_IF_ERROR(CheckListedStages(job, stages));
  } else if (job.knows_stages() && stages != job.StagesOn(0)) {
    return InvalidKey(
        "pipeline.replicas",
        absl::StrCat("has ", job.StagesOn(0), " numbers, but the pipeline has ", stages,
                     " stages; one number for each stage, or one for all, "
                     "would do"));
  } else if (!job.workers.has_value() && stages % job.stages_per_worker != 0) {
    const int64_t below = stages / job.stages_per_worker * job.stages_per_worker;
    return InvalidKey("pipeline.stages",
                      absl::StrCat("is ", stages, ", but every worker holds ",
                                   job.stages_per_worker, " stages (pipeline.stages_per_worker); ",
                                   below > 0 ? absl::StrCat(below, " or ") : "",
                                   below + job.stages_per_worker, " would do"));
  }
  const absl::StatusOr<Topology> topology = PlaceStages(job, stages);
  if (!topology.ok() && job.method->placement == Placement::kRoundTrip) {
    const int64_t workers = job.WorkersOf(stages);
    if (job.streams_weights && stages < workers) {
      return InvalidKey(
          "pipeline.stages",
          absl::StrCat(job.method->name, ": is ", stages,
                       ", but streamed weights live with the workers that update "
                       "them, and each of the ",
                       workers, " workers has to; ", workers, " stages, or more, would do"));
    }
    const bool too_few =
        SlotsOfRoundTrip(static_cast<int32_t>(stages), job.stages_per_forward) < workers;
    return InvalidKey(too_few ? "pipeline.stages" : "training.microbatches",
                      absl::StrCat(job.method->name, ": ", topology.status().message()));
  }
  if (!topology.ok() && !job.stage_replicas.empty()) {
    return InvalidKey("pipeline.replicas", topology.status().message());
  }
  if (!topology.ok()) {
    return InvalidKey("pipeline.stages_per_worker",
                      absl::StrCat(job.method->name, ": ", topology.status().message(),
                                   "; leave the key out, or use ", OthersThatPlace(job, stages)));
  }
  const double drawn = static_cast<double>(job.steps) * static_cast<double>(job.microbatches) *
                       static_cast<double>(stages);
  if (job.draws() && drawn > static_cast<double>(kDrawsMax)) {
    return InvalidKey("training.steps",
                      absl::StrCat(job.method->name, " samples for every microbatch and stage, ",
                                   drawn, " times in ", job.steps, " steps; at most ", kDrawsMax,
                                   " are counted before a run: ",
                                   kDrawsMax / (job.microbatches * stages), " steps would do"));
  }
  if (const absl::Status places = CheckPlaces(job.recompute, topology->depth()); !places.ok()) {
    return InvalidKey("pipeline.recompute", places.message());
  }
  const absl::Status offload = CheckOffload(job.offload, job.recompute, topology->depth());
  if (!offload.ok()) return InvalidKey("pipeline.offload", offload.message());
  PENSTOCK_RETURN_IF_ERROR(CheckBuffers(job, *topology));
  PENSTOCK_RETURN_IF_ERROR(CheckPlacesToCut(job, stages));
  const std::vector<LayerRange> parts = SomeParts(job, stages);
  PENSTOCK_RETURN_IF_ERROR(CheckParts(job, parts));
  const ScheduleOptions options = ScheduleOptionsOf(job, *topology, parts);
  const absl::Status draws = CheckDraws(WeightPolicyOf(*job.method, options), options.topology);
  if (!draws.ok()) return InvalidKey("pipeline.rpd.delta", draws.message());
  const absl::Status step =
      CheckBuildable(*job.method, options, {.first = 0, .count = job.microbatches});
  const bool too_long = job.microbatches > ListedMicrobatchesMax(options.topology.depth());
  if (!step.ok()) {
    return InvalidKey(too_long ? "training.microbatches" : "pipeline.method", step.message());
  }
  PENSTOCK_RETURN_IF_ERROR(CheckRecordable(job, options));
  if (!job.staleness.error_feedback) return absl::OkStatus();
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<StageLateness> lateness, LatenessOf(job, options));
  int64_t worst = 0;
  for (const StageLateness& stage : lateness) worst = std::max(worst, stage.staleness);
  if (worst <= 1) return absl::OkStatus();
  return InvalidKey("training.staleness.error_feedback",
                    absl::StrCat("makes up for a delay of one update, but with ", job.method->name,
                                 " on ", stages, " stages gradients are up to ", worst,
                                 " updates late; use pipedream-2bw, whose delay is 1 on any number "
                                 "of stages, or an update per step (paci)"));
}

int64_t ResolvedJob::UpdatesBetween(int64_t from_step, int64_t to_step, int64_t stages,
                                    int64_t stage) const {
  const int64_t begins = std::clamp(synchronous_steps, from_step, to_step);
  const int64_t at_first =
      (begins - from_step) * (microbatches / microbatches_of_update(from_step));
  const int64_t by_method = (to_step - begins) * (microbatches / microbatches_of_update(to_step));
  const bool by_replica = method->updates_each_microbatch && !stage_replicas.empty();
  return at_first +
         by_method / (by_replica ? ReplicasOfStages(stages)[stage] : PipelinesOf(stages));
}

int64_t ResolvedJob::MovesUntil(int64_t step, int64_t stage, int64_t stages) const {
  const BlockDraws draws(seed, PipelineDelay(stages), static_cast<int32_t>(stages));
  const int64_t begins = std::min(synchronous_steps, step);
  int64_t moves = begins;  // an update a step until the method begins
  for (int64_t m = begins * microbatches; m < step * microbatches; ++m) {
    moves += draws.StageOf(m) == stage;
  }
  return moves;
}

Topology TopologyOf(const ResolvedJob& job, int64_t stages) {
  return PlaceStages(job, stages).value();
}

ScheduleOptions ScheduleOptionsOf(const ResolvedJob& job, Topology topology) {
  topology.Recompute(ChosenStages(job.recompute, topology));
  return {.topology = std::move(topology),
          .microbatches_per_step = job.microbatches,
          .weights = job.weights,
          .delta = job.delta,
          .seed = job.seed,
          .listed = job.listed,
          .global_norm = job.clip.kind == Clip::Kind::kGlobalNorm,
          .microbatches_per_update = job.update_every,
          .offload = job.offload};
}

ScheduleOptions ScheduleOptionsOf(const ResolvedJob& job, Topology topology,
                                  absl::Span<const LayerRange> parts) {
  AddTieGroups(TieGroupsOf(job.model, parts), topology);
  return ScheduleOptionsOf(job, std::move(topology));
}

}  // namespace penstock
