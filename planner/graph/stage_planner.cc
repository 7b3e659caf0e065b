#include "planner/graph/stage_planner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "planner/graph/antichain_states.h"
#include "planner/graph/cut_bound.h"
#include "planner/graph/cut_programme.h"
#include "planner/graph/cut_search.h"
#include "planner/graph/cuts_between.h"
#include "planner/graph/ideals.h"
#include "planner/graph/limits.h"

namespace penstock {
namespace {

constexpr double kOptimalGap = 1e-9;

// Rows of a level are filled for many first cuts, so that levels take far fewer cuts than one does.
constexpr int64_t kLevelCutsMax = 2'500;

absl::Status CheckLevels(const std::vector<HierarchyLevel>& levels) {
  if (levels.empty()) {
    return absl::InvalidArgumentError("a plan needs at least one level of workers, got none");
  }
  int64_t workers = 1;
  for (const HierarchyLevel& level : levels) {
    PENSTOCK_RETURN_IF_ERROR(CheckCostModel(level.model));
    if (level.workers < 1 || level.workers > kPlanWorkersMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("a level has 1 to ", kPlanWorkersMax, " workers, got ", level.workers));
    }
    workers *= level.workers;
    if (workers > kPlanWorkersMax) {
      return absl::InvalidArgumentError(absl::StrCat(
          "at most ", kPlanWorkersMax, " workers are planned for, got ", workers, " or more"));
    }
    const bool goes_in_levels =
        level.model.uses_all_workers && level.model.link != LinkRule::kSmallerSide;
    if (levels.size() > 1 && !goes_in_levels) {
      return absl::InvalidArgumentError(
          absl::StrCat("the model ", level.model.name,
                       " has no form for several levels; plan one level with its slowest link"));
    }
  }
  return absl::OkStatus();
}

class Planner {
 public:
  Planner(const LayerGraph& graph, const StagePlanRequest& request, TimeBudget& budget)
      : request_(request), sorted_(SortGraph(graph)), budget_(budget), plan_cuts_(sorted_.size()) {
    for (const HierarchyLevel& level : request.levels) workers_ *= level.workers;
  }

  absl::StatusOr<StagePlan> Plan() {
    PENSTOCK_RETURN_IF_ERROR(request_.levels.size() == 1 ? PlanFlat() : PlanLevels());
    if (!plan_.stages.empty()) {
      Finish();
      return std::move(plan_);
    }
    if (!plan_.in_time) {
      return absl::DeadlineExceededError(
          "the time to plan was over before any plan was found; allow more");
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "a straight pipeline on exactly ", workers_, " workers needs as many stages, the ",
        sorted_.size(), " layers cannot be cut into that many; use fewer workers"));
  }

 private:
  const StageCostModel& model() const { return request_.levels.front().model; }

  absl::Status PlanFlat() {
    if (request_.cuts == CutRule::kAntichains) {
      PENSTOCK_ASSIGN_OR_RETURN(const CutFamily states, AntichainStates(sorted_));
      Improve(states, /*is_whole=*/true);
      return absl::OkStatus();
    }
    // A few cuts come first: their plan is a bound that lets most pairs of many cuts be refused at once.
    PENSTOCK_ASSIGN_OR_RETURN(const CutFamily narrow, EnumerateIdeals(sorted_, Beam(1)));
    Improve(narrow, narrow.complete());
    if (narrow.complete()) return absl::OkStatus();
    PENSTOCK_ASSIGN_OR_RETURN(const CutFamily beam, EnumerateIdeals(sorted_, Beam(4)));
    Improve(beam, beam.complete());
    if (beam.complete()) return absl::OkStatus();

    const absl::StatusOr<CutFamily> all =
        EnumerateIdeals(sorted_, {.ideals_max = request_.cuts_max});
    if (all.ok()) {
      Improve(*all, /*is_whole=*/true);
      return absl::OkStatus();
    }
    Improve(WithLightCuts(narrow), /*is_whole=*/false);
    ImproveBetweenCuts();
    plan_.lower_bound_s =
        std::max(plan_.lower_bound_s,
                 LowerBoundS(sorted_, model(), workers_,
                             plan_.stages.empty() ? kInfinity : plan_.period_s, budget_));
    return absl::OkStatus();
  }

  // Returns the family with the lightest cuts for every amount of work, of equal ones those with few and those with
  // many parameters inside.
  CutFamily WithLightCuts(const CutFamily& family) {
    constexpr int kUnits = 3072;
    CutProgramme programme(sorted_, kUnits, budget_);
    const double activation_bytes = Sum(sorted_.activation_bytes);
    const double parameter_bytes = Sum(sorted_.parameter_bytes);
    NodeSets light(sorted_.size());
    for (const double preference : {-1e-3, 1e-3}) {
      CutCharges charges{sorted_.parameter_bytes, sorted_.activation_bytes};
      for (double& bytes : charges.inside) {
        bytes *= parameter_bytes > 0 ? preference * activation_bytes / parameter_bytes : 0;
      }
      const std::optional<NodeSets> cuts = programme.LightCuts(charges);
      if (!cuts.has_value()) break;
      for (size_t cut = 0; cut < cuts->size(); ++cut) light.Add((*cuts)[cut]);
    }
    return WithCuts(sorted_, family, light);
  }

