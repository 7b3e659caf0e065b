#include "planner/job/split_search.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "compute/tensor.h"
#include "job/run/message_bytes.h"
#include "job/run/ties.h"
#include "planner/job/worker_orders.h"

namespace penstock {
namespace {

constexpr double kRounding = 1e-9;  // relative, of sums of times
// The simulator counts in whole nanoseconds: each of four passes of a stage may be shorter by half of one.
constexpr double kPassesRoundingS = 4 * 0.5e-9;
// These count steps of a few nanoseconds each (TimeBudget).
constexpr int64_t kStepsOfAPart = 100;
constexpr int64_t kStepsOfASimulation = 50'000;
constexpr int64_t kStepsOfACount = 500'000;

// Returns whether the stages of a part recompute, which depends on its place; there and back this is never given.
bool Recomputes(const Topology& topology, int part) {
  const std::vector<StageId> chosen = topology.Recomputing();
  const auto is_of_part = [&](StageId stage) { return topology[stage].part == part; };
  return std::any_of(chosen.begin(), chosen.end(), is_of_part);
}

double WorkOf(const StageCosts& costs) {
  return costs.forward_s + costs.backward_input_s + costs.backward_weight_s;
}

// Visits every way to cut `layers` layers into `parts` parts, one part after the other.
class Splits {
 public:
  // `may_begin`: by layer, whether a part may begin with it (PlacesToCut).
  Splits(std::vector<bool> may_begin, int parts)
      : may_begin_(std::move(may_begin)),
        layers_(static_cast<int>(may_begin_.size())),
        ranges_(parts) {}

  // Takes a part's layers, or says that neither these nor more of them are worth it; `give_back` undoes it.
  std::function<bool(int part, LayerRange range)> may_take;
  std::function<void()> give_back;
  // Returns whether to go on with the first `parts` parts taken; more layers in the last of them may change that.
  std::function<bool(int parts)> is_worth;
  // Called with every part taken.
  std::function<void(const std::vector<LayerRange>& ranges)> visit;

  void Run() { From(0, 0); }

 private:
  void From(int part, int first) {
    const int parts = static_cast<int>(ranges_.size());
    if (part == parts) return visit(ranges_);
    const int most = layers_ - first - (parts - part - 1);
    for (int count = part + 1 == parts ? most : 1; count <= most; ++count) {
      ranges_[part] = {first, count};
      if (!may_take(part, ranges_[part])) return;
      const int end = first + count;
      if ((end == layers_ || may_begin_[end]) && is_worth(part + 1)) From(part + 1, end);
      give_back();
    }
  }

  const std::vector<bool> may_begin_;
  const int layers_;
  std::vector<LayerRange> ranges_;
};

// The least time of a step, from the parts that have layers so far.
class StepBound {
 public:
  StepBound(const CandidateJudge& judge, const std::vector<int>& workers)
      : judge_(judge), topology_(judge.topology()), microbatches_(judge.job().microbatches) {
    for (const int worker : workers) speeds_.push_back(judge.input().cluster.workers[worker].speed);
    states_.push_back({.busy_s = std::vector<double>(speeds_.size())});
    // Which passes a stage does, and what workers of several parts overlap, is simple without ways back.
    by_worker_ = topology_.form != Topology::Form::kThereAndBack;
    drains_ = by_worker_ && judge.job().method->synchronous &&
              topology_.depth() == topology_.stages() && topology_.stages() == topology_.workers;
    holders_.resize(topology_.parts());
    for (int32_t id = 0; id < topology_.stages(); ++id) {
      holders_[topology_[StageId(id)].part].push_back(StageId(id));
    }
    for (int part = 0; part < topology_.parts(); ++part) {
      recomputes_.push_back(Recomputes(topology_, part));
    }
    for (const StageCosts& layer : judge.layer_costs()) all_s_ += WorkOf(layer);
  }

