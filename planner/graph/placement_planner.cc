#include "planner/graph/placement_planner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "planner/graph/column_search.h"
#include "planner/graph/fewer_layers.h"
#include "planner/graph/host_bound.h"
#include "planner/graph/ideals.h"
#include "planner/graph/improve_placement.h"
#include "planner/graph/in_order_search.h"
#include "planner/graph/limits.h"
#include "planner/graph/placement_search.h"
#include "planner/graph/prefix_bound.h"
#include "planner/graph/stage_planner.h"

namespace penstock {
namespace {

constexpr double kOptimalGap = 1e-9;
constexpr int64_t kCutsMax = 2'500;
constexpr int64_t kFewerCutsMax = 1'000;   // of a graph without its least layers, for the bound
constexpr int kOrderedCutsMax = 400;       // of sweeps over orders of workers
constexpr int kOrderedUnitsMax = 64;       // the same
constexpr double kHostBoundShare = 0.3;    // of the time left
constexpr int64_t kStagesMax = 5'000'000;  // that branch and bound looks at: a second or two

absl::Status CheckRequest(const LayerGraph& graph, const PlacementRequest& request) {
  PENSTOCK_RETURN_IF_ERROR(CheckLayerGraph(graph));
  PENSTOCK_RETURN_IF_ERROR(CheckCluster(request.cluster));
  if (graph.nodes.size() > kPlanLayersMax) {
    return absl::InvalidArgumentError(absl::StrCat("at most ", kPlanLayersMax,
                                                   " layers are planned, the graph has ",
                                                   graph.nodes.size(), "; profile coarser layers"));
  }
  if (request.cluster.size() > kPlanWorkersMax) {
    return absl::InvalidArgumentError(absl::StrCat("at most ", kPlanWorkersMax,
                                                   " workers are planned for, the cluster has ",
                                                   request.cluster.size()));
  }
  if (request.memory.size() != graph.nodes.size()) {
    return absl::InvalidArgumentError(absl::StrCat("memory is given of ", request.memory.size(),
                                                   " layers, the graph has ", graph.nodes.size()));
  }
  return absl::OkStatus();
}

bool IsUniform(const Cluster& cluster) {
  const auto by_host = WorkersByHost(cluster);
  return cluster.paths.empty() &&
         std::all_of(by_host.begin(), by_host.end(), [&](const std::vector<int>& host) {
           return host.size() == by_host.front().size();
         });
}

double LeastNicBandwidth(const Cluster& cluster) {
  double least = kInfinity;
  for (const PlanHost& host : cluster.hosts) least = std::min(least, host.nic_bytes_per_second);
  return least;
}

double LeastInsideBandwidth(const Cluster& cluster) {
  double least = kInfinity;
  for (const PlanHost& host : cluster.hosts) least = std::min(least, host.inside_bytes_per_second);
  return least;
}

// Some models want a finite number.
double Finite(double bytes_per_second) { return std::min(bytes_per_second, 1e18); }

// Returns what StagePlan says of a placement.
StagePlan Describe(const LayerGraph& graph, const PlacementCosts& costs,
                   const ClusterPlacement& placement) {
  const CutFamily& family = costs.family();
  const Cluster& cluster = costs.cluster();
  const PlacementCharge charge = costs.Charge(placement);
  StagePlan plan{.model = "cluster", .period_s = charge.period_s};
  for (size_t at = 0; at < placement.size(); ++at) {
    const PlacedStage& from = placement[at];
    PlannedStage stage{.nodes = family.NodesBetween(from.from_cut, from.to_cut),
                       .replicas = static_cast<int>(from.workers.size()),
                       .workers = static_cast<int>(from.workers.size()),
                       .work_s = family.StageWorkS(from.from_cut, from.to_cut),
                       .parameter_bytes = family.StageParameterBytes(from.from_cut, from.to_cut),
                       .placed_on = from.workers};
    if (at > 0) stage.input_bytes = family.live_bytes(from.from_cut);
    if (at + 1 < placement.size()) stage.output_bytes = family.live_bytes(from.to_cut);
    if (at < charge.stages.size()) {
      const StageCharge& of_stage = charge.stages[at];
      stage.compute_s = of_stage.compute_s;
      stage.sync_s = of_stage.sync_s;
      stage.stage_s = of_stage.compute_s + of_stage.sync_s;
      stage.memory_bytes = of_stage.memory_bytes;
      stage.in_flight = of_stage.in_flight;
      stage.recomputes = of_stage.recomputes;
    }
    if (at > 0 && at - 1 < charge.boundary_s.size()) stage.input_s = charge.boundary_s[at - 1];
    if (at < charge.boundary_s.size()) stage.output_s = charge.boundary_s[at];
    plan.workers_used += stage.workers;
    plan.stages.push_back(std::move(stage));
  }
  const auto share = [&](const std::string& name, double busy_s) {
    if (busy_s > 0) plan.shared.push_back({name, busy_s});
  };
  for (size_t host = 0; host < charge.nic_s.size(); ++host) {
    share(absl::StrCat("the NIC of ", cluster.hosts[host].name), charge.nic_s[host]);
  }
  for (size_t path = 0; path < charge.path_s.size(); ++path) {
    share(absl::StrCat("the path between ", cluster.hosts[cluster.paths[path].from].name, " and ",
                       cluster.hosts[cluster.paths[path].to].name),
          charge.path_s[path]);
  }
  for (size_t worker = 0; worker < charge.worker_link_s.size(); ++worker) {
    share(absl::StrCat("the link of ", cluster.workers[worker].name), charge.worker_link_s[worker]);
  }
  std::stable_sort(
      plan.shared.begin(), plan.shared.end(),
      [](const SharedResource& a, const SharedResource& b) { return a.busy_s > b.busy_s; });
  for (size_t at = 0; at < plan.stages.size(); ++at) {
    if (plan.stages[at].stage_s > plan.stages[plan.binding_stage].stage_s) {
      plan.binding_stage = static_cast<int>(at);
    }
  }
  const PlannedStage& longest = plan.stages[plan.binding_stage];
  if (charge.busiest.kind != BusiestResource::Kind::kStage) {
    plan.binding = Binding::kShared;
  } else {
    plan.binding = longest.compute_s >= longest.sync_s ? Binding::kCompute : Binding::kSync;
  }
  plan.one_worker_s = TotalWorkS(graph);
  plan.cuts_examined = family.size();
  return plan;
}

class Planner {
 public:
  Planner(const LayerGraph& graph, const PlacementRequest& request, TimeBudget& budget)
      : graph_(graph),
        request_(request),
        cluster_(request.cluster),
        budget_(budget),
        sorted_(SortGraph(graph)),
        judge_(request.goal == PlacementGoal::kPeriod ? PeriodJudge() : MemoryJudge()) {}

