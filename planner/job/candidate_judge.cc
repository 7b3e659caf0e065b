#include "planner/job/candidate_judge.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "job/defaults.h"
#include "job/open_job.h"
#include "job/prediction.h"
#include "job/profile/device_times.h"
#include "job/profile/model_profile.h"
#include "job/run/ties.h"
#include "planner/cost/run_costs.h"
#include "planner/job/pipeline_links.h"
#include "planner/job/split_search.h"

namespace penstock {
namespace {

// Moves of a search for an order that is kept, and for one of which only the time counts.
constexpr int64_t kMoves = 20'000;
constexpr int64_t kMovesForTime = 1'000;

// Says what the backward of each layer needs of a forward, if stages may offload it. Where layers are on one stage, what one
// hands to the next counts with both.
absl::Status AddStashes(const PlanningInput& input, const ResolvedJob& job,
                        v1::DeviceTimes& times) {
  const std::vector<PlanWorker>& workers = input.cluster.workers;
  const bool any = std::any_of(workers.begin(), workers.end(), [](const PlanWorker& worker) {
    return worker.offload_bytes_per_second > 0;
  });
  if (!any) return absl::OkStatus();
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<TapeNeeds> needs,
                            TapeNeedsOf(input.profile, job.model, job.microbatch_samples));
  for (int layer = 0; layer < job.model.size(); ++layer) {
    const LayerSpec& spec = job.model.layers[layer];
    const PassPlan plan =
        MakePassPlan(job.model, {layer, 1}, job.microbatch_samples,
                     {needs.begin() + spec.first_node, needs.begin() + spec.end_node()},
                     CrossingType(job.precision));
    const int64_t bytes =
        ActivationBytesOf(plan, /*recomputes=*/false, layer + 1 == job.model.size()).stash;
    for (v1::LayerTimes& entry : *times.mutable_layers()) {
      if (entry.layer() == spec.name) entry.set_stash_megabytes(static_cast<double>(bytes) * 1e-6);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CandidateJudge> CandidateJudge::Of(const PlanningInput& input,
                                                  const Candidate& candidate) {
  CandidateJudge judge(input, candidate);
  absl::StatusOr<ResolvedJob> job = judge.Resolve();
  if (!job.ok()) {
    judge.draft_.rejected = std::string(job.status().message());
    return judge;
  }
  absl::StatusOr<v1::DeviceTimes> times = DeviceTimesOf(input.profile, job->microbatch_samples);
  if (!times.ok()) return Annotate(times.status(), "training.microbatches");
  judge.times_ = *std::move(times);
  PENSTOCK_RETURN_IF_ERROR(CheckProfileFits(input.profile, job->model));
  PENSTOCK_RETURN_IF_ERROR(CheckProfilePrecision(input.profile, job->precision));
  PENSTOCK_RETURN_IF_ERROR(AddStashes(input, *job, judge.times_));
  std::vector<LayerRange> single(job->model.size());
  for (int layer = 0; layer < job->model.size(); ++layer) single[layer] = {layer, 1};
  PENSTOCK_ASSIGN_OR_RETURN(judge.layer_costs_, StageCostsOf(judge.times_, job->model, single));
  if (const absl::Status status = judge.Prepare(*std::move(job)); !status.ok()) {
    judge.draft_.rejected = std::string(status.message());
    return judge;
  }
  judge.draft_.step_bound_s = StepBoundSeconds(judge);
  return judge;
}

absl::StatusOr<ResolvedJob> CandidateJudge::Resolve() {
  const Candidate& candidate = draft_.candidate;
  draft_.spec = input_->spec;
  draft_.spec.clear_prediction();
  v1::PipelineSpec& pipeline = *draft_.spec.mutable_pipeline();
  if (pipeline.method() != candidate.method) {
    // The file's settings for its own method mean nothing to others; the order of the layers is the model's.
    const auto layer_order = pipeline.layer_order();
    pipeline.Clear();
    *pipeline.mutable_layer_order() = layer_order;
    SetMethod(candidate.method, /*keeps_optimizer=*/false, draft_.spec);
  }
  pipeline.set_stages(candidate.stages);
  if (candidate.workers > 0) {
    pipeline.set_workers(candidate.workers);
    pipeline.clear_stages_per_worker();
  }
  pipeline.clear_stage_layers();
  pipeline.clear_worker_names();
  pipeline.clear_schedule();
  if (!candidate.layer_order.empty()) {
    pipeline.mutable_layer_order()->Assign(candidate.layer_order.begin(),
                                           candidate.layer_order.end());
  }
  const absl::StatusOr<const Method*> method = FindMethod(absl::string_view(candidate.method));
  if (method.ok() && (*method)->replicates_stages()) {
    pipeline.mutable_replicas()->Assign(candidate.replicas.begin(), candidate.replicas.end());
  }
  pipeline.set_recompute(TextOf(candidate.recompute));
  pipeline.clear_offload();
  if (!candidate.offload.none()) pipeline.set_offload(TextOf(candidate.offload));
  draft_.spec.mutable_training()->set_microbatches(candidate.microbatches);
  draft_.spec = DraftOf(draft_.spec);
  PENSTOCK_ASSIGN_OR_RETURN(ResolvedJob job, ResolveJob(draft_.spec));
  PENSTOCK_RETURN_IF_ERROR(CheckStages(job, candidate.stages));
  const int64_t needed = job.WorkersOf(candidate.stages);
  if (needed > input_->cluster.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat("needs ", needed, " workers, there are ", input_->cluster.size()));
  }
  return job;
}

absl::Status CandidateJudge::Prepare(ResolvedJob job) {
  const std::vector<LayerRange> parts = SomeParts(job, draft_.candidate.stages);
  PENSTOCK_ASSIGN_OR_RETURN(run_, RunnableOf(std::move(job), parts));
  return SetDelays(run_, draft_);
}

bool CandidateJudge::searches_order() const {
  return draft_.candidate.method == SearchedMethod().name;
}

absl::StatusOr<CandidateJudge::Runnable> CandidateJudge::RunnableOf(
    ResolvedJob job, absl::Span<const LayerRange> layers) const {
  const int32_t stages = draft_.candidate.stages;
  Runnable run = {.options = ScheduleOptionsOf(job, TopologyOf(job, stages), layers)};
  PENSTOCK_ASSIGN_OR_RETURN(run.steps, StepsToSimulateOf(job, run.options, stages));
  run.job = std::move(job);
  return run;
}

absl::StatusOr<const CandidateJudge::Runnable*> CandidateJudge::RunWith(
    absl::Span<const LayerRange> layers, Runnable& other) const {
  PENSTOCK_RETURN_IF_ERROR(CheckParts(job(), layers));
  Topology topology = TopologyOf(job(), draft_.candidate.stages);
  AddTieGroups(TieGroupsOf(job().model, layers), topology);
  if (topology.groups == run_.options.topology.groups) return &run_;
  PENSTOCK_ASSIGN_OR_RETURN(other, RunnableOf(job(), layers));
  return &other;
}

absl::StatusOr<CandidateJudge::Runnable> CandidateJudge::WithOrder(
    const v1::DeviceTimes& times, const std::vector<LayerRange>& layers,
    const OrderSearch& search) const {
  Runnable other;
  PENSTOCK_ASSIGN_OR_RETURN(const Runnable* run, RunWith(layers, other));
  const Topology& of_run = run->options.topology;
  PENSTOCK_ASSIGN_OR_RETURN(const SimulationCosts costs,
                            RunCostsOf(times, job(), of_run, LayersOfStages(of_run, layers)));
  PENSTOCK_ASSIGN_OR_RETURN(Schedule order, SearchOrder(job(), run->options, costs, search));
  return RunnableOf(InOrder(job(), std::move(order)), layers);
}

absl::StatusOr<StagePlacement> CandidateJudge::Evenly() const {
  StagePlacement placement;
  const Cluster& cluster = input_->cluster;
  std::vector<int>& workers = placement.workers;
  workers.resize(cluster.size());
  std::iota(workers.begin(), workers.end(), 0);
  std::stable_sort(workers.begin(), workers.end(), [&](int a, int b) {
    return cluster.workers[a].speed > cluster.workers[b].speed;
  });
  const int32_t stages = draft_.candidate.stages;
  workers.resize(job().WorkersOf(stages));
  std::sort(workers.begin(), workers.end());
  PENSTOCK_ASSIGN_OR_RETURN(placement.layers,
                            SplitByTimes(job(), topology(), stages, TimesOn(workers)));
  return placement;
}

v1::DeviceTimes CandidateJudge::TimesOn(const std::vector<int>& workers) const {
  v1::DeviceTimes times = times_;
  AddWorkers(input_->cluster, workers, topology(), times);
  return times;
}

absl::StatusOr<double> CandidateJudge::StepSeconds(const v1::DeviceTimes& times,
                                                   const std::vector<LayerRange>& layers) const {
  if (!CheckParts(job(), layers).ok()) return std::numeric_limits<double>::infinity();
  if (!searches_order()) {
    Runnable other;
    PENSTOCK_ASSIGN_OR_RETURN(const Runnable* run, RunWith(layers, other));
    return penstock::StepSeconds(run->job, run->options, run->steps, layers, times);
  }
  PENSTOCK_ASSIGN_OR_RETURN(
      const Runnable run,
      WithOrder(times, layers, {.room = OrderRoom::kTwice, .moves = kMovesForTime}));
  return penstock::StepSeconds(run.job, run.options, run.steps, layers, times);
}

absl::StatusOr<std::vector<WorkerMemory>> CandidateJudge::MemoryOf(
    const Runnable& run, const std::vector<LayerRange>& layers) const {
  return PredictRunMemory(run.job, run.options, LayersOfStages(topology(), layers), 0,
                          CutsOf(draft_.spec, 0, {}), input_->profile, /*own_memory=*/false);
}

absl::StatusOr<std::vector<WorkerMemory>> CandidateJudge::Memory(
    const std::vector<LayerRange>& layers) const {
  Runnable other;
  PENSTOCK_ASSIGN_OR_RETURN(const Runnable* run, RunWith(layers, other));
  return MemoryOf(*run, layers);
}

std::vector<int64_t> CandidateJudge::StashesPeaks() const {
  std::vector<int64_t> peaks(topology().depth());
  for (const Program& program : run_.steps.schedule.programs) {
    const std::vector<int64_t> of_worker = StashesPeak(program, topology());
    for (int32_t id = 0; id < topology().stages(); ++id) {
      int64_t& peak = peaks[topology()[StageId(id)].place];
      peak = std::max(peak, of_worker[id]);
    }
  }
  return peaks;
}

absl::Status CandidateJudge::CheckMemory(const std::vector<WorkerMemory>& memory,
                                         const std::vector<int>& workers) const {
  for (size_t worker = 0; worker < memory.size(); ++worker) {
    const PlanWorker& on = input_->cluster.workers[workers[worker]];
    // In a file the layers are with one worker after another; elsewhere another worker may have the largest.
    const LayerRange layers = {0, topology().weights_in_file ? job().model.size() : 0};
    PENSTOCK_RETURN_IF_ERROR(
        CheckFits(job(), {&layers, 1}, memory[worker].total(), on.name, on.memory_bytes));
  }
  return absl::OkStatus();
}

JudgedCandidate CandidateJudge::Judge(const StagePlacement& placement) const {
  JudgedCandidate judged = draft_;
  judged.workers = placement.workers;
  judged.layers = placement.layers;
  judged.times = TimesOn(placement.workers);
  judged.pattern = UpdatePatternOf(job(), topology(), placement.layers, judged.lateness);
  v1::PipelineSpec& pipeline = *judged.spec.mutable_pipeline();
  for (const LayerRange& range : placement.layers) pipeline.add_stage_layers(range.count);
  for (const int worker : placement.workers) {
    if (input_->names_workers) pipeline.add_worker_names(input_->cluster.workers[worker].name);
  }
  const absl::Status status = searches_order() ? FillInOrder(judged) : FillInRun(judged);
  if (!status.ok()) {
    judged.rejected = std::string(status.message());
    judged.lacks_memory = absl::IsResourceExhausted(status) && !judged.memory.empty();
  }
  return judged;
}

absl::Status CandidateJudge::FillInRun(JudgedCandidate& judged) const {
  Runnable other;
  PENSTOCK_ASSIGN_OR_RETURN(const Runnable* run, RunWith(judged.layers, other));
  return Fill(*run, judged);
}

absl::Status CandidateJudge::FillInOrder(JudgedCandidate& judged) const {
  absl::Status filled;
  for (const OrderRoom room : {OrderRoom::kTwice, OrderRoom::kOfFirst, OrderRoom::kOfOneFOneB}) {
    PENSTOCK_ASSIGN_OR_RETURN(const Runnable run, WithOrder(judged.times, judged.layers,
                                                            {.room = room, .moves = kMoves}));
    PENSTOCK_RETURN_IF_ERROR(SetOrder(*run.job.listed, judged.spec));
    PENSTOCK_RETURN_IF_ERROR(SetDelays(run, judged));
    filled = Fill(run, judged);
    if (!absl::IsResourceExhausted(filled)) break;
  }
  return filled;
}

absl::Status CandidateJudge::SetDelays(const Runnable& run, JudgedCandidate& judged) {
  PENSTOCK_ASSIGN_OR_RETURN(judged.lateness, LatenessOf(run.job, run.options));
  const absl::StatusOr<BlockDelay> delay = PredictBlockDelay(*run.job.method, run.options);
  if (delay.ok()) judged.block_delay = *delay;
  return absl::OkStatus();
}

absl::Status CandidateJudge::Fill(const Runnable& run, JudgedCandidate& judged) const {
  PENSTOCK_ASSIGN_OR_RETURN(const SimulatedStep step, SimulateStep(run.job, run.options, run.steps,
                                                                   judged.layers, judged.times));
  judged.step_s = step.step_s;
  judged.bubble_ratio = step.bubble_ratio;
  judged.busy_s = step.busy_s;
  judged.sent_bytes = step.sent_bytes;
  PENSTOCK_ASSIGN_OR_RETURN(judged.memory, MemoryOf(run, judged.layers));
  PENSTOCK_RETURN_IF_ERROR(CheckMemory(judged.memory, judged.workers));
  Predict(judged);
  return absl::OkStatus();
}

void CandidateJudge::Predict(JudgedCandidate& judged) {
  v1::PredictionSpec& prediction = *judged.spec.mutable_prediction();
  prediction.set_step_seconds(judged.step_s);
  for (const WorkerMemory& memory : judged.memory) prediction.add_memory_bytes(memory.total());
  for (const double bytes : judged.sent_bytes) prediction.add_sent_bytes(bytes);
  SetPredictedTimes(judged.times, prediction);
  prediction.set_job_sha256(PredictedJobSha256(judged.spec));
}

}  // namespace penstock
