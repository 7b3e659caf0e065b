#include "schedule/search/list_scheduling.h"

#include <algorithm>

#include "schedule/warm_up.h"

namespace penstock {
namespace {

class ListScheduler {
 public:
  ListScheduler(const StepProblem& problem, const ListRule& rule)
      : problem_(problem),
        rule_(rule),
        index_(problem, /*steps=*/1),
        done_(problem.stages.size() * kPasses),
        ready_ns_(index_.size()),
        now_ns_(problem.workers.size()),
        memory_(problem.workers.size()) {
    order_.lists.resize(problem.workers.size());
  }

  std::optional<StepOrder> Run() {
    for (size_t worker = 0; worker < problem_.workers.size(); ++worker) {
      choices_.push_back(Choose(static_cast<int32_t>(worker)));
    }
    const auto passes = static_cast<int64_t>(ready_ns_.size());
    for (int64_t i = 0; i < passes; ++i) {
      std::optional<Choice> first;
      for (const std::optional<Choice>& choice : choices_) {
        if (choice && (!first || choice->start_ns < first->start_ns)) first = choice;
      }
      if (!first) return std::nullopt;
      Start(*first);
    }
    return std::move(order_);
  }

 private:
  struct Choice {
    int32_t worker, pass_id;
    int64_t start_ns;
    int64_t rank;
  };

  // The pass whose end makes a microbatch of `id` ready.
  StepProblem::Neighbour SourceOf(int32_t id, int64_t microbatch) const {
    if (KindOfPass(id) == kPassF || !problem_.LinksIn(id).empty()) {
      return problem_.Source(id, microbatch);
    }
    return {id - 1, microbatch};
  }

  // `later_stages`: of the worker; room for them is kept, or their forwards could never come.
  bool Allowed(int32_t worker, int32_t id, int64_t later_stages) const {
    const int64_t microbatch = done_[id];
    if (microbatch == problem_.stages[StageOfPass(id)].microbatches) return false;
    const StepProblem::Neighbour source = SourceOf(id, microbatch);
    if (source.pass_id >= 0 && done_[source.pass_id] <= source.microbatch) return false;
    if (KindOfPass(id) != kPassF) return true;
    return memory_[worker] + later_stages < problem_.workers[worker].memory_max &&
           microbatch - done_[id + 1] < rule_.warm_up[StageOfPass(id)];
  }

  // Smaller goes first.
  int64_t Rank(int32_t id) const {
    switch (KindOfPass(id)) {
      case kPassF:
        return rule_.forward_first ? 2 : 4;
      case kPassI:
        return rule_.forward_first ? 4 : 2;
      case kPassW:
        return rule_.weights == ListRule::Weights::kFirst     ? 1
               : rule_.weights == ListRule::Weights::kBetween ? 3
                                                              : 5;
    }
    return 0;
  }

  // A worker starts this next if nothing else becomes ready before.
  std::optional<Choice> Choose(int32_t worker) const {
    std::optional<Choice> best;     // of those that start first
    std::optional<Choice> awaited;  // the first F or I
    const std::vector<int32_t>& stages = problem_.workers[worker].stages;
    for (size_t i = stages.size(); i-- > 0;) {
      for (const Pass pass : {kPassF, kPassI, kPassW}) {
        const int32_t id = PassId(stages[i], pass);
        if (!Allowed(worker, id, static_cast<int64_t>(stages.size() - 1 - i))) continue;
        const Choice choice{worker, id, std::max(now_ns_[worker], ready_ns_[index_(id, done_[id])]),
                            Rank(id)};
        const auto sooner = [&choice](const std::optional<Choice>& other) {
          return !other || choice.start_ns < other->start_ns ||
                 (choice.start_ns == other->start_ns && choice.rank < other->rank);
        };
        if (sooner(best)) best = choice;
        if (pass != kPassW && sooner(awaited)) awaited = choice;
      }
    }
    if (best && KindOfPass(best->pass_id) == kPassW && awaited &&
        rule_.weights == ListRule::Weights::kLast) {
      const int64_t patience_ns =
          problem_.duration_ns(best->pass_id) / 100 * rule_.patience_percent;
      if (awaited->start_ns - best->start_ns < patience_ns) return awaited;
    }
    return best;
  }

