#include "planner/graph/hierarchy_search.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include "base/check.h"
#include "planner/graph/limits.h"

namespace penstock {
namespace {

// Returns the time that rounding is relative to: the largest of the times that are added up.
double LongestTerm(const CutFamily& family, const std::vector<HierarchyLevel>& levels) {
  const int last = family.size() - 1;
  double longest_s = family.work_s(last);
  for (const HierarchyLevel& level : levels) {
    longest_s += level.model.SyncS(family.parameter_bytes(last), level.workers);
  }
  return longest_s;
}

class Searcher {
 public:
  // Looks for a period of at most `limit_s`.
  Searcher(const CutFamily& family, const std::vector<HierarchyLevel>& levels, double limit_s,
           TimeBudget& budget)
      : family_(family),
        levels_(levels),
        limit_s_(limit_s),
        last_(family.size() - 1),
        slack_s_(kMargin * LongestTerm(family, levels)),
        budget_(budget),
        spare_(family.size(), levels.back().workers),
        rows_(levels.size()) {
    int components = 1;
    for (size_t level = 0; level < levels.size(); ++level) {
      rows_[level].resize(family.size());
      below_.push_back(components);
      components *= levels[level].workers;
    }
  }

  double Solve() {
    const int top = static_cast<int>(levels_.size()) - 1;
    return PeriodOf(top, 0, last_);
  }
  bool in_time() const { return in_time_; }

  // REQUIRES: Solve() found one.
  HierarchyPlan Trace() {
    const int top = static_cast<int>(levels_.size()) - 1;
    return {Trace(top, 0, last_), PeriodOf(top, 0, last_)};
  }

 private:
  // Holds the values of one level and one first cut i, by number of components m and cut j.
  struct Table {
    int from = 0;
    int cuts = 0;
    std::vector<double> values;

    double& at(int components, int cut) {
      return values[static_cast<size_t>(components - 1) * cuts + (cut - from)];
    }
  };

  // Names a cut with a finite value in a table, and the least number of components that has one.
  struct Reached {
    int cut;
    int least;
  };

  // Returns the period of the layers between two cuts on all components of a level, or on one worker below the lowest.
  // It is infinite if it is too long to matter.
  double PeriodOf(int level, int from, int to) {
    if (level < 0) return family_.StageWorkS(from, to);
    std::unique_ptr<std::vector<double>>& row = rows_[level][from];
    if (row == nullptr) {
      Table table = Fill(level, from);
      const double* all = &table.at(levels_[level].workers, from);
      row = std::make_unique<std::vector<double>>(all, all + table.cuts);
    }
    return (*row)[to - from];
  }

  double Parameters(int from, int to) const { return family_.StageParameterBytes(from, to); }

  // Returns the bytes that a stage of a level averages; the released optimizer divides those of the first one.
  double Averaged(int level, double parameter_bytes, bool is_first) const {
    const bool divides = is_first && level > 0 && levels_[level].model.sync == SyncRule::kSum4;
    return divides ? parameter_bytes / levels_[level - 1].workers : parameter_bytes;
  }

  // Returns how long `level` may take over layers from a cut on with `parameter_bytes`, in a plan within the limit: as
  // a stage of the level above with the best number of replicas. Adding a layer never raises it.
  double LongestUseful(int level, int from, double parameter_bytes) const {
    const int above = level + 1;
    const int top = static_cast<int>(levels_.size()) - 1;
    if (level == top) return limit_s_;
    const double limit_s = LongestUseful(above, /*from=*/0, parameter_bytes);
    const StageCostModel& model = levels_[above].model;
    // A row just below the top belongs to one place in the plan. One further below serves rows from
    // many cuts; the first layers' limit is the longest of theirs.
    const bool is_first = above < top || from == 0;
    const int spare = above < top ? levels_[above].workers : spare_[from];
    const double averaged = Averaged(above, parameter_bytes, is_first);
    double longest_s = limit_s;
    for (int replicas = 2; replicas <= (model.replicates ? spare : 1); ++replicas) {
      const double sync_s = model.SyncS(averaged, replicas);
      if (model.sync == SyncRule::kSum4) {
        longest_s = std::max(longest_s, replicas * limit_s - sync_s);
      } else if (sync_s <= replicas * limit_s) {
        longest_s = std::max(longest_s, replicas * limit_s);
      }
    }
    return longest_s + slack_s_;
  }

