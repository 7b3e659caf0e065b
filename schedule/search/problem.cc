#include "schedule/search/problem.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "schedule/costs_ns.h"

namespace penstock {
namespace {

constexpr ActionKind kOpOfPass[kPasses] = {ActionKind::kForward, ActionKind::kBackwardInput,
                                           ActionKind::kBackwardWeight};

// The neighbour that the pass gets its input from, or hands its output to; -1 or the number of stages
// where there is none.
int32_t SourceStage(int32_t pass_id) {
  return StageOfPass(pass_id) + (KindOfPass(pass_id) == kPassF ? -1 : 1);
}

// So that sums of nanoseconds cannot overflow: every action and message after every other.
absl::Status CheckLength(const CostsNs& costs, int64_t passes) {
  constexpr double kYears = 100;
  constexpr double kPartsOfAPass = 6;  // compute, send, receive, transfer, latency, update
  const double ns_max =
      kPartsOfAPass * static_cast<double>(passes) * static_cast<double>(costs.longest_ns());
  if (ns_max <= kYears * 365 * 86400 * 1e9) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the step may last longer than ", kYears, " years"));
}

}  // namespace

bool StepProblem::receives(int32_t pass_id) const {
  const Stage& stage = stages[StageOfPass(pass_id)];
  switch (KindOfPass(pass_id)) {
    case kPassF:
      return stage.receives_activation;
    case kPassI:
      return stage.sends_activation;
    case kPassW:
      return false;
  }
  return false;
}

bool StepProblem::sends(int32_t pass_id) const {
  const Stage& stage = stages[StageOfPass(pass_id)];
  switch (KindOfPass(pass_id)) {
    case kPassF:
      return stage.sends_activation;
    case kPassI:
      return stage.receives_activation;
    case kPassW:
      return false;
  }
  return false;
}

int64_t StepProblem::duration_ns(int32_t pass_id) const {
  const int64_t messages = int64_t{receives(pass_id)} + int64_t{sends(pass_id)};
  return stages[StageOfPass(pass_id)].compute_ns[KindOfPass(pass_id)] + messages * overhead_ns;
}

int64_t StepProblem::delay_ns(int32_t pass_id) const {
  if (!sends(pass_id)) return 0;
  const int32_t stage = StageOfPass(pass_id);
  const Link& link = links[KindOfPass(pass_id) == kPassF ? stage : stage - 1];
  return link.transfer_ns + link.latency_ns;
}

absl::StatusOr<StepProblem> MakeStepProblem(const Topology& topology, int64_t microbatches,
                                            const SimulationCosts& costs,
                                            const std::vector<int64_t>& memory_max,
                                            int64_t channel_capacity, int64_t steps) {
  if (topology.depth() < topology.stages() || !topology.Recomputing().empty()) {
    return absl::InvalidArgumentError(
        "an order is searched for one pipeline whose stages do not recompute");
  }
  const int32_t stages = topology.stages();
  PENSTOCK_ASSIGN_OR_RETURN(const CostsNs costs_ns, CostsNs::From(costs, topology));
  PENSTOCK_RETURN_IF_ERROR(CheckLength(costs_ns, steps * microbatches * stages * kPasses));
  StepProblem problem{.topology = topology,
                      .microbatches = microbatches,
                      .steps = steps,
                      .channel_capacity = channel_capacity,
                      .overhead_ns = costs_ns.overhead_ns()};
  problem.topology.groups.clear();
  problem.workers.resize(topology.workers);
  for (int32_t worker = 0; worker < topology.workers; ++worker) {
    problem.workers[worker].memory_max = memory_max[worker];
  }
  for (int32_t s = 0; s < stages; ++s) {
    StepProblem::Stage stage{.worker = topology.table[s].worker.value};
    for (int32_t pass = 0; pass < kPasses; ++pass) {
      stage.compute_ns[pass] = costs_ns.overhead_ns() + costs_ns.compute_ns({kOpOfPass[pass], s});
    }
    const auto is_elsewhere = [&](StageId other) {
      return other.value >= 0 && topology.worker(other).value != stage.worker;
    };
    stage.receives_activation = is_elsewhere(topology.From(EdgeKind::kActivation, StageId(s), 0));
    stage.sends_activation = is_elsewhere(topology.To(EdgeKind::kActivation, StageId(s), 0));
    problem.stages.push_back(stage);
    StepProblem::Worker& worker = problem.workers[stage.worker];
    worker.stages.push_back(s);
    worker.update_ns += costs_ns.overhead_ns() + costs_ns.compute_ns({ActionKind::kUpdate, s});
    if (s + 1 == stages) break;
    const Action send{ActionKind::kSendActivation, s};
    problem.links.push_back({costs_ns.transfer_ns(send), costs_ns.latency_ns(send)});
  }
  return problem;
}

ListCheck::ListCheck(const StepProblem& problem)
    : problem_(problem), done_(problem.stages.size() * kPasses) {}

bool ListCheck::Allows(int32_t worker, const PassList& list) {
  for (const int32_t stage : problem_.workers[worker].stages) {
    for (int32_t pass = 0; pass < kPasses; ++pass) done_[stage * kPasses + pass] = 0;
  }
  const auto stages = static_cast<int32_t>(problem_.stages.size());
  const int64_t memory_max = problem_.workers[worker].memory_max;
  int64_t memory = 0;
  for (const int32_t id : list) {
    const Pass pass = KindOfPass(id);
    const int64_t microbatch = done_[id]++;
    if (pass == kPassF && ++memory > memory_max) return false;
    if (pass == kPassW) --memory;
    if (pass != kPassF && done_[id - 1] <= microbatch) return false;
    if (pass == kPassW) continue;
    const int32_t source = SourceStage(id);
    if (source < 0 || source >= stages || problem_.stages[source].worker != worker) continue;
    if (done_[PassId(source, pass)] <= microbatch) return false;
  }
  return true;
}

Schedule ToComputeSchedule(const StepProblem& problem, const StepOrder& order) {
  Schedule schedule{.name = "searched",
                    .topology = problem.topology,
                    .range = {.first = 0, .count = problem.microbatches}};
  std::vector<int64_t> done(problem.stages.size() * kPasses);
  for (const PassList& list : order.lists) {
    Program program;
    for (const int32_t id : list) {
      program.prologue.push_back({kOpOfPass[KindOfPass(id)], StageOfPass(id), done[id]++});
    }
    schedule.programs.push_back(std::move(program));
  }
  return schedule;
}

StepOrder OrderOf(const Schedule& schedule) {
  StepOrder order;
  for (const Program& program : schedule.programs) {
    PassList& list = order.lists.emplace_back();
    for (const Action& action : Expand(program)) {
      for (int32_t pass = 0; pass < kPasses; ++pass) {
        if (action.kind != kOpOfPass[pass]) continue;
        list.push_back(PassId(action.index, static_cast<Pass>(pass)));
      }
    }
  }
  return order;
}

}  // namespace penstock
