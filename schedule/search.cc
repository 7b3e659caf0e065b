#include "schedule/search.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/random.h"
#include "base/status.h"
#include "schedule/catalog/catalog.h"
#include "schedule/search/bound.h"
#include "schedule/search/improve.h"
#include "schedule/search/list_scheduling.h"
#include "schedule/search/problem.h"
#include "schedule/search/step_clock.h"
#include "schedule/warm_up.h"

namespace penstock {
namespace {

constexpr double kNsPerSecond = 1e9;
constexpr int64_t kMoves = 200'000;
constexpr int64_t kMovesTimesPasses = 600'000'000;

constexpr uint64_t kPurpose = 0x7365617263686564;  // "searched"

absl::StatusOr<std::vector<int64_t>> LimitsOf(const Topology& topology,
                                              const SearchOptions& options) {
  if (options.activations_max.empty()) {
    const std::vector<int64_t> warm_ups =
        WarmUpForwards(ReplicasOf(topology), ReplicasMeet::kAtSteps);
    return std::vector<int64_t>(topology.workers,
                                *std::max_element(warm_ups.begin(), warm_ups.end()) + 1);
  }
  if (options.activations_max.size() != static_cast<size_t>(topology.workers)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the memory has ", options.activations_max.size(),
                     " numbers; expected one for each of ", topology.workers, " workers"));
  }
  for (int32_t worker = 0; worker < topology.workers; ++worker) {
    const auto stages = static_cast<int64_t>(topology.StagesOf(WorkerId(worker)).size());
    if (options.activations_max[worker] >= stages) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the memory of worker ", worker, " is ", options.activations_max[worker],
                     " activations; it needs one for each of its stages, ", stages));
  }
  return options.activations_max;
}

absl::Status CheckSize(const Topology& topology, int64_t microbatches, int64_t steps) {
  PENSTOCK_RETURN_IF_ERROR(CheckTopology(topology));
  PENSTOCK_CHECK(steps >= 1);
  const int64_t most = SearchMicrobatchesMax(topology.depth(), steps);
  if (microbatches < 1 || microbatches > most) {
    return absl::InvalidArgumentError(absl::StrCat("a search on ", topology.depth(),
                                                   " stages takes 1 to ", most,
                                                   " microbatches, got ", microbatches));
  }
  if (topology.form != Topology::Form::kReplicas || microbatches % topology.cycle == 0) {
    return absl::OkStatus();
  }
  const std::string multiple =
      absl::StrCat("a search on stages with ", absl::StrJoin(ReplicasOf(topology), ","),
                   " replicas takes a multiple of ", topology.cycle,
                   " microbatches, the least common multiple of these numbers, ");
  return absl::InvalidArgumentError(
      topology.cycle > most
          ? absl::StrCat(multiple, "but at most ", most, "; numbers with common divisors would do")
          : absl::StrCat(multiple, "got ", microbatches));
}

class Search {
 public:
  Search(const StepProblem& problem, const SearchOptions& options)
      : problem_(problem),
        options_(options),
        check_(problem),
        clock_(problem),
        random_(options.seed, kPurpose) {
    const int64_t passes = problem.passes() * problem.steps;
    moves_ = options.moves.value_or(std::min(kMoves, kMovesTimesPasses / passes));
  }

  absl::StatusOr<SearchResult> Run() {
    AddCatalog();
    for (const ListRule& rule : ListRules(problem_)) {
      if (std::optional<StepOrder> order = ListSchedule(problem_, rule)) AddSeed(*std::move(order));
    }
    PENSTOCK_CHECK(!seeds_.empty());  // ListRules
    const int64_t bound_ns = StepBound(problem_);
    const TimedOrder best = ImproveSeeds(bound_ns);
    result_.makespan_s = static_cast<double>(best.makespan_ns) / kNsPerSecond;
    result_.bound_s = static_cast<double>(bound_ns) / kNsPerSecond;
    PENSTOCK_ASSIGN_OR_RETURN(result_.schedule, Complete(best.order));
    // Orders send gradients early. With little room in the channels that can be the longer way.
    if (catalog_ && result_.catalog_makespan_s < result_.makespan_s) {
      result_.makespan_s = result_.catalog_makespan_s;
      result_.schedule = *std::move(catalog_);
    }
    return std::move(result_);
  }

 private:
  bool Fits(const StepOrder& order) {
    for (size_t worker = 0; worker < order.lists.size(); ++worker) {
      if (!check_.Allows(static_cast<int32_t>(worker), order.lists[worker])) return false;
    }
    return true;
  }

  void AddSeed(StepOrder order) {
    if (!Fits(order)) return;
    const int64_t makespan_ns = clock_.Measure(order);
    if (makespan_ns != StepClock::kNever) seeds_.push_back({std::move(order), makespan_ns});
  }

