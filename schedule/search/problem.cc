#include "schedule/search/problem.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "schedule/costs_ns.h"

namespace penstock {
namespace {

constexpr ActionKind kOpOfPass[kPasses] = {ActionKind::kForward, ActionKind::kBackwardInput,
                                           ActionKind::kBackwardWeight};

// The neighbour at the end of the link that a microbatch takes out of `links`.
StepProblem::Neighbour Across(const StepProblem& problem, absl::Span<const int32_t> links,
                              StepProblem::Link::End StepProblem::Link::*end, Pass pass,
                              int64_t microbatch) {
  if (links.empty()) return {};
  const auto count = static_cast<int64_t>(links.size());
  const StepProblem::Link& link = problem.links[links[count == 1 ? 0 : microbatch % count]];
  const StepProblem::Link::End& other = link.*end;
  const int64_t of_link = count == 1 ? microbatch : microbatch / count;
  return {PassId(other.stage, pass), other.first + of_link * other.stride, link.delay_ns()};
}

// The links of all stages: the edges of activations, for gradients take the same ways back.
void AddLinks(const Topology& topology, const CostsNs& costs_ns, StepProblem& problem) {
  constexpr auto kKind = static_cast<size_t>(EdgeKind::kActivation);
  std::vector<int32_t> link_of(topology.edges.size(), -1);
  for (int32_t s = 0; s < topology.stages(); ++s) {
    const StageWiring::Ends& in = topology.table[s].in[kKind];
    for (int32_t i = 0; i < in.count; ++i) {
      link_of[in.first + i] = static_cast<int32_t>(problem.links.size());
      problem.stages[s].before.push_back(link_of[in.first + i]);
      problem.links.push_back({.after = {.stage = s, .first = i, .stride = in.count}});
    }
  }
  for (int32_t s = 0; s < topology.stages(); ++s) {
    const StageWiring& row = topology.table[s];
    const StageWiring::Ends& out = row.out[kKind];
    for (int32_t i = 0; i < out.count; ++i) {
      const int32_t number = link_of[topology.outgoing[out.first + i]];
      StepProblem::Link& link = problem.links[number];
      problem.stages[s].after.push_back(number);
      link.before = {.stage = s, .first = i, .stride = out.count};
      if (problem.stages[link.after.stage].worker == problem.stages[s].worker) continue;
      problem.stages[s].sends_activation = true;
      problem.stages[link.after.stage].receives_activation = true;
      const int64_t microbatch = row.turn + int64_t{i} * row.turns;
      const Action send{ActionKind::kSendActivation, s, microbatch};
      link.transfer_ns = costs_ns.transfer_ns(send);
      link.latency_ns = costs_ns.latency_ns(send);
    }
  }
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

absl::Span<const int32_t> StepProblem::LinksIn(int32_t pass_id) const {
  const Stage& stage = stages[StageOfPass(pass_id)];
  const Pass pass = KindOfPass(pass_id);
  if (pass == kPassW) return {};
  return pass == kPassF ? stage.before : stage.after;
}

absl::Span<const int32_t> StepProblem::LinksOut(int32_t pass_id) const {
  const Stage& stage = stages[StageOfPass(pass_id)];
  const Pass pass = KindOfPass(pass_id);
  if (pass == kPassW) return {};
  return pass == kPassF ? stage.after : stage.before;
}

StepProblem::Neighbour StepProblem::Source(int32_t pass_id, int64_t microbatch) const {
  const Pass pass = KindOfPass(pass_id);
  return Across(*this, LinksIn(pass_id), pass == kPassF ? &Link::before : &Link::after, pass,
                microbatch);
}

StepProblem::Neighbour StepProblem::Target(int32_t pass_id, int64_t microbatch) const {
  const Pass pass = KindOfPass(pass_id);
  return Across(*this, LinksOut(pass_id), pass == kPassF ? &Link::after : &Link::before, pass,
                microbatch);
}

PassIndex::PassIndex(const StepProblem& problem, int64_t steps) : first_{0} {
  for (const StepProblem::Stage& stage : problem.stages) {
    for (int32_t pass = 0; pass < kPasses; ++pass) {
      first_.push_back(first_.back() + static_cast<size_t>(stage.microbatches * steps));
    }
  }
}

absl::StatusOr<StepProblem> MakeStepProblem(const Topology& topology, int64_t microbatches,
                                            const SimulationCosts& costs,
                                            const std::vector<int64_t>& memory_max,
                                            int64_t channel_capacity, int64_t steps) {
  if (topology.pipelines > 1 || topology.form == Topology::Form::kThereAndBack ||
      !topology.Recomputing().empty()) {
    return absl::InvalidArgumentError(
        "an order is searched for one pipeline whose stages do not recompute");
  }
  const int32_t stages = topology.stages();
  PENSTOCK_ASSIGN_OR_RETURN(const CostsNs costs_ns, CostsNs::From(costs, topology));
  PENSTOCK_RETURN_IF_ERROR(
      CheckLength(costs_ns, steps * microbatches * topology.depth() * kPasses));
  StepProblem problem{.topology = topology,
                      .microbatches = microbatches,
                      .steps = steps,
                      .channel_capacity = channel_capacity,
                      .overhead_ns = costs_ns.overhead_ns()};
  problem.topology.groups.clear();
  if (topology.form == Topology::Form::kReplicas) {
    problem.topology.groups = GroupsOfParts(topology);  // which it cannot be without
  }
  problem.workers.resize(topology.workers);
  for (int32_t worker = 0; worker < topology.workers; ++worker) {
    problem.workers[worker].memory_max = memory_max[worker];
  }
  for (int32_t s = 0; s < stages; ++s) {
    const StageWiring& row = topology.table[s];
    StepProblem::Stage stage{.worker = row.worker.value, .microbatches = microbatches / row.turns};
    for (int32_t pass = 0; pass < kPasses; ++pass) {
      stage.compute_ns[pass] = costs_ns.overhead_ns() + costs_ns.compute_ns({kOpOfPass[pass], s});
    }
    problem.stages.push_back(stage);
    StepProblem::Worker& worker = problem.workers[stage.worker];
    worker.stages.push_back(s);
    worker.update_ns += costs_ns.overhead_ns() + costs_ns.compute_ns({ActionKind::kUpdate, s});
  }
  AddLinks(topology, costs_ns, problem);
  return problem;
}

ListCheck::ListCheck(const StepProblem& problem)
    : problem_(problem), done_(problem.stages.size() * kPasses) {
  for (int32_t id = 0; id < static_cast<int32_t>(done_.size()); ++id) {
    source_.push_back(problem.receives(id) ? -1 : problem.Source(id, 0).pass_id);
  }
}

bool ListCheck::Allows(int32_t worker, const PassList& list) {
  for (const int32_t stage : problem_.workers[worker].stages) {
    for (int32_t pass = 0; pass < kPasses; ++pass) done_[stage * kPasses + pass] = 0;
  }
  const int64_t memory_max = problem_.workers[worker].memory_max;
  int64_t memory = 0;
  for (const int32_t id : list) {
    const Pass pass = KindOfPass(id);
    const int64_t microbatch = done_[id]++;
    if (pass == kPassF && ++memory > memory_max) return false;
    if (pass == kPassW) --memory;
    if (pass != kPassF && done_[id - 1] <= microbatch) return false;
    // The stages of a worker have the same microbatches.
    if (source_[id] >= 0 && done_[source_[id]] <= microbatch) return false;
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
      const StageWiring& row = problem.topology.table[StageOfPass(id)];
      program.prologue.push_back(
          {kOpOfPass[KindOfPass(id)], StageOfPass(id), row.turn + done[id]++ * row.turns});
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
