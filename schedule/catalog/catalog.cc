#include "schedule/catalog/catalog.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/status.h"
#include "schedule/catalog/schedules.h"
#include "schedule/lower.h"
#include "schedule/streamed_weights.h"
#include "schedule/warm_up.h"

namespace penstock {

// One of each file of this folder (schedules.h).
Method::List DualPipeV, Gpipe, InterleavedOneFOneB, ListedStep, LocalSgd, LoopedBreadthFirst,
    OneFOneB, Paci, PipeDream, PipeDream2BW, RandomizedPipeDream, RoundPipe, RoundPipeAsync,
    ZeroBubbleH1, ZeroBubbleH2, ZeroBubbleV;

namespace {

constexpr absl::string_view kGoesRound =
    "takes every stage round all of its workers, each of which is a replica of it already; use "
    "more workers";

constexpr Method kMethods[] = {
    {.name = "gpipe",
     .summary = "all forwards of a step, then all backwards; stashes every microbatch of the step",
     .paper = "Huang et al., NeurIPS 2019, arXiv 1811.06965",
     .weights = &Weights::kSingle,
     .synchronous = true,
     .program = Gpipe},
    {.name = "1f1b",
     .summary = "forward and backward in turn, an update at the end of the step; small stash",
     .paper = "Narayanan et al., ICML 2021, arXiv 2006.09503",
     .weights = &Weights::kSingle,
     .synchronous = true,
     .program = OneFOneB},
    {.name = "interleaved-1f1b",
     .summary = "1F1B with several smaller stages on each worker; smaller bubble, more messages",
     .paper = "Narayanan et al., SC 2021, arXiv 2104.04473",
     .weights = &Weights::kSingle,
     .synchronous = true,
     .program = InterleavedOneFOneB,
     .placement = Placement::kLooped,
     .steps_in_rounds = true},
    {.name = "looped-bfs",
     .summary = "gpipe with several smaller stages on each worker; smaller bubble, largest stash",
     .paper = "Lamy-Poirier, MLSys 2023, arXiv 2211.05953",
     .weights = &Weights::kSingle,
     .synchronous = true,
     .program = LoopedBreadthFirst,
     .placement = Placement::kLooped},
    {.name = "zb-h1",
     .summary = "1f1b whose weight gradients fill the drain; a third of the bubble, same stash",
     .paper = "Qi et al., ICLR 2024, arXiv 2401.10241",
     .weights = &Weights::kSingle,
     .synchronous = true,
     .program = ZeroBubbleH1,
     .sends_gradient_early = true},
    {.name = "zb-h2",
     .summary =
         "zb-h1 with more forwards in flight; no bubble if F, I and W are equal, twice the stash",
     .paper = "Qi et al., ICLR 2024, arXiv 2401.10241",
     .weights = &Weights::kSingle,
     .synchronous = true,
     .program = ZeroBubbleH2,
     .sends_gradient_early = true},
    {.name = "zb-v",
     .summary = "zero bubble with two stages on each worker, down and back up; the stash of 1f1b",
     .paper = "Qi et al., NeurIPS 2024, arXiv 2405.15362",
     .weights = &Weights::kSingle,
     .synchronous = true,
     .program = ZeroBubbleV,
     .placement = Placement::kV,
     .sends_gradient_early = true},
    {.name = "dualpipe-v",
     .summary =
         "two stages on each worker, down and back up; a forward and a backward side by side",
     .paper = "DeepSeek-AI, 2024, arXiv 2412.19437",
     .weights = &Weights::kSingle,
     .synchronous = true,
     .program = DualPipeV,
     .placement = Placement::kV,
     .sends_gradient_early = true},
    {.name = "local-sgd",
     .summary = "replicas take local steps through the same workers, then average their weights",
     .paper = "Stich, ICLR 2019, arXiv 1805.09767; Ilin and Richtarik, 2026, arXiv 2606.03498",
     .weights = &Weights::kSingle,
     .synchronous = true,
     .program = LocalSgd,
     .placement = Placement::kReplicas,
     .updates_each_microbatch = true,
     .steps_in_rounds = true,
     .why_no_replicas = "has replicas of the whole model"},
    {.name = "roundpipe",
     .summary = "the stages of every round go on round the workers; any number of stages, full "
                "recomputation",
     .paper = "Luo et al., 2026, arXiv 2604.27085",
     .weights = &Weights::kSingle,
     .synchronous = true,
     .program = RoundPipe,
     .placement = Placement::kRoundTrip,
     .steps_in_rounds = true,
     .why_no_replicas = kGoesRound},
    {.name = "roundpipe-async",
     .summary =
         "roundpipe whose steps do not wait for updates; weights one version late, streamed, "
         "2 versions",
     .paper = "Luo et al., 2026, arXiv 2604.27085",
     .weights = &Weights::kDoubleBuffer,
     .synchronous = false,
     .program = RoundPipeAsync,
     .placement = Placement::kRoundTrip,
     .steps_in_rounds = true,
     .streams_weights = true,
     .why_no_replicas = kGoesRound},
    {.name = "pipedream",
     .summary = "1F1B without end, an update after every microbatch; no bubble, stashed weights",
     .paper = "Narayanan et al., SOSP 2019",
     .weights = &Weights::kStash,
     .synchronous = false,
     .program = PipeDream,
     .updates_each_microbatch = true},
    {.name = "vertical-sync",
     .summary =
         "pipedream whose stages all read the version that the first one read; more versions",
     .paper = "Narayanan et al., SOSP 2019",
     .weights = &Weights::kVerticalSync,
     .synchronous = false,
     .program = PipeDream,
     .updates_each_microbatch = true},
    {.name = "rpd",
     .summary =
         "pipedream with sampled delays that updates one sampled stage a microbatch; for theory",
     .paper = "Ilin and Richtarik, 2026, arXiv 2606.03498",
     .weights = &Weights::kDrawn,
     .synchronous = false,
     .program = RandomizedPipeDream,
     .updates_each_microbatch = true,
     .why_no_replicas =
         "updates one sampled stage after every single microbatch, so replicas would "
         "have nothing to add up; use pipedream"},
    {.name = "pipedream-2bw",
     .summary =
         "1F1B without end, an update per step, weights one version late; no bubble, 2 versions",
     .paper = "Narayanan et al., ICML 2021, arXiv 2006.09503",
     .weights = &Weights::kDoubleBuffer,
     .synchronous = false,
     .program = PipeDream2BW},
    {.name = "paci",
     .summary =
         "1F1B without end, an update per step, always the current weights; no bubble, 1 version",
     .paper = "Elam et al., 2026, arXiv 2606.07881",
     .weights = &Weights::kSingle,
     .synchronous = false,
     .program = Paci,
     .chooses_update_interval = true},
    {.name = "pipemare",
     .summary = "paci with rates that rise from 1/delay and backward weights moved back; no bubble",
     .paper = "Yang et al., MLSys 2021, arXiv 1910.05124",
     .weights = &Weights::kCorrected,
     .synchronous = false,
     .program = Paci,
     .update = {.reschedules_rates = true}},
    {.name = "nesterov",
     .summary = "pipedream with NAdamW, whose look-ahead makes up for late gradients; no bubble",
     .paper = "Ajanthan et al., ICML 2025, arXiv 2505.01099",
     .weights = &Weights::kStash,
     .synchronous = false,
     .program = PipeDream,
     .updates_each_microbatch = true,
     .update = {.optimizer = "nadamw"}},
    {.name = "nesterov-no-stash",
     .summary = "nesterov with one version of the weights, and rate and momentum by stage",
     .paper = "Ajanthan et al., ICML 2025, arXiv 2505.01099",
     .weights = &Weights::kSingle,
     .synchronous = false,
     .program = PipeDream,
     .updates_each_microbatch = true,
     .update = {.optimizer = "nadamw", .reschedules_rates = true, .stage_momentum = true}},
    {.name = "spectrain",
     .summary = "pipedream with one version and predicted weights in place of stashed ones",
     .paper = "Chen et al., 2018, arXiv 1809.02839",
     .weights = &Weights::kSpecTrain,
     .synchronous = false,
     .program = PipeDream,
     .updates_each_microbatch = true},
    {.name = "xpipe",
     .summary = "paci with forward weights predicted for the time of the backward; no bubble",
     .paper = "Guan et al., 2019, arXiv 1911.04610",
     .weights = &Weights::kPredicted,
     .synchronous = false,
     .program = Paci},
};

constexpr Method kListed = {
    .name = "schedule-file",
    .summary = "the step that a schedule file lists, over and over",
    .paper = "",
    .weights = &Weights::kSingle,
    .synchronous = true,
    .program = ListedStep,
    .placement = Placement::kListed,
    .why_no_replicas = "says itself which stages have replicas; leave the key out"};

constexpr Method kSearched = {
    .name = "searched",
    .summary = "an order that is searched for the times of the job's stages; any bubble and stash",
    .paper = "as Qi et al., ICLR 2024, arXiv 2401.10241",
    .weights = &Weights::kSingle,
    .synchronous = true,
    .program = ListedStep,
    .placement = Placement::kListed};

const Weights& WeightsOf(const Method& method, const ScheduleOptions& options) {
  return options.weights == nullptr ? *method.weights : *options.weights;
}

// Checks that a range is a whole number of steps where it must be.
bool RunsWholeSteps(const Method& method) {
  return method.synchronous || !method.updates_each_microbatch;
}

// Checks that a step has a multiple of `round` microbatches; `why` says where that number comes from.
absl::Status CheckMultiple(absl::string_view who, int64_t got, int64_t round,
                           absl::string_view why) {
  if (got % round == 0) return absl::OkStatus();
  const int64_t below = got / round * round;
  return absl::InvalidArgumentError(absl::StrCat(
      who, " needs a multiple of ", round, " microbatches in a step, ", why, "; got ", got, "; ",
      below > 0 ? absl::StrCat(below, " or ") : "", below + round, " would do"));
}

absl::Status CheckRounds(const Method& method, const ScheduleOptions& options) {
  if (!method.steps_in_rounds) return absl::OkStatus();
  if (method.placement == Placement::kRoundTrip) return absl::OkStatus();  // part of its topology
  const bool replicas = method.placement == Placement::kReplicas;
  return CheckMultiple(method.name, options.microbatches_per_step,
                       replicas ? options.topology.pipelines : options.topology.workers,
                       replicas ? "as many as there are replicas" : "as many as there are workers");
}

absl::Status CheckReplicas(const Method& method, const ScheduleOptions& options,
                           MicrobatchRange range) {
  const Topology& topology = options.topology;
  if (topology.form != Topology::Form::kReplicas) return absl::OkStatus();
  const int64_t cycle = topology.cycle;
  const std::string replicas = absl::StrJoin(ReplicasOf(topology), ",");
  if (const int64_t most = ListedMicrobatchesMax(topology.depth()); cycle > most) {
    return absl::InvalidArgumentError(
        absl::StrCat(method.name, " with ", replicas, " replicas starts over only after ", cycle,
                     " microbatches, which are too many to be listed; at most ", most,
                     " are possible: use numbers with common divisors"));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckMultiple(absl::StrCat(method.name, " with ", replicas, " replicas"),
                                         options.microbatches_per_step, cycle,
                                         "the least common multiple of their numbers"));
  if (range.first % cycle == 0 && range.count % cycle == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the range of ", range.count, " microbatches from ", range.first,
                   " must begin and end at a multiple of ", cycle,
                   ", the least common multiple of ", replicas, " replicas"));
}

// The microbatches that are in flight at most: without replicas as many as there are stages.
int64_t InFlightMax(const Topology& topology) {
  const std::vector<int32_t> replicas = ReplicasOf(topology);
  const std::vector<int64_t> ahead = MicrobatchesAhead(replicas);
  int64_t most = 0;
  for (size_t place = 0; place < replicas.size(); ++place) {
    most = std::max(most, ahead[place] + replicas[place]);
  }
  return most;
}

// Checks that the version that a forward reads is made by then, where it is that before the last update.
absl::Status CheckFillsPipeline(const Method& method, const ScheduleOptions& options) {
  // Weights are streamed where a worker has a part at least, so a step's updates come before the next step but one begins.
  if (options.topology.form == Topology::Form::kThereAndBack) return absl::OkStatus();
  const Weights& weights = WeightsOf(method, options);
  const int64_t least = weights.fills_pipeline ? InFlightMax(options.topology) : 0;
  const int64_t of_update = MicrobatchesOfUpdate(method, options);
  if (least == 0 || of_update >= least) return absl::OkStatus();
  const bool replicated = options.topology.form == Topology::Form::kReplicas;
  return absl::InvalidArgumentError(
      absl::StrCat(method.name, " with the weights \"", weights.name,
                   "\" needs at least as many microbatches in ",
                   options.microbatches_per_update.has_value() ? "an update as " : "a step as ",
                   replicated ? "are in flight with these replicas, " : "there are stages, ", least,
                   "; got ", of_update));
}

// Checks the microbatches of an update, where the options choose them.
absl::Status CheckUpdates(const Method& method, const ScheduleOptions& options) {
  if (!options.microbatches_per_update.has_value()) return absl::OkStatus();
  const int64_t of_update = *options.microbatches_per_update;
  if (!method.chooses_update_interval) {
    return absl::InvalidArgumentError(
        absl::StrCat(method.name, " updates a stage ",
                     method.updates_each_microbatch ? "after every microbatch" : "once in a step",
                     "; paci updates it after a number of microbatches"));
  }
  if (of_update < 1 || options.microbatches_per_step % of_update != 0) {
    return absl::InvalidArgumentError(absl::StrCat("an update of ", of_update,
                                                   " microbatches does not divide a step of ",
                                                   options.microbatches_per_step));
  }
  if (of_update % options.topology.cycle == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("an update of ", of_update, " microbatches is no multiple of ",
                   options.topology.cycle, ", after which the replicas start over together"));
}

absl::Status CheckSteps(const Method& method, const ScheduleOptions& options,
                        MicrobatchRange range) {
  const int64_t per_step = options.microbatches_per_step;
  if (per_step < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a step needs at least 1 microbatch, got ", per_step));
  }
  if (range.first % options.topology.rounds.step != 0) {
    return absl::InvalidArgumentError(absl::StrCat("the range begins at microbatch ", range.first,
                                                   ", not with one of the steps of ", per_step,
                                                   " that go round the workers"));
  }
  if (RunsWholeSteps(method) && range.count % per_step != 0) {
    return absl::InvalidArgumentError(absl::StrCat("the range of ", range.count,
                                                   " microbatches is not a whole number of steps "
                                                   "of ",
                                                   per_step));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckUpdates(method, options));
  PENSTOCK_RETURN_IF_ERROR(CheckRounds(method, options));
  PENSTOCK_RETURN_IF_ERROR(CheckReplicas(method, options, range));
  PENSTOCK_RETURN_IF_ERROR(CheckFillsPipeline(method, options));
  const int64_t most = ListedMicrobatchesMax(options.topology.depth(), options.step_actions_max);
  if (RunsWholeSteps(method) && per_step > most) {
    return absl::InvalidArgumentError(
        absl::StrCat("a step of ", per_step, " microbatches on ", options.topology.stages(),
                     " stages is too long to be listed; at most ", most, " are possible"));
  }
  return absl::OkStatus();
}

absl::Status RefuseWeights(const Method& method, const Weights& weights, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat(method.name, " cannot have the weights \"", weights.name, "\": ", why));
}