  void AddCatalog() {
    for (const Method& method : Methods()) {
      for (const bool early : {false, true}) {
        const MicrobatchRange step{.first = 0, .count = problem_.microbatches};
        const ScheduleOptions options{.topology = problem_.topology,
                                      .microbatches_per_step = problem_.microbatches,
                                      .send_gradient_early = early};
        if (!method.synchronous || !CheckBuildable(method, options, step).ok()) continue;
        absl::StatusOr<Schedule> schedule = BuildSchedule(method, options, step);
        if (!schedule.ok() || !Fits(OrderOf(*schedule))) continue;
        AddSeed(OrderOf(*schedule));
        if (problem_.topology.form == Topology::Form::kReplicas) {
          CompareOrder(method, OrderOf(*schedule));
        } else {
          Compare(method, options, *std::move(schedule));
        }
      }
    }
  }

  // Keeps the best of the catalog. `step`: one step of the method.
  void Compare(const Method& method, const ScheduleOptions& options, Schedule step) {
    const absl::StatusOr<Schedule> steps = BuildSchedule(
        method, options, {.first = 0, .count = problem_.steps * problem_.microbatches});
    if (!steps.ok()) return;
    const absl::StatusOr<SimulationResult> simulated =
        Simulate(*steps, options_.costs, {.channel_capacity = options_.channel_capacity});
    if (!simulated.ok()) return;  // it needs larger channels
    if (catalog_ && simulated->makespan_s >= result_.catalog_makespan_s) return;
    catalog_ = std::move(step);
    result_.catalog_method = std::string(method.name);
    result_.catalog_makespan_s = simulated->makespan_s;
  }

  // The same where places have replicas, without the reductions that the simulator would count. Its order is then among
  // the seeds.
  void CompareOrder(const Method& method, const StepOrder& order) {
    const int64_t makespan_ns = clock_.Measure(order);
    if (makespan_ns == StepClock::kNever) return;  // it needs larger channels
    const double makespan_s = static_cast<double>(makespan_ns) / kNsPerSecond;
    if (!result_.catalog_method.empty() && makespan_s >= result_.catalog_makespan_s) return;
    result_.catalog_method = std::string(method.name);
    result_.catalog_makespan_s = makespan_s;
  }

  // A short search from each of the best different seeds, then a long one from the best of those.
  TimedOrder ImproveSeeds(int64_t bound_ns) {
    constexpr size_t kSeeds = 4;
    std::stable_sort(seeds_.begin(), seeds_.end(), [](const TimedOrder& a, const TimedOrder& b) {
      return a.makespan_ns < b.makespan_ns;
    });
    TimedOrder best = seeds_.front();
    std::vector<TimedOrder> starts;
    for (const TimedOrder& seed : seeds_) {
      if (starts.size() == kSeeds) break;
      if (starts.empty() || starts.back().makespan_ns != seed.makespan_ns) starts.push_back(seed);
    }
    const int64_t share = moves_ / (2 * static_cast<int64_t>(starts.size()));
    const auto improve = [&](const TimedOrder& start, int64_t moves, int64_t permille) {
      TimedOrder improved =
          Improve(problem_, start,
                  {.moves = moves, .threshold_permille = permille, .bound_ns = bound_ns}, random_);
      if (improved.makespan_ns < best.makespan_ns) best = std::move(improved);
    };
    for (const TimedOrder& start : starts) improve(start, share, 10);
    improve(TimedOrder(best), moves_ / 2, 5);
    return best;
  }

  absl::StatusOr<Schedule> Complete(const StepOrder& order) const {
    const ScheduleOptions options{
        .topology = problem_.topology,
        .microbatches_per_step = problem_.microbatches,
        .listed = std::make_shared<const Schedule>(ToComputeSchedule(problem_, order)),
        .send_gradient_early = true};
    PENSTOCK_ASSIGN_OR_RETURN(
        Schedule schedule,
        BuildSchedule(ListedMethod(), options, {.first = 0, .count = problem_.microbatches}));
    schedule.name = "searched";
    return schedule;
  }

  const StepProblem& problem_;
  const SearchOptions& options_;
  int64_t moves_ = 0;
  ListCheck check_;
  StepClock clock_;
  RandomStream random_;
  std::vector<TimedOrder> seeds_;
  SearchResult result_;
  std::optional<Schedule> catalog_;  // the best one
};

}  // namespace

absl::StatusOr<SearchResult> SearchSchedule(const Topology& topology, int64_t microbatches,
                                            const SearchOptions& options) {
  PENSTOCK_RETURN_IF_ERROR(CheckSize(topology, microbatches, options.steps));
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<int64_t> limits, LimitsOf(topology, options));
  if (options.channel_capacity < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a channel must hold at least 1 message, got ", options.channel_capacity));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const StepProblem problem,
                            MakeStepProblem(topology, microbatches, options.costs, limits,
                                            options.channel_capacity, options.steps));
  return Search(problem, options).Run();
}

}  // namespace penstock