  absl::StatusOr<StagePlan> Plan() {
    PENSTOCK_ASSIGN_OR_RETURN(CutFamily family, Cuts());
    const std::vector<std::vector<PlacedNodes>> others = PlansOfOthers();
    family = WithStagesOf(family, others);
    const PlacementCosts costs(graph_, family, cluster_, request_.memory, request_.rule);
    for (const std::vector<PlacedNodes>& stages : others) {
      Consider(costs, PlacementOf(family, stages));
    }
    ConsiderEvenStages(costs);
    ConsiderColumns(costs);
    BoundByHosts(costs);
    ConsiderOrders(costs);
    const bool is_proven = Refine(costs);
    if (!best_.has_value()) return NothingFits(costs);
    StagePlan plan = Describe(graph_, costs, best_->placement);
    plan.in_time = !budget_.IsSpent(0);
    Bound(costs, is_proven && family.complete(), plan);
    ClusterPlacement all = {{.from_cut = 0, .to_cut = family.size() - 1}};
    all.front().workers.resize(cluster_.size());
    std::iota(all.front().workers.begin(), all.front().workers.end(), 0);
    plan.data_parallel_s = costs.Charge(all).period_s;
    return plan;
  }

 private:
  // Bounds what the hosts' NICs carry; where not all cuts are known, of the graph without its least layers.
  void BoundByHosts(const PlacementCosts& costs) {
    TimeBudget part = budget_.Part(kHostBoundShare);
    if (costs.family().complete()) {
      host_bound_s_ = HostBound(graph_, costs.family(), cluster_, KnownPeriod(costs), part);
      return;
    }
    if (!NicsAreLimited(cluster_)) return;
    const absl::StatusOr<ListedGraph> fewer = WithFewerLayers(graph_, kFewerCutsMax, part);
    if (!fewer.ok()) return;
    host_bound_s_ = HostBound(fewer->graph, fewer->family, cluster_, KnownPeriod(costs), part);
  }