  // Looks for better cuts between every two of the plan's cuts that have one more between them, as long
  // as that helps.
  void ImproveBetweenCuts() {
    constexpr int kUnits = 16'000;  // of all together
    // A stage that averages gradients pays for parameters as for bytes.
    constexpr double kParameterWeight = 1;
    constexpr double kLeastGain = 1e-5;  // of the period
    double before_s = kInfinity;
    while (!plan_.stages.empty() && plan_.period_s < before_s * (1 - kLeastGain)) {
      before_s = plan_.period_s;
      const int units = kUnits / static_cast<int>(plan_cuts_.size());
      NodeSets nearby = plan_cuts_;
      for (size_t cut = 0; cut + 2 < plan_cuts_.size(); ++cut) {
        const std::optional<NodeSets> light = LightCutsBetween(
            sorted_, plan_cuts_[cut], plan_cuts_[cut + 2], units, kParameterWeight, budget_);
        if (!light.has_value()) return;
        for (size_t at = 0; at < light->size(); ++at) nearby.Add((*light)[at]);
      }
      std::vector<double> live_bytes;
      for (size_t cut = 0; cut < nearby.size(); ++cut) {
        live_bytes.push_back(LiveBytes(sorted_, nearby[cut]));
      }
      Improve(CutFamily(sorted_, nearby, live_bytes, /*complete=*/false), /*is_whole=*/false);
    }
  }

  static IdealLimits Beam(int per_size) {
    return {.ideals_max = std::numeric_limits<int64_t>::max(), .per_size_max = per_size};
  }

  // Takes the best plan over `family` if it beats the one at hand. A family that is whole has a best
  // plan if there is any, and its bound holds.
  void Improve(const CutFamily& family, bool is_whole) {
    plan_.cuts_examined = std::max(plan_.cuts_examined, family.size());
    const CutSearchResult result = SearchCuts(
        family, model(), workers_, plan_.stages.empty() ? kInfinity : plan_.period_s, budget_);
    if (result.plan.has_value()) Take(family, *result.plan);
    plan_.in_time = plan_.in_time && result.in_time;
    if (is_whole) plan_.lower_bound_s = std::max(plan_.lower_bound_s, result.lower_bound_s);
  }

  absl::Status PlanLevels() {
    absl::StatusOr<CutFamily> family =
        request_.cuts == CutRule::kAntichains
            ? AntichainStates(sorted_)
            : EnumerateIdeals(sorted_, {.ideals_max = kLevelCutsMax});
    bool is_whole = true;
    if (absl::IsResourceExhausted(family.status()) && request_.cuts == CutRule::kIdeals) {
      is_whole = false;
      const int64_t per_size = std::max<int64_t>(1, kLevelCutsMax / (sorted_.size() + 1));
      family = EnumerateIdeals(sorted_, Beam(static_cast<int>(per_size)));
    }
    PENSTOCK_RETURN_IF_ERROR(family.status());
    plan_.cuts_examined = family->size();
    const HierarchySearchResult result = SearchHierarchy(*family, request_.levels, budget_);
    plan_.in_time = result.in_time;
    plan_.lower_bound_s = is_whole ? result.lower_bound_s : TotalWorkS() / workers_;
    if (!result.plan.has_value()) return absl::OkStatus();
    plan_.period_s = result.plan->period_s;
    plan_.stages =
        Describe(*family, static_cast<int>(request_.levels.size()) - 1, result.plan->stages);
    return absl::OkStatus();
  }

  void Take(const CutFamily& family, const CutPlan& found) {
    std::vector<HierarchyStage> stages;
    for (size_t stage = 0; stage < found.replicas.size(); ++stage) {
      stages.push_back({found.cuts[stage], found.cuts[stage + 1], found.replicas[stage], {}});
    }
    plan_.period_s = found.period_s;
    plan_.stages = Describe(family, 0, stages);
    plan_cuts_.Clear();
    for (const int cut : found.cuts) plan_cuts_.Add(family.set(cut));
  }