absl::Status CheckListed(const ScheduleOptions& options) {
  if (options.listed == nullptr)
    return absl::InvalidArgumentError("the custom schedule is missing");
  const Topology& listed = options.listed->topology;
  const Topology& planned = options.topology;
  const bool same_form = listed.form == planned.form && listed.pipelines == planned.pipelines &&
                         listed.rounds == planned.rounds &&
                         listed.streams_weights == planned.streams_weights &&
                         listed.weights_in_file == planned.weights_in_file;
  const bool same_workers = std::equal(
      listed.table.begin(), listed.table.end(), planned.table.begin(), planned.table.end(),
      [](const StageWiring& a, const StageWiring& b) { return a.worker == b.worker; });
  if (!same_form) {
    return absl::InvalidArgumentError(
        "the schedule's pipelines have another form than those of the plan: other rounds there and "
        "back, replicas of another kind, or weights that are streamed in only one of the two");
  }
  if (!same_workers) {
    return absl::InvalidArgumentError(
        absl::StrCat("the schedule is for ", listed.stages(), " stages on ", listed.workers,
                     " workers, the plan has ", options.topology.stages(), " on ",
                     options.topology.workers, ", or has them elsewhere"));
  }
  if (options.listed->range.count != options.microbatches_per_step) {
    return absl::InvalidArgumentError(
        absl::StrCat("the schedule lists a step of ", options.listed->range.count,
                     " microbatches, the steps have ", options.microbatches_per_step));
  }
  return absl::OkStatus();
}