  // Returns the slowest of a stage's computing, averaging and links, for the last of several stages.
  double StageS(int level, int from, int to, double work_s, int replicas) const {
    const StageCostModel& model = levels_[level].model;
    double stage_s = model.StageS(work_s, Parameters(from, to), replicas);
    stage_s = std::max(stage_s, model.LinkS(family_.live_bytes(from), replicas));
    if (model.link == LinkRule::kOwnReplicas && to != last_) {
      stage_s = std::max(stage_s, model.LinkS(family_.live_bytes(to), replicas));
    }
    return stage_s;
  }

  Table Fill(int level, int from) {
    const int workers = levels_[level].workers;
    Table table{from, family_.size() - from};
    table.values.assign(static_cast<size_t>(workers) * table.cuts, kInfinity);
    std::vector<Reached> reached;  // ascending
    for (int to = from + 1; to <= last_; ++to) {
      if (!in_time_ || !family_.Inside(from, to)) continue;
      const double useful_s = LongestUseful(level, from, Parameters(from, to));
      const double work_s = family_.StageWorkS(from, to);
      if (work_s > useful_s * workers * below_[level] + slack_s_) continue;
      FillSingle(level, from, to, useful_s, table);
      FillSplits(level, to, useful_s, reached, table);
      for (int components = 1; components <= workers; ++components) {
        if (table.at(components, to) == kInfinity) continue;
        reached.push_back({to, components});
        if (level + 1 == static_cast<int>(levels_.size())) spare_[to] = workers - components;
        break;
      }
    }
    return table;
  }

  // Fills in the whole range as one stage of the level, the first one of any plan for more.
  void FillSingle(int level, int from, int to, double useful_s, Table& table) {
    const HierarchyLevel& here = levels_[level];
    const double inner_s = PeriodOf(level - 1, from, to);
    if (inner_s == kInfinity) return;
    const double averaged = Averaged(level, Parameters(from, to), /*is_first=*/true);
    for (int replicas = 1; replicas <= (here.model.replicates ? here.workers : 1); ++replicas) {
      const double stage_s = here.model.StageS(inner_s, averaged, replicas);
      if (stage_s <= useful_s) table.at(replicas, to) = stage_s;
    }
  }

  // Fills in plans whose last stage lies behind one of the cuts reached before.
  void FillSplits(int level, int to, double useful_s, const std::vector<Reached>& reached,
                  Table& table) {
    const HierarchyLevel& here = levels_[level];
    const int replicas_max = here.model.replicates ? here.workers - 1 : 1;
    const double component_s = useful_s * below_[level];  // work that one can do in time
    const double reach_s = component_s * replicas_max + slack_s_;
    if (here.workers < 2) return;
    if (to != last_ && OutputS(here.model, to, replicas_max) > useful_s) return;
    int64_t steps = 0;
    for (size_t at = reached.size(); at-- > 0;) {
      const auto [cut, least] = reached[at];
      const double work_s = family_.StageWorkS(cut, to);
      if (work_s > reach_s) break;
      ++steps;
      const int most = std::min(replicas_max, here.workers - least);
      if (work_s > component_s * most + slack_s_ || !family_.Inside(cut, to)) continue;
      double inner_s = kInfinity;  // of one replica, computed when the first number of them may do
      for (int replicas = 1; replicas <= most; ++replicas) {
        if (work_s > component_s * replicas + slack_s_) continue;
        if (here.model.LinkS(family_.live_bytes(cut), replicas) > useful_s) continue;
        if (inner_s == kInfinity) inner_s = PeriodOf(level - 1, cut, to);
        if (inner_s == kInfinity) break;
        const double stage_s = StageS(level, cut, to, inner_s, replicas);
        if (stage_s > useful_s) continue;
        for (int components = replicas + least; components <= here.workers; ++components) {
          double& best = table.at(components, to);
          best = std::min(best, std::max(table.at(components - replicas, cut), stage_s));
        }
      }
    }
    in_time_ = in_time_ && !budget_.IsSpent(steps * here.workers);
  }

  double OutputS(const StageCostModel& model, int cut, int replicas) const {
    return model.link == LinkRule::kOwnReplicas ? model.LinkS(family_.live_bytes(cut), replicas)
                                                : 0;
  }

  // Returns the stages behind a value of the table, found by looking for what gives it.
  std::vector<HierarchyStage> Trace(int level, int from, int to) {
    std::vector<HierarchyStage> stages;
    if (level < 0) return stages;
    Table table = Fill(level, from);
    int components = levels_[level].workers;
    while (to != from) {
      HierarchyStage stage = LastStage(level, from, to, components, table);
      stage.inner = Trace(level - 1, stage.from_cut, stage.to_cut);
      to = stage.from_cut;
      components -= stage.replicas;
      stages.push_back(std::move(stage));
    }
    std::reverse(stages.begin(), stages.end());
    return stages;
  }