  std::vector<PlannedStage> Describe(const CutFamily& family, int level,
                                     const std::vector<HierarchyStage>& found) const {
    const StageCostModel& model = request_.levels[level].model;
    const int last = family.size() - 1;
    std::vector<PlannedStage> stages;
    for (size_t index = 0; index < found.size(); ++index) {
      const HierarchyStage& from = found[index];
      PlannedStage stage{.nodes = family.NodesBetween(from.from_cut, from.to_cut),
                         .replicas = from.replicas,
                         .work_s = family.StageWorkS(from.from_cut, from.to_cut),
                         .parameter_bytes = family.StageParameterBytes(from.from_cut, from.to_cut)};
      if (from.from_cut != 0) stage.input_bytes = family.live_bytes(from.from_cut);
      if (from.to_cut != last) stage.output_bytes = family.live_bytes(from.to_cut);
      double one_replica_s = stage.work_s;
      int inner_workers = 1;
      if (level > 0) {
        stage.inner = Describe(family, level - 1, from.inner);
        one_replica_s = 0;
        inner_workers = 0;
        for (const PlannedStage& inner : stage.inner) {
          one_replica_s = std::max(one_replica_s, inner.period_s());
          inner_workers += inner.workers;
        }
      }
      stage.workers = stage.replicas * inner_workers;
      const bool divides = index == 0 && level > 0 && model.sync == SyncRule::kSum4;
      const double averaged =
          stage.parameter_bytes / (divides ? request_.levels[level - 1].workers : 1);
      stage.compute_s = one_replica_s / stage.replicas;
      stage.sync_s = model.SyncS(averaged, stage.replicas) / stage.replicas;
      stage.stage_s = model.StageS(one_replica_s, averaged, stage.replicas);
      ChargeLinks(model, found, index, last, stage);
      stages.push_back(std::move(stage));
    }
    return stages;
  }

  // Charges the cuts between the stages of one level. Under kOwnReplicas, every stage but the first also sends over the
  // end of the level's range.
  static void ChargeLinks(const StageCostModel& model, const std::vector<HierarchyStage>& found,
                          size_t index, int last_cut, PlannedStage& stage) {
    const auto sharing = [&](size_t other) {
      return model.link == LinkRule::kSmallerSide ? std::min(stage.replicas, found[other].replicas)
                                                  : stage.replicas;
    };
    if (index > 0) stage.input_s = model.LinkS(stage.input_bytes, sharing(index - 1));
    if (model.link == LinkRule::kOwnReplicas) {
      const bool sends = index > 0 && found[index].to_cut != last_cut;
      if (sends) stage.output_s = model.LinkS(stage.output_bytes, stage.replicas);
    } else if (index + 1 < found.size()) {
      stage.output_s = model.LinkS(stage.output_bytes, sharing(index + 1));
    }
  }

  static double Sum(const std::vector<double>& amounts) {
    return std::accumulate(amounts.begin(), amounts.end(), 0.0);
  }
  double TotalWorkS() const { return Sum(sorted_.work_s); }

  // Fills in what a plan says apart from its stages.
  void Finish() {
    plan_.model = model().name;
    plan_.in_time = plan_.in_time && !budget_.IsSpent(0);
    for (size_t index = 0; index < plan_.stages.size(); ++index) {
      const PlannedStage& stage = plan_.stages[index];
      plan_.workers_used += stage.workers;
      if (stage.period_s() > plan_.stages[plan_.binding_stage].period_s()) {
        plan_.binding_stage = static_cast<int>(index);
      }
    }
    const PlannedStage& stage = plan_.stages[plan_.binding_stage];
    if (stage.stage_s < std::max(stage.input_s, stage.output_s)) {
      plan_.binding = Binding::kLink;
    } else {
      plan_.binding = stage.compute_s >= stage.sync_s ? Binding::kCompute : Binding::kSync;
    }
    plan_.lower_bound_s = std::min(plan_.lower_bound_s, plan_.period_s);
    plan_.is_optimal = plan_.period_s <= plan_.lower_bound_s * (1 + kOptimalGap);
    plan_.one_worker_s = TotalWorkS();
    plan_.data_parallel_s = DataParallelS(sorted_, request_.levels);
  }

  const StagePlanRequest& request_;
  const SortedGraph sorted_;
  TimeBudget& budget_;
  int workers_ = 1;
  StagePlan plan_;
  NodeSets plan_cuts_;  // of a flat plan, in order
};

}  // namespace

StagePlanRequest FlatRequest(int workers, const StageCostModel& model) {
  return {.levels = {{workers, model}}};
}

absl::StatusOr<StagePlan> PlanStages(const LayerGraph& graph, const StagePlanRequest& request,
                                     TimeBudget& budget) {
  PENSTOCK_RETURN_IF_ERROR(CheckLayerGraph(graph));
  if (graph.nodes.size() > kPlanLayersMax) {
    return absl::InvalidArgumentError(absl::StrCat("at most ", kPlanLayersMax,
                                                   " layers are planned, the graph has ",
                                                   graph.nodes.size(), "; profile coarser layers"));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckLevels(request.levels));
  return Planner(graph, request, budget).Plan();
}

}  // namespace penstock