absl::Status CheckReplicates(const Method& method) {
  if (method.replicates_stages()) return absl::OkStatus();
  return absl::InvalidArgumentError(method.why_no_replicas);
}

// True if replicas of the method's stages are whole pipelines, because a worker has several stages.
bool ReplicatesPipelines(const Method& method) {
  return method.placement == Placement::kLooped || method.placement == Placement::kV;
}

// Checks the replicas of stages of which a worker has several. An order of such a method says when a worker turns
// from one of its stages to another by what all others have done by then.
absl::Status CheckWholePipelines(const Method& method, absl::Span<const int32_t> replicas,
                                 int32_t workers_of_pipeline) {
  if (!AreAlike(replicas)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "expected as many replicas of each stage, got ", absl::StrJoin(replicas, ","),
        ": the order of ", method.name,
        " says when a worker turns from one of its stages to another by what all workers have "
        "done by then, and with unlike numbers they have done unlike numbers of microbatches; one "
        "number for all stages would do"));
  }
  return CheckPlacement(method.placement, static_cast<int32_t>(replicas.size()),
                        workers_of_pipeline, /*microbatches_per_step=*/1);
}

// Returns the program of a worker whose pipeline is one of several beside each other. It is that of a pipeline alone, with
// every r-th microbatch, where r is the number of replicas.
Program ProgramOfPipeline(const Method& method, const ScheduleOptions& options, WorkerId worker,
                          MicrobatchRange range) {
  const Topology& topology = options.topology;
  const int32_t replicas = topology.table.front().replicas;
  const int32_t replica = worker.value % replicas;
  std::vector<WorkerId> worker_of;
  for (const StageId first : topology.first_of_place) {
    worker_of.emplace_back(topology.worker(first).value / replicas);
  }
  ScheduleOptions alone = options;
  alone.topology = PipelineOn(std::move(worker_of));
  alone.microbatches_per_step /= replicas;
  Program program = method.program(alone, WorkerId(worker.value / replicas),
                                   {range.first / replicas, range.count / replicas});
  program.shift *= replicas;
  for (ActionList* list : {&program.prologue, &program.period, &program.epilogue}) {
    for (Action& action : *list) {
      action.index = topology.first_of_place[action.index].value + replica;
      if (HasMicrobatch(action.kind)) action.microbatch = action.microbatch * replicas + replica;
    }
  }
  return program;
}

