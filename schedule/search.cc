#include "schedule/search.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "base/status.h"
#include "schedule/catalog/catalog.h"
#include "schedule/search/bound.h"
#include "schedule/search/improve.h"
#include "schedule/search/list_scheduling.h"
#include "schedule/search/problem.h"
#include "schedule/search/step_clock.h"

namespace penstock {
namespace {

constexpr uint64_t kPurpose = 0x7365617263686564;  // "searched"

absl::StatusOr<std::vector<int64_t>> LimitsOf(const Topology& topology,
                                              const SearchOptions& options) {
  if (options.activations_max.empty()) {
    return std::vector<int64_t>(topology.workers, topology.stages());
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

absl::Status CheckSize(const Topology& topology, int64_t microbatches) {
  PENSTOCK_RETURN_IF_ERROR(CheckTopology(topology));
  const int64_t most = kSearchPassesMax / kPasses / topology.stages();
  if (microbatches >= 1 && microbatches <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a search on ", topology.stages(),
                                                 " stages takes 1 to ", most, " microbatches, got ",
                                                 microbatches));
}

class Search {
 public:
  Search(const StepProblem& problem, const SearchOptions& options)
      : problem_(problem),
        options_(options),
        check_(problem),
        clock_(problem),
        random_(options.seed, kPurpose) {}

  absl::StatusOr<SearchResult> Run() {
    AddCatalog();
    for (const ListRule& rule : ListRules(problem_)) {
      if (std::optional<StepOrder> order = ListSchedule(problem_, rule)) AddSeed(*std::move(order));
    }
    if (seeds_.empty()) {
      return absl::FailedPreconditionError(
          "no order was found that keeps within the memory of the workers");
    }
    const int64_t bound_ns = StepBound(problem_);
    const TimedOrder best = ImproveSeeds(bound_ns);
    result_.makespan_s = static_cast<double>(best.makespan_ns) * 1e-9;
    result_.bound_s = static_cast<double>(bound_ns) * 1e-9;
    PENSTOCK_ASSIGN_OR_RETURN(result_.schedule, Complete(best.order));
    return std::move(result_);
  }

 private:
  // Returns the length; kNever where the order does not fit or does not end.
  int64_t AddSeed(StepOrder order) {
    for (size_t worker = 0; worker < order.lists.size(); ++worker) {
      if (!check_.Allows(static_cast<int32_t>(worker), order.lists[worker])) {
        return StepClock::kNever;
      }
    }
    const int64_t makespan_ns = clock_.Measure(order);
    if (makespan_ns != StepClock::kNever) seeds_.push_back({std::move(order), makespan_ns});
    return makespan_ns;
  }

  void AddCatalog() {
    int64_t best_ns = StepClock::kNever;
    for (const Method& method : Methods()) {
      const MicrobatchRange step{.first = 0, .count = problem_.microbatches};
      const ScheduleOptions options{.topology = problem_.topology,
                                    .microbatches_per_step = problem_.microbatches};
      if (!method.synchronous || !CheckBuildable(method, options, step).ok()) continue;
      const absl::StatusOr<Schedule> schedule = BuildSchedule(method, options, step);
      if (!schedule.ok()) continue;
      const int64_t makespan_ns = AddSeed(OrderOf(*schedule));
      if (makespan_ns >= best_ns) continue;
      best_ns = makespan_ns;
      result_.catalog_method = std::string(method.name);
      result_.catalog_makespan_s = static_cast<double>(makespan_ns) * 1e-9;
    }
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
    const int64_t share = options_.moves / (2 * static_cast<int64_t>(starts.size()));
    const auto improve = [&](const TimedOrder& start, int64_t moves, int64_t permille) {
      TimedOrder improved =
          Improve(problem_, start,
                  {.moves = moves, .threshold_permille = permille, .bound_ns = bound_ns}, random_);
      if (improved.makespan_ns < best.makespan_ns) best = std::move(improved);
    };
    for (const TimedOrder& start : starts) improve(start, share, 10);
    improve(TimedOrder(best), options_.moves / 2, 5);
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
  ListCheck check_;
  StepClock clock_;
  RandomStream random_;
  std::vector<TimedOrder> seeds_;
  SearchResult result_;
};

}  // namespace

absl::StatusOr<SearchResult> SearchSchedule(const Topology& topology, int64_t microbatches,
                                            const SearchOptions& options) {
  PENSTOCK_RETURN_IF_ERROR(CheckSize(topology, microbatches));
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<int64_t> limits, LimitsOf(topology, options));
  if (options.channel_capacity < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a channel must hold at least 1 message, got ", options.channel_capacity));
  }
  PENSTOCK_ASSIGN_OR_RETURN(
      const StepProblem problem,
      MakeStepProblem(topology, microbatches, options.costs, limits, options.channel_capacity));
  return Search(problem, options).Run();
}

}  // namespace penstock