  HierarchyStage LastStage(int level, int from, int to, int components, Table& table) {
    const double value = table.at(components, to);
    const HierarchyLevel& here = levels_[level];
    const double averaged = Averaged(level, Parameters(from, to), /*is_first=*/true);
    const double alone_s = PeriodOf(level - 1, from, to);
    if ((components == 1 || here.model.replicates) &&
        here.model.StageS(alone_s, averaged, components) <= value) {
      return {from, to, components, {}};
    }
    const int replicas_max = here.model.replicates ? components - 1 : 1;
    for (int cut = to - 1; cut > from; --cut) {
      if (!family_.Inside(from, cut) || !family_.Inside(cut, to)) continue;
      for (int replicas = 1; replicas <= replicas_max; ++replicas) {
        const double before_s = table.at(components - replicas, cut);
        if (before_s > value) continue;
        const double inner_s = PeriodOf(level - 1, cut, to);
        if (std::max(before_s, StageS(level, cut, to, inner_s, replicas)) <= value) {
          return {cut, to, replicas, {}};
        }
      }
    }
    PENSTOCK_CHECK(false);
    return {};
  }

  const CutFamily& family_;
  const std::vector<HierarchyLevel>& levels_;
  const double limit_s_;
  const int last_;
  const double slack_s_;  // for rounding, in comparisons that only refuse
  TimeBudget& budget_;
  bool in_time_ = true;
  std::vector<int> below_;  // by level: workers in one component
  std::vector<int> spare_;  // by cut: components of the top level left behind it, at most
  std::vector<std::vector<std::unique_ptr<std::vector<double>>>> rows_;  // by level and first cut
};

// Returns a few cuts that are small for their place: the ones with the fewest live bytes in each of many slices of
// work.
CutFamily SmallCuts(const CutFamily& family, int slices) {
  constexpr int kOfEach = 3;
  const int last = family.size() - 1;
  std::vector<int> cuts = {0};
  int cut = 1;
  for (int slice = 1; slice <= slices; ++slice) {
    std::vector<int> inside;
    const double end_s = family.work_s(last) * slice / slices;
    for (; cut < last && (family.work_s(cut) <= end_s || slice == slices); ++cut) {
      inside.push_back(cut);
    }
    std::stable_sort(inside.begin(), inside.end(),
                     [&](int a, int b) { return family.live_bytes(a) < family.live_bytes(b); });
    if (inside.size() > kOfEach) inside.resize(kOfEach);
    std::sort(inside.begin(), inside.end());
    cuts.insert(cuts.end(), inside.begin(), inside.end());
  }
  cuts.push_back(last);
  return family.Subfamily(cuts);
}

// Returns a period that some plan reaches, from growing subfamilies, each searched below the last one's period.
double ReachedPeriod(const CutFamily& family, const std::vector<HierarchyLevel>& levels,
                     TimeBudget& budget) {
  double period_s = kInfinity;
  for (const int slices : {30, 100}) {
    const CutFamily small = SmallCuts(family, slices);
    Searcher searcher(small, levels, period_s * (1 + kMargin), budget);
    period_s = std::min(period_s, searcher.Solve());
  }
  return period_s;
}

}  // namespace

HierarchySearchResult SearchHierarchy(const CutFamily& family,
                                      const std::vector<HierarchyLevel>& levels,
                                      TimeBudget& budget) {
  int workers = 1;
  for (const HierarchyLevel& level : levels) workers *= level.workers;
  HierarchySearchResult result{.lower_bound_s = family.work_s(family.size() - 1) / workers};

  const double limit_s = ReachedPeriod(family, levels, budget) * (1 + kMargin);
  Searcher searcher(family, levels, limit_s, budget);
  const double period_s = searcher.Solve();
  result.in_time = searcher.in_time();
  if (!result.in_time || period_s == kInfinity) return result;
  result.plan = searcher.Trace();
  result.lower_bound_s = period_s;
  return result;
}

double DataParallelS(const SortedGraph& graph, const std::vector<HierarchyLevel>& levels) {
  double period_s = std::accumulate(graph.work_s.begin(), graph.work_s.end(), 0.0);
  const double parameter_bytes =
      std::accumulate(graph.parameter_bytes.begin(), graph.parameter_bytes.end(), 0.0);
  int below = 1;
  for (const HierarchyLevel& level : levels) {
    const bool divides = level.model.sync == SyncRule::kSum4;
    period_s = level.model.StageS(period_s, parameter_bytes / (divides ? below : 1), level.workers);
    below = level.workers;
  }
  return period_s;
}

}  // namespace penstock