Program ProgramOf(const Method& method, const ScheduleOptions& options, WorkerId worker,
                  MicrobatchRange range) {
  const bool replicated = options.topology.form == Topology::Form::kReplicas;
  return replicated && ReplicatesPipelines(method)
             ? ProgramOfPipeline(method, options, worker, range)
             : method.program(options, worker, range);
}

// The worker on which the method has a stage.
WorkerId PlaceOf(const Method& method, const Topology& topology, StageId stage) {
  const StageWiring& row = topology[stage];
  if (method.placement == Placement::kRoundTrip) {
    return WorkerAt(method.placement, row.pipeline * topology.slots() + row.slot, topology.workers);
  }
  if (topology.form != Topology::Form::kReplicas || !ReplicatesPipelines(method)) {
    return WorkerAt(method.placement, stage.value, topology.workers);
  }
  const int32_t of_pipeline = topology.workers / row.replicas;
  return WorkerId(WorkerAt(method.placement, row.place, of_pipeline).value * row.replicas +
                  row.replica);
}

absl::Status CheckReplicated(const Method& method, const Topology& topology) {
  PENSTOCK_RETURN_IF_ERROR(CheckReplicates(method));
  if (!ReplicatesPipelines(method)) return absl::OkStatus();
  const std::vector<int32_t> replicas = ReplicasOf(topology);
  return CheckWholePipelines(method, replicas, topology.workers / replicas.front());
}

