#include "strategy/candidate_judge.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "job/defaults.h"
#include "job/device_times.h"
#include "job/model_profile.h"
#include "job/run_costs.h"
#include "planner/partition.h"
#include "strategy/pipeline_links.h"

namespace penstock {
namespace {

// Steps that are simulated: enough for a steady state of any depth.
int64_t StepsToSimulate(const ResolvedJob& job, int64_t stages) {
  constexpr int64_t kStepsMin = 8;
  return std::max(kStepsMin, (4 * stages + job.microbatches - 1) / job.microbatches + 2);
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
  judge.job_ = *std::move(job);
  absl::StatusOr<v1::DeviceTimes> times = DeviceTimesOf(input.profile, judge.job_.microbatch.batch);
  if (!times.ok()) return Annotate(times.status(), "training.microbatches");
  judge.times_ = *std::move(times);
  PENSTOCK_RETURN_IF_ERROR(CheckProfileFits(input.profile, judge.job_.chain));
  std::vector<LayerRange> single(judge.job_.chain.size());
  for (int layer = 0; layer < judge.job_.chain.size(); ++layer) single[layer] = {layer, 1};
  PENSTOCK_ASSIGN_OR_RETURN(judge.layer_costs_,
                            StageCostsOf(judge.times_, judge.job_.chain, single));
  if (const absl::Status status = judge.Prepare(); !status.ok()) {
    judge.draft_.rejected = std::string(status.message());
  }
  return judge;
}

absl::StatusOr<ResolvedJob> CandidateJudge::Resolve() {
  const Candidate& candidate = draft_.candidate;
  draft_.spec = input_->spec;
  v1::PipelineSpec& pipeline = *draft_.spec.mutable_pipeline();
  if (pipeline.method() != candidate.method) {
    // What the file says of its own method means nothing to others.
    pipeline.Clear();
    SetMethod(candidate.method, /*keeps_optimizer=*/false, draft_.spec);
  }
  pipeline.set_stages(candidate.stages);
  pipeline.clear_stage_layers();
  if (!candidate.replicas.empty()) {
    pipeline.mutable_replicas()->Assign(candidate.replicas.begin(), candidate.replicas.end());
  }
  pipeline.set_recompute(candidate.recomputes ? "all" : "none");
  draft_.spec.mutable_training()->set_microbatches(candidate.microbatches);
  FillDefaults(draft_.spec);
  PENSTOCK_RETURN_IF_ERROR(ValidateJob(draft_.spec));
  PENSTOCK_ASSIGN_OR_RETURN(ResolvedJob job, ResolveJob(draft_.spec));
  PENSTOCK_RETURN_IF_ERROR(CheckStages(job, candidate.stages));
  const int64_t needed = job.WorkersOf(candidate.stages);
  if (needed > input_->cluster.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat("needs ", needed, " workers, there are ", input_->cluster.size()));
  }
  return job;
}

absl::Status CandidateJudge::Prepare() {
  const int32_t stages = draft_.candidate.stages;
  options_ = ScheduleOptionsOf(job_, TopologyOf(job_, stages));
  steps_ = StepsToSimulate(job_, stages);
  const int64_t from = job_.synchronous_steps;
  PENSTOCK_ASSIGN_OR_RETURN(schedule_, ScheduleOfSteps(job_, options_, from, from + steps_));
  PENSTOCK_ASSIGN_OR_RETURN(draft_.lateness, LatenessOf(job_, options_));
  if (absl::StatusOr<BlockDelay> delay = PredictBlockDelay(*job_.method, options_); delay.ok()) {
    draft_.block_delay = *delay;
  }
  draft_.updates_per_step = job_.method->updates_each_microbatch ? job_.microbatches : 1;
  return absl::OkStatus();
}

double CandidateJudge::SpeedOf(const std::vector<int>& workers, StageId stage) const {
  return input_->cluster.workers[workers[topology().worker(stage).value]].speed;
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
  workers.resize(job_.WorkersOf(stages));
  std::sort(workers.begin(), workers.end());

  std::vector<double> costs;
  for (const StageCosts& layer : layer_costs_) {
    costs.push_back(layer.forward_s + layer.backward_input_s + layer.backward_weight_s +
                    (draft_.candidate.recomputes ? layer.forward_s : 0.0));
  }
  // A part of the model is as fast as the slowest that holds it, times those that take turns.
  const std::vector<int32_t> replicas = job_.ReplicasOfStages(stages);
  std::vector<double> speeds(stages, std::numeric_limits<double>::infinity());
  for (int32_t id = 0; id < topology().stages(); ++id) {
    double& speed = speeds[topology().PartOf(StageId(id))];
    speed = std::min(speed, SpeedOf(workers, StageId(id)));
  }
  for (int32_t stage = 0; stage < stages; ++stage) speeds[stage] *= replicas[stage];
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<int> first, PartitionChain(costs, speeds));
  for (int32_t stage = 0; stage < stages; ++stage) {
    const int end = stage + 1 < stages ? first[stage + 1] : job_.chain.size();
    placement.layers.push_back({first[stage], end - first[stage]});
  }
  return placement;
}