  // Returns all cuts, or the best of each size.
  absl::StatusOr<CutFamily> Cuts() const {
    absl::StatusOr<CutFamily> all = EnumerateIdeals(sorted_, {.ideals_max = kCutsMax});
    if (all.ok()) return all;
    return EnumerateIdeals(sorted_,
                           {.ideals_max = std::numeric_limits<int64_t>::max(), .per_size_max = 1});
  }

  // Returns PipeDream's plans, and the best flat one with consistent links as if all workers were as fast as the
  // fastest and had the fastest link; its bound holds for every placement.
  std::vector<std::vector<PlacedNodes>> PlansOfOthers() {
    std::vector<std::vector<PlacedNodes>> plans;
    double most = 0;
    double speed = 0;
    for (const PlanHost& host : cluster_.hosts) {
      most = std::max(most, host.nic_bytes_per_second + host.inside_bytes_per_second);
    }
    for (const PlanWorker& worker : cluster_.workers) speed = std::max(speed, worker.speed);
    LayerGraph fastest = graph_;
    for (LayerNode& node : fastest.nodes) {
      node.forward_s /= speed;
      node.backward_s /= speed;
    }
    const double ways = cluster_.full_duplex ? 1 : 2;
    const auto plan = [&](const LayerGraph& graph, const StagePlanRequest& request, double share) {
      TimeBudget part = budget_.Part(share);
      absl::StatusOr<StagePlan> found = PlanStages(graph, request, part);
      if (found.ok()) plans.push_back(PlaceInOrder(*found, cluster_));
      return found;
    };
    // The transfers of both directions, and the averaging, are those of planner/graph/placement.h at half the
    // bytes per second.
    const absl::StatusOr<StagePlan> ideal =
        plan(fastest, FlatRequest(cluster_.size(), ConsistentModel(Finite(2 * most / ways))), 0.3);
    if (ideal.ok()) flat_bound_s_ = ideal->lower_bound_s;
    const double nic = Finite(LeastNicBandwidth(cluster_));
    const double inside = Finite(LeastInsideBandwidth(cluster_));
    plan(graph_, FlatRequest(cluster_.size(), ConsistentModel(nic)), 0.15).IgnoreError();
    plan(graph_, FlatRequest(cluster_.size(), PipeDreamReleasedModel(nic, true)), 0.15)
        .IgnoreError();
    const auto by_host = WorkersByHost(cluster_);
    if (IsUniform(cluster_) && by_host.size() > 1 && by_host.front().size() > 1) {
      const int per_host = static_cast<int>(by_host.front().size());
      const int hosts = static_cast<int>(by_host.size());
      plan(graph_,
           {.levels = {{per_host, PipeDreamReleasedModel(inside, true)},
                       {hosts, PipeDreamReleasedModel(nic, true)}}},
           0.2)
          .IgnoreError();
    }
    return plans;
  }

  CutFamily WithStagesOf(const CutFamily& family,
                         const std::vector<std::vector<PlacedNodes>>& plans) const {
    NodeSets more(sorted_.size());
    for (const std::vector<PlacedNodes>& plan : plans) AddSets(sorted_, plan, more);
    return more.size() == 0 ? family : WithCuts(sorted_, family, more);
  }