// Checks that the stages of the plan are wired, grouped and placed as the method has them.
absl::Status CheckPlaced(const Method& method, const ScheduleOptions& options) {
  const Topology& topology = options.topology;
  const int64_t step = options.microbatches_per_step;
  PENSTOCK_RETURN_IF_ERROR(
      Annotate(topology.form == Topology::Form::kReplicas
                   ? CheckReplicated(method, topology)
                   : CheckPlacement(method.placement, topology.parts(), topology.workers, step),
               method.name));
  const bool loops = method.placement == Placement::kRoundTrip;
  if (loops && topology.slots() < topology.workers) {
    return absl::InvalidArgumentError(
        absl::StrCat(method.name, " goes round ", topology.workers, " workers, but the plan has ",
                     topology.slots(), " slots, because forwards of several stages share one"));
  }
  const Topology::Rounds rounds = loops ? RoundsOf(topology.workers, step) : Topology::Rounds();
  const int32_t pipelines = loops ? RoundTripsOf(topology.slots(), topology.workers, step)
                            : method.placement == Placement::kReplicas ? topology.pipelines
                                                                       : 1;
  if (method.streams_weights && (!topology.streams_weights || topology.weights_in_file)) {
    return absl::InvalidArgumentError(
        absl::StrCat(method.name, " streams weights that wait in memory; the plan has them ",
                     topology.weights_in_file ? "in files" : "with every worker that passes them"));
  }
  const bool as_many = !loops || pipelines == topology.pipelines;
  if (loops != (topology.form == Topology::Form::kThereAndBack) || rounds != topology.rounds ||
      !as_many) {
    return absl::InvalidArgumentError(absl::StrCat(
        method.name, loops ? " goes" : " does not go", " there and back in rounds of the step's ",
        step, " microbatches; the plan has ", topology.stages(), " stages in rounds of ",
        topology.rounds.microbatches, " of ", topology.rounds.step));
  }
  const std::vector<ReduceGroup> groups = GroupsOfParts(topology, GradientsCombine(method));
  if (pipelines != topology.pipelines || groups.size() > topology.groups.size() ||
      !std::equal(groups.begin(), groups.end(), topology.groups.begin())) {
    return absl::InvalidArgumentError(absl::StrCat(
        method.name, " needs ", pipelines, " pipelines whose ",
        topology.form == Topology::Form::kReplicas ? "replicas combine gradients as it does"
        : loops                                    ? "weights are copied by part"
                                                   : "weights are averaged by stage",
        "; the plan has ", topology.pipelines, " with ", topology.groups.size(), " groups"));
  }
  for (int32_t stage = 0; stage < topology.stages(); ++stage) {
    const WorkerId expected = PlaceOf(method, topology, StageId(stage));
    const StageWiring& row = topology.table[stage];
    if (row.slot != topology[topology.first_of_place[row.place]].slot) {
      return absl::InvalidArgumentError(absl::StrCat(method.name, ": stage ", stage,
                                                     " shares its slot with other parts than in ",
                                                     "the first pipeline"));
    }
    if (expected == row.worker) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(method.name, ": stage ", stage, " belongs on worker ", expected.value,
                     ", but the plan has it on worker ", topology.table[stage].worker.value));
  }
  if (method.synchronous || topology.groups.size() == groups.size()) return absl::OkStatus();
  const std::vector<StageId>& tied = topology.groups[groups.size()].stages;
  return absl::InvalidArgumentError(absl::StrCat(
      method.name, " updates each stage by itself, so stages ", tied.front().value, " and ",
      tied.back().value, " cannot share parameters; untie them or keep them on one stage"));
}