  void Push(int part, LayerRange range) {
    State state = states_.back();
    StageCosts costs = {.forward_s = 0, .backward_input_s = 0, .backward_weight_s = 0};
    for (int layer = range.first; layer < range.end(); ++layer) {
      const StageCosts& of_layer = judge_.layer_costs()[layer];
      costs.forward_s += of_layer.forward_s;
      costs.backward_input_s += of_layer.backward_input_s;
      costs.backward_weight_s += of_layer.backward_weight_s;
      state.done_s += WorkOf(of_layer);
    }
    const double work_s = WorkOf(costs) + (recomputes_[part] ? costs.forward_s : 0);
    const auto microbatches = static_cast<double>(microbatches_);
    for (const StageId stage : holders_[part]) {
      if (!by_worker_) break;
      const int32_t worker = topology_.worker(stage).value;
      const double share = microbatches / topology_[stage].turns;
      state.busy_s[worker] += share * work_s / speeds_[worker];
      state.bound_s = std::max(state.bound_s, state.busy_s[worker]);
    }
    if (drains_) {
      const double speed = speeds_[topology_.worker(holders_[part].front()).value];
      const double own_s = microbatches * (work_s - costs.backward_weight_s) / speed;
      // The next step begins when the first stage has made the last gradient of its weights.
      if (part == 0) state.first_weight_s = costs.backward_weight_s / speed;
      state.bound_s = std::max(state.bound_s, state.way_s + own_s + state.first_weight_s);
      state.way_s += (costs.forward_s + costs.backward_input_s) / speed;
    }
    states_.push_back(std::move(state));
  }
  void Pop() { states_.pop_back(); }

  // Never falls as a part takes more layers.
  double OfTaken() const { return Lower(states_.back().bound_s); }
  // The bound of all workers together, if the rest were spread evenly over those that have no part yet.
  double OfRest(int taken) const {
    if (!by_worker_ || topology_.stages() != topology_.workers) return 0;
    double capacity = 0;
    for (int part = taken; part < topology_.parts(); ++part) {
      for (const StageId stage : holders_[part]) {
        capacity += speeds_[topology_.worker(stage).value];
      }
    }
    if (capacity <= 0) return 0;
    const double rest_s = all_s_ - states_.back().done_s;
    return Lower(static_cast<double>(microbatches_) * rest_s / capacity);
  }

 private:
  double Lower(double bound_s) const {
    return bound_s * (1 - kRounding) -
           static_cast<double>(microbatches_ * topology_.parts()) * kPassesRoundingS;
  }

  struct State {
    std::vector<double> busy_s;  // of a step, by worker
    double done_s = 0;           // one microbatch of the layers taken, on a worker of speed 1
    double way_s = 0;            // a forward down to the next part, and a backward up from it
    double first_weight_s = 0;
    double bound_s = 0;
  };

  const CandidateJudge& judge_;
  const Topology& topology_;
  const int64_t microbatches_;
  bool by_worker_ = false;
  bool drains_ = false;
  std::vector<double> speeds_;                 // by worker of the pipeline
  std::vector<std::vector<StageId>> holders_;  // by part
  std::vector<bool> recomputes_;               // by part
  double all_s_ = 0;                           // of all layers
  std::vector<State> states_;
};

// The least memory of the worker that needs most, from the parts that have layers so far: their weights once.
class MemoryBound {
 public:
  explicit MemoryBound(const CandidateJudge& judge)
      : chain_(judge.job().model), topology_(judge.topology()) {
    held_.emplace_back(topology_.workers);
  }

  void Push(int part, LayerRange range) {
    std::vector<int64_t> held = held_.back();
    const int64_t bytes = WeightsOfLayers(chain_, range) * SizeOf(DType::kF32);
    // There and back a worker has one copy for several stages of a part.
    const bool one_copy = topology_.form == Topology::Form::kThereAndBack;
    for (const StageWiring& stage : topology_.table) {
      if (stage.part == part && !one_copy) held[stage.worker.value] += bytes;
    }
    held_.push_back(std::move(held));
  }
  void Pop() { held_.pop_back(); }

  int64_t OfTaken() const { return *std::max_element(held_.back().begin(), held_.back().end()); }