 public:
  // Adds the cuts behind each stage but the last.
  static void AddSets(const SortedGraph& sorted, const std::vector<PlacedNodes>& stages,
                      NodeSets& sets) {
    std::vector<int> position_of(sorted.node_of.size());
    for (int position = 0; position < sorted.size(); ++position) {
      position_of[sorted.node_of[position]] = position;
    }
    std::vector<uint64_t> set(sets.words());
    for (size_t stage = 0; stage + 1 < stages.size(); ++stage) {
      for (const int node : stages[stage].nodes) SetBit(set.data(), position_of[node]);
      sets.Add(set);
    }
  }

  // REQUIRES: the stages' cuts are in the family.
  static ClusterPlacement PlacementOf(const CutFamily& family,
                                      const std::vector<PlacedNodes>& stages) {
    ClusterPlacement placement;
    int from = 0;
    for (const PlacedNodes& stage : stages) {
      int to = from + 1;
      while (to < family.size() - 1 &&
             !(family.Inside(from, to) && HasNodes(family, from, to, stage.nodes))) {
        ++to;
      }
      placement.push_back({from, to, stage.workers});
      from = to;
    }
    return placement;
  }

 private:
  static bool HasNodes(const CutFamily& family, int from, int to, const std::vector<int>& nodes) {
    const std::vector<int> between = family.NodesBetween(from, to);
    return between.size() == nodes.size() &&
           std::is_permutation(between.begin(), between.end(), nodes.begin());
  }

  void Consider(const PlacementCosts& costs, ClusterPlacement placement) {
    const double score = judge_.Score(costs, placement);
    if (score < kInfinity && (!best_.has_value() || score < best_->score)) {
      best_ = ScoredPlacement{std::move(placement), score};
    }
  }

  // Returns cuts that are each inside the next, from the empty one on.
  static std::vector<int> NestedCuts(const CutFamily& family) {
    std::vector<int> chain = {0};
    for (int cut = 1; cut < family.size(); ++cut) {
      if (family.Inside(chain.back(), cut)) chain.push_back(cut);
    }
    return chain;
  }

  // Considers PipeDream-2BW's plans: every depth with as many workers for each stage, data parallelism among them.
  void ConsiderEvenStages(const PlacementCosts& costs) {
    const CutFamily& family = costs.family();
    const std::vector<int> chain = NestedCuts(family);
    const int layers = static_cast<int>(chain.size()) - 1;
    for (int depth = 1; depth <= std::min(layers, cluster_.size()); ++depth) {
      if (budget_.IsSpent(0)) return;
      const int width = cluster_.size() / depth;
      ClusterPlacement placement;
      for (int stage = 0; stage < depth; ++stage) {
        PlacedStage even{chain[int64_t{layers} * stage / depth],
                         chain[int64_t{layers} * (stage + 1) / depth]};
        for (int replica = 0; replica < width; ++replica) {
          even.workers.push_back(stage * width + replica);
        }
        placement.push_back(std::move(even));
      }
      Consider(costs, std::move(placement));
    }
  }

  // Returns the period of the best plan, or one that is always long enough.
  double KnownPeriod(const PlacementCosts& costs) const {
    return best_.has_value() && request_.goal == PlacementGoal::kPeriod ? best_->score
                                                                        : LongestPeriod(costs);
  }

  // Considers runs of layers on hosts of their own, which are fast where there are many hosts.
  void ConsiderColumns(const PlacementCosts& costs) {
    if (!IsUniform(cluster_) || cluster_.hosts.size() < 2) return;
    const CutFamily& family = costs.family();
    const std::vector<int> kept =
        family.size() > kOrderedCutsMax ? Thinned(family) : std::vector<int>();
    std::vector<int> chain = NestedCuts(kept.empty() ? family : family.Subfamily(kept));
    if (!kept.empty()) {
      for (int& cut : chain) cut = kept[cut];
    }
    std::optional<ClusterPlacement> found =
        SearchColumns(costs, chain, KnownPeriod(costs), budget_);
    if (found.has_value()) Consider(costs, std::move(*found));
  }