absl::Status CheckFits(const Method& method, const ScheduleOptions& options) {
  const Topology& topology = options.topology;
  PENSTOCK_RETURN_IF_ERROR(CheckTopology(topology));
  PENSTOCK_RETURN_IF_ERROR(CheckWeights(method, WeightsOf(method, options)));
  PENSTOCK_RETURN_IF_ERROR(
      Annotate(CheckDraws(WeightPolicyOf(method, options), topology), method.name));
  if (method.placement == Placement::kListed) return CheckListed(options);
  PENSTOCK_RETURN_IF_ERROR(CheckPlaced(method, options));
  if (options.global_norm && !method.synchronous) {
    return absl::InvalidArgumentError(
        absl::StrCat(method.name,
                     " updates each stage by itself, so there is no moment with a gradient of the "
                     "whole model; clip per layer or not at all"));
  }
  if (options.delta.has_value() && !WeightsOf(method, options).draws) {
    return absl::InvalidArgumentError(absl::StrCat(
        method.name,
        " samples no delays: how late its gradients are follows from its order; rpd has a "
        "greatest delay"));
  }
  return absl::OkStatus();
}

absl::Status CheckOffload(const ScheduleOptions& options) {
  const OffloadChoice& offload = options.offload;
  const Topology& topology = options.topology;
  if (offload.none()) return absl::OkStatus();
  if (options.listed != nullptr && MovesStashes(*options.listed)) {
    return absl::InvalidArgumentError(
        "the custom schedule says itself which stashes are offloaded, so nothing else can");
  }
  if (topology.form == Topology::Form::kThereAndBack) {
    return absl::InvalidArgumentError(
        "there and back all stages with backwards recompute or keep one stash, so none is "
        "offloaded");
  }
  for (int32_t id = 0; id < topology.stages(); ++id) {
    const StageWiring& row = topology[StageId(id)];
    if (!row.recomputes || offload.StashesOf(row.place) == 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("stage ", id, " recomputes and so keeps no stash that could be offloaded"));
  }
  return absl::OkStatus();
}

// The stashes that each stage may have on its device; 0 where it never has more in any range, so that a range that is cut
// short offloads as the whole one does.
std::vector<int32_t> StashesOnDevice(const Method& method, const ScheduleOptions& options,
                                     MicrobatchRange range) {
  const Topology& topology = options.topology;
  std::vector<int32_t> stashes(topology.stages());
  // Long enough for the pipeline to fill, with replicas too.
  const int64_t step = options.microbatches_per_step;
  const int64_t steps = method.synchronous ? 1 : 4 * topology.stages() / step + 4;
  for (int32_t id = 0; id < topology.workers; ++id) {
    const WorkerId worker(id);
    const std::vector<int64_t> peaks =
        StashesPeak(ProgramOf(method, options, worker, {range.first, steps * step}), topology);
    for (const StageId stage : topology.StagesOf(worker)) {
      const int32_t most = options.offload.StashesOf(topology[stage].place);
      if (peaks[stage.value] > most) stashes[stage.value] = most;
    }
  }
  return stashes;
}