v1::DeviceTimes CandidateJudge::TimesOn(const std::vector<int>& workers) const {
  v1::DeviceTimes times = times_;
  AddWorkers(input_->cluster, workers, topology(), times);
  return times;
}

absl::StatusOr<SimulationResult> CandidateJudge::Simulated(
    const v1::DeviceTimes& times, const std::vector<LayerRange>& layers) const {
  PENSTOCK_ASSIGN_OR_RETURN(
      const SimulationCosts costs,
      RunCostsOf(times, job_, topology(), LayersOfStages(topology(), layers)));
  return Simulate(schedule_, costs);
}

double CandidateJudge::StepOf(const SimulationResult& result) const {
  return result.steady_state_period_s * static_cast<double>(job_.microbatches);
}

absl::StatusOr<double> CandidateJudge::StepSeconds(const v1::DeviceTimes& times,
                                                   const std::vector<LayerRange>& layers) const {
  PENSTOCK_ASSIGN_OR_RETURN(const SimulationResult result, Simulated(times, layers));
  return StepOf(result);
}

absl::StatusOr<std::vector<WorkerMemory>> CandidateJudge::Memory(
    const std::vector<LayerRange>& layers) const {
  return PredictRunMemory(job_, options_, LayersOfStages(topology(), layers), 0,
                          CutsOf(draft_.spec, 0, {}), input_->profile, /*own_memory=*/false);
}

absl::Status CandidateJudge::CheckMemory(const std::vector<WorkerMemory>& memory,
                                         const std::vector<int>& workers) const {
  for (size_t worker = 0; worker < memory.size(); ++worker) {
    const PlanWorker& on = input_->cluster.workers[workers[worker]];
    const auto needed = static_cast<double>(memory[worker].total());
    if (needed <= on.memory_bytes) continue;
    return absl::ResourceExhaustedError(absl::StrFormat(
        "needs %.4g MB on %s, which has %.4g MB", needed / 1e6, on.name, on.memory_bytes / 1e6));
  }
  return absl::OkStatus();
}

JudgedCandidate CandidateJudge::Judge(const StagePlacement& placement) const {
  JudgedCandidate judged = draft_;
  judged.workers = placement.workers;
  judged.layers = placement.layers;
  judged.times = TimesOn(placement.workers);
  for (const LayerRange& range : placement.layers) {
    judged.spec.mutable_pipeline()->add_stage_layers(range.count);
  }
  if (const absl::Status status = Fill(judged); !status.ok()) {
    judged.rejected = std::string(status.message());
    judged.lacks_memory = absl::IsResourceExhausted(status) && !judged.memory.empty();
  }
  return judged;
}

absl::Status CandidateJudge::Fill(JudgedCandidate& judged) const {
  PENSTOCK_ASSIGN_OR_RETURN(const SimulationResult result, Simulated(judged.times, judged.layers));
  judged.step_s = StepOf(result);
  judged.busy_s.resize(judged.workers.size());
  for (int32_t id = 0; id < topology().stages(); ++id) {
    judged.busy_s[topology().worker(StageId(id)).value] +=
        result.stage_busy_s[id] / static_cast<double>(steps_);
  }
  const double busy_s = std::accumulate(judged.busy_s.begin(), judged.busy_s.end(), 0.0);
  const double worker_s = judged.step_s * static_cast<double>(judged.workers.size());
  judged.bubble_ratio = worker_s > 0 ? std::max(0.0, 1 - busy_s / worker_s) : 0;
  PENSTOCK_ASSIGN_OR_RETURN(judged.memory, Memory(judged.layers));
  return CheckMemory(judged.memory, judged.workers);
}

}  // namespace penstock