  // Returns orders of the workers worth trying, as units that a stage takes whole.
  std::vector<WorkerUnits> Orders() const {
    std::vector<WorkerUnits> orders;
    std::vector<std::vector<int>> hosts = WorkersByHost(cluster_);
    std::erase_if(hosts, [](const std::vector<int>& host) { return host.empty(); });
    const auto add = [&](const std::vector<std::vector<int>>& by_host) {
      WorkerUnits units;
      for (const std::vector<int>& host : by_host) AddUnits(host, units);
      orders.push_back(units);
      std::reverse(units.begin(), units.end());
      orders.push_back(std::move(units));
    };
    add(hosts);
    const auto speed_of = [&](int worker) { return cluster_.workers[worker].speed; };
    const auto by_speed = [&](int a, int b) { return speed_of(a) > speed_of(b); };
    for (std::vector<int>& host : hosts) std::stable_sort(host.begin(), host.end(), by_speed);
    add(hosts);
    std::stable_sort(hosts.begin(), hosts.end(),
                     [&](const std::vector<int>& a, const std::vector<int>& b) {
                       return speed_of(a.front()) > speed_of(b.front());
                     });
    add(hosts);
    // This order takes all workers by speed, wherever they are.
    std::vector<int> all(cluster_.size());
    std::iota(all.begin(), all.end(), 0);
    std::stable_sort(all.begin(), all.end(), by_speed);
    add({all});
    // These orders run the same pipeline on several groups of hosts, side by side.
    const bool alike = std::all_of(hosts.begin(), hosts.end(), [&](const std::vector<int>& host) {
      return host.size() == hosts.front().size();
    });
    const int count = static_cast<int>(hosts.size());
    for (int groups = 2; alike && groups <= count; ++groups) {
      if (count % groups != 0) continue;
      WorkerUnits units;
      for (int host = 0; host < count / groups; ++host) {
        for (size_t at = 0; at < hosts.front().size(); ++at) {
          std::vector<int> unit;
          unit.reserve(groups);
          for (int group = 0; group < groups; ++group) {
            unit.push_back(hosts[group * (count / groups) + host][at]);
          }
          units.push_back(std::move(unit));
        }
      }
      if (units.size() <= kOrderedUnitsMax) orders.push_back(std::move(units));
    }
    std::vector<WorkerUnits> distinct;
    for (WorkerUnits& order : orders) {
      if (std::find(distinct.begin(), distinct.end(), order) == distinct.end()) {
        distinct.push_back(std::move(order));
      }
    }
    return distinct;
  }

  // Adds single workers, or several of one host where there are many.
  void AddUnits(const std::vector<int>& host, WorkerUnits& units) const {
    const size_t size = (cluster_.size() + kOrderedUnitsMax - 1) / kOrderedUnitsMax;
    for (size_t at = 0; at < host.size(); at += size) {
      units.emplace_back(
          host.begin() + static_cast<std::ptrdiff_t>(at),
          host.begin() + static_cast<std::ptrdiff_t>(std::min(at + size, host.size())));
    }
  }

  // Returns for each amount of work the cut with the fewest bytes, for a family too large for sweeps.
  static std::vector<int> Thinned(const CutFamily& family) {
    const int last = family.size() - 1;
    std::vector<int> kept = {0};
    int slice = 0;
    for (int cut = 1; cut < last; ++cut) {
      const int at = static_cast<int>(family.work_s(cut) / family.work_s(last) * kOrderedCutsMax);
      if (at != slice || kept.size() == 1) {
        kept.push_back(cut);
        slice = at;
      } else if (family.live_bytes(cut) < family.live_bytes(kept.back())) {
        kept.back() = cut;
      }
    }
    if (last > 0) kept.push_back(last);
    return kept;
  }