// The program of a worker that evaluates with streamed weights: round after round of microbatches through all parts.
Program StreamedEvaluation(const Topology& topology, WorkerId worker, MicrobatchRange range) {
  const int64_t round = topology.rounds.microbatches;
  const auto list_of = [&](MicrobatchRange microbatches) {
    std::vector<WeightSlot> slots;
    for (int32_t part = 0; part < topology.parts(); ++part) {
      const StageId stage = topology.first_of_place[part];
      slots.push_back({stage, microbatches, topology[stage].slot});
    }
    return StreamedSlots(topology, worker, slots, {.forwards_only = true});
  };
  Program program{.repeats = range.count / round, .shift = round};
  const int64_t rest = range.count % round;
  if (program.repeats > 0) program.period = list_of({range.first, round});
  if (rest > 0) program.epilogue = list_of({range.end() - rest, rest});
  return Lower(program, topology, worker, {.forwards_only = true});
}

}  // namespace

absl::StatusOr<Topology> PlaceMethod(const Method& method, int32_t stages, int32_t workers,
                                     int64_t microbatches_per_step, std::optional<int32_t> copies,
                                     int32_t stages_per_forward) {
  absl::StatusOr<Topology> topology =
      Place(method.placement, stages, workers, microbatches_per_step, copies, stages_per_forward);
  return topology.ok() && method.streams_weights ? StreamWeights(*topology) : topology;
}

absl::StatusOr<Topology> PlaceReplicas(const Method& method, absl::Span<const int32_t> replicas,
                                       int32_t stages_per_worker) {
  if (*std::min_element(replicas.begin(), replicas.end()) < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "expected at least one replica of each stage, got ", absl::StrJoin(replicas, ",")));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckReplicates(method));
  PENSTOCK_RETURN_IF_ERROR(CheckCycle(replicas));
  const auto places = static_cast<int32_t>(replicas.size());
  if (!ReplicatesPipelines(method)) return ReplicatedStages(replicas, GradientsCombine(method));
  const int32_t per_worker =
      stages_per_worker > 0 ? stages_per_worker : StagesPerWorkerMin(method.placement);
  const int32_t workers = places / per_worker;
  PENSTOCK_RETURN_IF_ERROR(CheckWholePipelines(method, replicas, workers));
  return PipelinesBesideEachOther(method.placement, places, workers, replicas.front(),
                                  GradientsCombine(method));
}

int64_t MicrobatchesOfUpdate(const Method& method, const ScheduleOptions& options) {
  if (method.updates_each_microbatch) return 1;
  return options.microbatches_per_update.value_or(options.microbatches_per_step);
}

ReduceGroup::Operation GradientsCombine(const Method& method) {
  return method.updates_each_microbatch ? ReduceGroup::Operation::kMean
                                        : ReduceGroup::Operation::kSum;
}

void CombineGradientsAs(const Method& method, Topology& topology) {
  for (ReduceGroup& group : topology.groups) {
    if (topology.IsOfReplicas(group)) group.operation = GradientsCombine(method);
  }
}

absl::Status CheckWeights(const Method& method, const Weights& weights) {
  if (method.synchronous && &weights != &Weights::kSingle) {
    return RefuseWeights(method, weights,
                         method.placement == Placement::kReplicas
                             ? "every microbatch reads the newest weights of its replica anyway"
                             : "all microbatches of a step read the same version anyway");
  }
  if (method.streams_weights && &weights != method.weights) {
    return RefuseWeights(
        method, weights,
        "the weights that workers send each other are of one age for all microbatches of a step");
  }
  if (weights.draws != method.weights->draws) {
    return RefuseWeights(method, weights,
                         weights.draws
                             ? "only rpd samples what is read and which stage is updated"
                             : "it samples what is read, together with the stage that is updated");
  }
  const absl::string_view reason = weights.refusal(method.updates_each_microbatch);
  return reason.empty() ? absl::OkStatus() : RefuseWeights(method, weights, reason);
}