 private:
  const ModelGraph& chain_;
  const Topology& topology_;
  std::vector<std::vector<int64_t>> held_;  // by worker, for every number of parts taken
};

// Returns `preferred` or, if the memory does not fit there, gives the workers with most room (the faster ones first) to
// those that need most: if it does not fit there, it fits nowhere.
std::vector<int> WorkersWithRoom(const CandidateJudge& judge,
                                 const std::vector<WorkerMemory>& memory,
                                 const std::vector<int>& preferred) {
  if (judge.CheckMemory(memory, preferred).ok()) return preferred;
  const Cluster& cluster = judge.input().cluster;
  std::vector<int> roomy(cluster.size());
  std::iota(roomy.begin(), roomy.end(), 0);
  std::stable_sort(roomy.begin(), roomy.end(), [&](int a, int b) {
    const PlanWorker& one = cluster.workers[a];
    const PlanWorker& other = cluster.workers[b];
    return std::pair(one.memory_bytes, one.speed) > std::pair(other.memory_bytes, other.speed);
  });
  std::vector<int> needy(memory.size());
  std::iota(needy.begin(), needy.end(), 0);
  std::stable_sort(needy.begin(), needy.end(),
                   [&](int a, int b) { return memory[a].total() > memory[b].total(); });
  std::vector<int> workers(memory.size());
  for (size_t at = 0; at < needy.size(); ++at) workers[needy[at]] = roomy[at];
  return workers;
}

}  // namespace

double StepBoundSeconds(const CandidateJudge& judge) {
  const Cluster& cluster = judge.input().cluster;
  std::vector<double> speeds;
  for (const PlanWorker& worker : cluster.workers) speeds.push_back(worker.speed);
  std::sort(speeds.rbegin(), speeds.rend());
  speeds.resize(judge.topology().workers);
  double capacity = 0;
  for (const double speed : speeds) capacity += speed;
  double work_s = 0;
  for (const StageCosts& layer : judge.layer_costs()) work_s += WorkOf(layer);
  const int64_t passes = judge.job().microbatches * judge.topology().parts();
  return static_cast<double>(judge.job().microbatches) * work_s / capacity * (1 - kRounding) -
         static_cast<double>(passes) * kPassesRoundingS;
}

bool SearchEffort::Take(int64_t steps) {
  if (placements <= 0 || budget.IsSpent(steps)) return false;
  if (steps >= kStepsOfASimulation) --placements;
  return true;
}

SplitSearchResult SearchShortestStep(const CandidateJudge& judge, double known_s,
                                     SearchEffort& effort) {
  SplitSearchResult result;
  bool may_have_better_order = false;  // some placement whose bound does not rule it out
  const auto search = [&](const std::vector<int>& workers) {
    const v1::DeviceTimes times = judge.TimesOn(workers);
    StepBound bound(judge, workers);
    Splits splits(PlacesToCut(judge.job()), judge.topology().parts());
    splits.may_take = [&](int part, LayerRange range) {
      bound.Push(part, range);
      result.is_complete = result.is_complete && effort.Take(kStepsOfAPart);
      if (bound.OfTaken() < known_s && result.is_complete) return true;
      bound.Pop();
      return false;
    };
    splits.give_back = [&] { bound.Pop(); };
    splits.is_worth = [&](int parts) { return bound.OfRest(parts) < known_s; };
    splits.visit = [&](const std::vector<LayerRange>& layers) {
      result.is_complete = effort.Take(kStepsOfASimulation);
      if (!result.is_complete) return;
      may_have_better_order = may_have_better_order || judge.searches_order();
      const absl::StatusOr<double> step_s = judge.StepSeconds(times, layers);
      if (!step_s.ok() || *step_s >= known_s) return;
      JudgedCandidate judged = judge.Judge({.workers = workers, .layers = layers});
      if (!judged.runs()) return;
      known_s = judged.step_s;
      result.best = std::move(judged);
    };
    splits.Run();
    return result.is_complete;
  };
  if (judge.input().keeps_order) {
    std::vector<int> workers(judge.topology().workers);
    std::iota(workers.begin(), workers.end(), 0);
    search(workers);
  } else {
    WorkerOrders(judge.input().cluster).ForEach(judge.topology().workers, search);
  }
  result.is_complete = result.is_complete && !may_have_better_order;
  return result;
}

SplitSearchResult SearchLeastMemory(const CandidateJudge& judge, int64_t known_bytes,
                                    SearchEffort& effort) {
  SplitSearchResult result;
  const absl::StatusOr<StagePlacement> evenly = judge.Evenly();
  if (!evenly.ok()) return result;
  const std::vector<int>& preferred = evenly->workers;
  MemoryBound bound(judge);
  Splits splits(PlacesToCut(judge.job()), judge.topology().parts());
  splits.may_take = [&](int part, LayerRange range) {
    bound.Push(part, range);
    result.is_complete = result.is_complete && effort.Take(kStepsOfAPart);
    if (bound.OfTaken() < known_bytes && result.is_complete) return true;
    bound.Pop();
    return false;
  };
  splits.give_back = [&] { bound.Pop(); };
  splits.is_worth = [](int) { return true; };
  splits.visit = [&](const std::vector<LayerRange>& layers) {
    result.is_complete = effort.Take(kStepsOfACount);
    if (!result.is_complete) return;
    const absl::StatusOr<std::vector<WorkerMemory>> memory = judge.Memory(layers);
    if (!memory.ok()) return;
    const int64_t most = MostBytes(*memory);
    if (most >= known_bytes) return;
    JudgedCandidate judged =
        judge.Judge({.workers = WorkersWithRoom(judge, *memory, preferred), .layers = layers});
    if (!judged.runs()) return;
    known_bytes = most;
    result.best = std::move(judged);
  };
  splits.Run();
  return result;
}

}  // namespace penstock