  void ConsiderOrders(const PlacementCosts& costs) {
    const CutFamily& family = costs.family();
    const bool is_large = family.size() > kOrderedCutsMax;
    std::vector<int> kept(family.size());
    std::iota(kept.begin(), kept.end(), 0);
    if (is_large) kept = Thinned(family);
    const CutFamily thin = family.Subfamily(kept);
    const PlacementCosts thin_costs(graph_, thin, cluster_, request_.memory, request_.rule);
    for (const WorkerUnits& units : Orders()) {
      // With the goal of least memory, any period will do.
      const bool any = !best_.has_value() || request_.goal == PlacementGoal::kMemory;
      const double must_beat_s = any ? LongestPeriod(costs) : best_->score;
      std::optional<ClusterPlacement> found =
          SearchInOrder(thin_costs, units, must_beat_s, any ? 1e-2 : 1e-4, budget_);
      if (!found.has_value()) continue;
      for (PlacedStage& stage : *found) {
        stage.from_cut = kept[stage.from_cut];
        stage.to_cut = kept[stage.to_cut];
      }
      Consider(costs, std::move(*found));
    }
  }

  // Returns a period that no placement exceeds, except one that nobody would make.
  double LongestPeriod(const PlacementCosts& costs) const {
    const CutFamily& family = costs.family();
    const int last = family.size() - 1;
    double slowest = kInfinity;
    double least = std::min(LeastNicBandwidth(cluster_), LeastInsideBandwidth(cluster_));
    for (const PlanWorker& worker : cluster_.workers) slowest = std::min(slowest, worker.speed);
    for (const HostPath& path : cluster_.paths) least = std::min(least, path.bytes_per_second);
    double bytes = 0;
    for (int cut = 1; cut < last; ++cut) bytes = std::max(bytes, family.live_bytes(cut));
    bytes = bytes * cluster_.size() + family.parameter_bytes(last) * cluster_.size();
    return 2 * family.work_s(last) / slowest + 4 * bytes / least + 1e-9;
  }

  // Tries small changes, and if there are few enough, all placements. Returns whether none is better.
  bool Refine(const PlacementCosts& costs) {
    if (best_.has_value()) best_ = ImprovePlacement(costs, judge_, std::move(*best_), budget_);
    const double must_beat = best_.has_value() ? best_->score : kInfinity;
    PlacementSearchResult result = SearchPlacements(costs, judge_, must_beat, kStagesMax, budget_);
    if (result.placement.has_value()) {
      best_ = ScoredPlacement{std::move(*result.placement), result.score};
      if (!result.is_complete) best_ = ImprovePlacement(costs, judge_, *best_, budget_);
    }
    return result.is_complete;
  }

  void Bound(const PlacementCosts& costs, bool is_proven, StagePlan& plan) const {
    double speed = 0;
    for (const PlanWorker& worker : cluster_.workers) speed += worker.speed;
    double bound_s = std::max({flat_bound_s_, host_bound_s_, TotalWorkS(graph_) / speed});
    if (costs.family().complete()) {
      bound_s = std::max(bound_s, PrefixBound(costs.family(), cluster_)
                                      .PeriodS(costs.family().size() - 1, cluster_.size(), speed));
    }
    if (is_proven && request_.goal == PlacementGoal::kPeriod) bound_s = plan.period_s;
    plan.lower_bound_s = std::min(bound_s, plan.period_s);
    plan.is_optimal = request_.goal == PlacementGoal::kPeriod
                          ? plan.period_s <= plan.lower_bound_s * (1 + kOptimalGap)
                          : is_proven;
  }

  // Returns the error that says how much memory would do, the least with which something was found to fit.
  absl::Status NothingFits(const PlacementCosts& costs) {
    if (budget_.IsSpent(0)) {
      return absl::DeadlineExceededError(
          "the time to plan was over before any plan was found; allow more");
    }
    double most = 0;
    for (const PlanWorker& worker : cluster_.workers) most = std::max(most, worker.memory_bytes);
    return absl::FailedPreconditionError(
        absl::StrFormat("no split found fits into the memory of the %d workers, of %.3f GB at "
                        "most; it would with %.3f GB on "
                        "each, or with more workers",
                        cluster_.size(), most / 1e9, LeastMemory(costs) / 1e9));
  }