WeightPolicy WeightPolicyOf(const Method& method, const ScheduleOptions& options) {
  WeightPolicy policy = {&WeightsOf(method, options)};
  const std::vector<int32_t> replicas = ReplicasOf(options.topology);
  const UpdateShape shape = {.stages = options.topology.depth(),
                             .microbatches = MicrobatchesOfUpdate(method, options),
                             .replicas = replicas.front(),
                             .warm_up = WarmUpForwards(replicas, ReplicasMeet::kAtUpdates).front(),
                             .delta = options.delta,
                             .seed = options.seed};
  policy.weights->set_numbers(shape, policy);
  return policy;
}

const Method& SynchronousStart(const Method& method) {
  PENSTOCK_CHECK(!method.synchronous);
  const bool goes_round = method.placement == Placement::kRoundTrip;
  PENSTOCK_CHECK(goes_round || method.placement == Placement::kStraight);
  return **FindMethod(goes_round ? "roundpipe" : "1f1b");
}

absl::Span<const Method> Methods() { return kMethods; }

const Method& ListedMethod() { return kListed; }

const Method& SearchedMethod() { return kSearched; }

absl::StatusOr<const Method*> FindMethod(absl::string_view name) {
  std::vector<absl::string_view> names;
  for (const Method& method : kMethods) {
    if (method.name == name) return &method;
    names.push_back(method.name);
  }
  if (name == kSearched.name) return &kSearched;
  names.push_back(kSearched.name);
  return absl::NotFoundError(absl::StrCat("there is no method \"", name, "\"; the methods are ",
                                          absl::StrJoin(names, ", ")));
}

int64_t ListedMicrobatchesMax(int32_t stages, int64_t actions_max) {
  constexpr int64_t kActions = 7;  // F, I, W, two receives, two sends
  return std::max<int64_t>(1, actions_max / (kActions * std::max(stages, 1)));
}

absl::Status CheckBuildable(const Method& method, const ScheduleOptions& options,
                            MicrobatchRange range) {
  PENSTOCK_RETURN_IF_ERROR(CheckRange(range));
  PENSTOCK_RETURN_IF_ERROR(CheckFits(method, options));
  PENSTOCK_RETURN_IF_ERROR(CheckOffload(options));
  return CheckSteps(method, options, range);
}

absl::StatusOr<Schedule> BuildSchedule(const Method& method, const ScheduleOptions& options,
                                       MicrobatchRange range) {
  PENSTOCK_RETURN_IF_ERROR(CheckBuildable(method, options, range));
  Schedule schedule{.name = std::string(method.name),
                    .topology = options.topology,
                    .weight_policy = WeightPolicyOf(method, options),
                    .completeness = Completeness::kTrain,
                    .range = range};
  const LowerOptions lower{
      .global_norm = options.global_norm,
      .send_gradient_early = options.send_gradient_early || method.sends_gradient_early,
      .has_messages = options.listed != nullptr && !IsComputeOnly(*options.listed)};
  std::vector<Program> compute;
  for (int32_t id = 0; id < options.topology.workers; ++id) {
    compute.push_back(ProgramOf(method, options, WorkerId(id), range));
  }
  schedule.programs = LowerAll(compute, options.topology, lower);
  if (!options.offload.none()) {
    AddOffload(StashesOnDevice(method, options, range), schedule.programs);
  }
  return schedule;
}

Schedule BuildEvaluation(const Topology& topology, MicrobatchRange range) {
  Schedule schedule{.name = "evaluate",
                    .topology = topology,
                    .completeness = Completeness::kEvaluate,
                    .range = range};
  if (topology.streams_weights) {
    for (int32_t worker = 0; worker < topology.workers; ++worker) {
      schedule.programs.push_back(StreamedEvaluation(topology, WorkerId(worker), range));
    }
    return schedule;
  }
  // Microbatches until the same pipeline's next turn, or that of all first replicas.
  const int64_t round = topology.cycle_to_evaluate;
  for (int32_t worker = 0; worker < topology.workers; ++worker) {
    Program program{.repeats = range.count / round, .shift = round};
    const std::vector<StageId> stages = topology.StagesOf(WorkerId(worker));
    const auto forward = [&](ActionList& list, int64_t microbatch) {
      for (const StageId stage : stages) {
        if (topology.VisitsToEvaluate(microbatch, stage)) Forward(list, stage, microbatch);
      }
    };
    for (int64_t m = 0; m < round; ++m) forward(program.period, range.first + m);
    const int64_t rest = range.count / round * round;
    for (int64_t m = rest; m < range.count; ++m) forward(program.epilogue, range.first + m);
    schedule.programs.push_back(
        Lower(program, topology, WorkerId(worker), {.forwards_only = true}));
  }
  return schedule;
}

}  // namespace penstock