  void Start(const Choice& choice) {
    const int32_t id = choice.pass_id;
    const int64_t microbatch = done_[id]++;
    order_.lists[choice.worker].push_back(id);
    int64_t& now_ns = now_ns_[choice.worker];
    now_ns = choice.start_ns + problem_.duration_ns(id);
    if (KindOfPass(id) == kPassF) ++memory_[choice.worker];
    if (KindOfPass(id) == kPassW) --memory_[choice.worker];
    const StepProblem::Neighbour target = problem_.Target(id, microbatch);
    if (target.pass_id >= 0) {
      ready_ns_[index_(target.pass_id, target.microbatch)] = now_ns + target.delay_ns;
      ChooseAgain(problem_.stages[StageOfPass(target.pass_id)].worker);
    }
    ChooseAgain(choice.worker);
  }

  void ChooseAgain(int32_t worker) { choices_[worker] = Choose(worker); }

  const StepProblem& problem_;
  const ListRule& rule_;
  const PassIndex index_;
  std::vector<int64_t> done_;                   // by pass id
  std::vector<int64_t> ready_ns_;               // by index_; 0 where the same stage made the input
  std::vector<int64_t> now_ns_;                 // by worker
  std::vector<int64_t> memory_;                 // by worker
  std::vector<std::optional<Choice>> choices_;  // by worker
  StepOrder order_;
};

// From the start of a forward to the start of its gradient, with nothing in the way, by stage: of the microbatch that
// takes longest.
std::vector<int64_t> RoundTrips(const StepProblem& problem) {
  const auto stages = static_cast<int32_t>(problem.stages.size());
  std::vector<int64_t> result(stages);
  for (int32_t s = stages - 1; s >= 0; --s) {
    int64_t beyond_ns = 0;
    for (const int32_t number : problem.stages[s].after) {
      const StepProblem::Link& link = problem.links[number];
      const int64_t input_ns = problem.duration_ns(PassId(link.after.stage, kPassI));
      beyond_ns = std::max(beyond_ns, 2 * link.delay_ns() + result[link.after.stage] + input_ns);
    }
    result[s] = problem.duration_ns(PassId(s, kPassF)) + beyond_ns;
  }
  return result;
}

// The time from one microbatch of a stage to its next if the busiest worker is never idle, by stage.
std::vector<int64_t> Periods(const StepProblem& problem) {
  int64_t step_ns = 1;
  for (const StepProblem::Worker& worker : problem.workers) {
    int64_t work_ns = 0;
    for (const int32_t stage : worker.stages) {
      for (const Pass pass : {kPassF, kPassI, kPassW}) {
        work_ns += problem.stages[stage].microbatches * problem.duration_ns(PassId(stage, pass));
      }
    }
    step_ns = std::max(step_ns, work_ns);
  }
  std::vector<int64_t> periods;
  for (const StepProblem::Stage& stage : problem.stages) {
    periods.push_back(std::max<int64_t>(1, step_ns / stage.microbatches));
  }
  return periods;
}

std::vector<std::vector<int64_t>> WarmUps(const StepProblem& problem) {
  const Topology& topology = problem.topology;
  const auto stages = static_cast<int32_t>(problem.stages.size());
  const std::vector<int64_t> ahead = WarmUpForwards(ReplicasOf(topology), ReplicasMeet::kAtSteps);
  std::vector<std::vector<int64_t>> result;
  for (const int64_t percent : {0, 100, 125, 150, 200, 300}) {
    std::vector<int64_t>& warm_up = result.emplace_back();
    for (int32_t s = 0; s < stages; ++s) {
      warm_up.push_back(1 + (ahead[topology.table[s].place] * percent + 99) / 100);
    }
  }
  const std::vector<int64_t> round_trips = RoundTrips(problem);
  const std::vector<int64_t> periods = Periods(problem);
  for (const int64_t more : {0, 1, 2}) {
    std::vector<int64_t>& warm_up = result.emplace_back();
    for (int32_t s = 0; s < stages; ++s) {
      warm_up.push_back(1 + (round_trips[s] + periods[s] - 1) / periods[s] + more);
    }
  }
  result.emplace_back(stages, problem.microbatches);
  return result;
}

}  // namespace

std::vector<ListRule> ListRules(const StepProblem& problem) {
  using Weights = ListRule::Weights;
  std::vector<ListRule> rules;
  for (const std::vector<int64_t>& warm_up : WarmUps(problem)) {
    for (const bool forward_first : {false, true}) {
      rules.push_back({warm_up, forward_first, Weights::kFirst});
      rules.push_back({warm_up, forward_first, Weights::kBetween});
      for (const int64_t patience : {0, 50, 100}) {
        rules.push_back({warm_up, forward_first, Weights::kLast, patience});
      }
    }
  }
  return rules;
}

std::optional<StepOrder> ListSchedule(const StepProblem& problem, const ListRule& rule) {
  return ListScheduler(problem, rule).Run();
}

}  // namespace penstock