  // Returns the least memory, equal on all workers, with which a plan was found.
  double LeastMemory(const PlacementCosts& costs) {
    ClusterPlacement all = {{.from_cut = 0, .to_cut = costs.family().size() - 1, .workers = {0}}};
    double high = costs.StageMemoryBytes(all.front(), 1, false);
    double low = 0;
    Cluster cluster = cluster_;
    const std::vector<WorkerUnits> orders = Orders();
    while (low < high * (1 - 1e-3) && !budget_.IsSpent(0)) {
      const double middle = (low + high) / 2;
      for (PlanWorker& worker : cluster.workers) worker.memory_bytes = middle;
      const PlacementCosts limited(graph_, costs.family(), cluster, request_.memory, request_.rule);
      bool fits = false;
      for (const WorkerUnits& units : orders) {
        fits =
            fits || SearchInOrder(limited, units, LongestPeriod(costs), 0.5, budget_).has_value();
      }
      (fits ? high : low) = middle;
    }
    return high;
  }

  const LayerGraph& graph_;
  const PlacementRequest& request_;
  const Cluster& cluster_;
  TimeBudget& budget_;
  const SortedGraph sorted_;
  const PlacementJudge& judge_;
  double flat_bound_s_ = 0;
  double host_bound_s_ = 0;
  std::optional<ScoredPlacement> best_;
};

}  // namespace

absl::StatusOr<StagePlan> PlanPlacement(const LayerGraph& graph, const PlacementRequest& request,
                                        TimeBudget& budget) {
  PENSTOCK_RETURN_IF_ERROR(CheckRequest(graph, request));
  return Planner(graph, request, budget).Plan();
}

std::vector<PlacedNodes> PlaceInOrder(const StagePlan& plan, const Cluster& cluster) {
  std::vector<PlacedNodes> placed;
  const std::vector<std::vector<int>> hosts = WorkersByHost(cluster);
  std::vector<int> workers;
  for (const std::vector<int>& host : hosts) {
    workers.insert(workers.end(), host.begin(), host.end());
  }
  size_t next = 0;       // of the workers
  size_t next_host = 0;  // with levels
  for (const PlannedStage& stage : plan.stages) {
    if (stage.inner.empty()) {
      PlacedNodes flat{.nodes = stage.nodes};
      for (int replica = 0; replica < stage.replicas; ++replica) {
        flat.workers.push_back(workers[next++]);
      }
      placed.push_back(std::move(flat));
      continue;
    }
    int first = 0;  // of each host's workers
    for (const PlannedStage& inner : stage.inner) {
      PlacedNodes side_by_side{.nodes = inner.nodes};
      for (int replica = 0; replica < inner.replicas; ++replica) {
        for (int host = 0; host < stage.replicas; ++host) {
          side_by_side.workers.push_back(hosts[next_host + host][first + replica]);
        }
      }
      first += inner.replicas;
      placed.push_back(std::move(side_by_side));
    }
    next_host += stage.replicas;
  }
  return placed;
}

absl::StatusOr<StagePlan> ChargePlan(const LayerGraph& graph, const PlacementRequest& request,
                                     const std::vector<PlacedNodes>& stages) {
  PENSTOCK_RETURN_IF_ERROR(CheckRequest(graph, request));
  const SortedGraph sorted = SortGraph(graph);
  NodeSets sets(sorted.size());
  const std::vector<uint64_t> none(sets.words());
  std::vector<uint64_t> all(sets.words());
  for (int position = 0; position < sorted.size(); ++position) SetBit(all.data(), position);
  sets.Add(none);
  sets.Add(all);
  Planner::AddSets(sorted, stages, sets);
  std::vector<double> live_bytes(sets.size());
  for (size_t set = 0; set < sets.size(); ++set) live_bytes[set] = LiveBytes(sorted, sets[set]);
  const CutFamily family(sorted, sets, live_bytes, /*complete=*/false);
  const PlacementCosts costs(graph, family, request.cluster, request.memory, request.rule);
  return Describe(graph, costs, Planner::PlacementOf(family, stages));
}

}  // namespace penstock
