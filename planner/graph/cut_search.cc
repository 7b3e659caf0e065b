#include "planner/graph/cut_search.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"
#include "planner/graph/limits.h"

namespace penstock {
namespace {

// Holds the numbers of replicas that keep a stage within a period: 1 if `one`, and `low` to `high`.
struct ReplicaRange {
  bool one = false;
  int low = 2;
  int high = 1;

  bool empty() const { return !one && low > high; }
};

// Records by cut with how many workers the layers inside can be done within a period.
class WorkerCounts {
 public:
  WorkerCounts(int cuts, int workers, bool exact)
      : workers_(workers),
        exact_(exact),
        words_(workers / 64 + 1),
        bits_(static_cast<size_t>(cuts) * words_),
        least_(cuts, workers + 1) {}

  bool Has(int cut, int count) const {
    return count >= 0 && ((Row(cut)[count / 64] >> (count % 64)) & 1) != 0;
  }
  int least(int cut) const { return least_[cut]; }
  void Start(int cut) { Insert(cut, 0, exact_ ? 0 : workers_); }

  // Returns the largest number up to `most` that does not reach `cut` yet, or -1 if all do.
  int LargestMissing(int cut, int most) const {
    while (most >= 0 && Has(cut, most)) --most;
    return most;
  }

  // Adds to the counts of `to` those of `from` plus the replicas of one stage.
  void Extend(int from, ReplicaRange range, int to) {
    if (!exact_) {
      const int added = range.one ? 1 : range.low;
      Insert(to, least_[from] + added, workers_);
      return;
    }
    for (int count = least_[from]; count <= workers_; ++count) {
      if (!Has(from, count)) continue;
      if (range.one) Insert(to, count + 1, count + 1);
      Insert(to, count + range.low, std::min(count + range.high, workers_));
      if (count + range.high >= workers_) {
        // Larger counts add only their own one replica.
        if (!range.one) return;
        range.high = range.low - 1;
      }
    }
  }

 private:
  const uint64_t* Row(int cut) const { return bits_.data() + static_cast<size_t>(cut) * words_; }

  void Insert(int cut, int low, int high) {
    high = std::min(high, workers_);
    if (low > high) return;
    uint64_t* row = bits_.data() + static_cast<size_t>(cut) * words_;
    for (int word = low / 64; word <= high / 64; ++word) {
      const int first = std::max(low - word * 64, 0);
      const int last = std::min(high - word * 64, 63);
      row[word] |= (~uint64_t{0} >> (63 - last)) & (~uint64_t{0} << first);
    }
    least_[cut] = std::min(least_[cut], low);
  }

  const int workers_;
  const bool exact_;  // else, what some number of workers can do, more can
  const int words_;
  std::vector<uint64_t> bits_;
  std::vector<int> least_;  // workers + 1: none
};

// Finds in one sweep whether some plan has a period of at most `period_s`, and which.
class Sweep {
 public:
  Sweep(const CutFamily& family, const StageCostModel& model, int workers, double period_s)
      : family_(family),
        model_(model),
        workers_(workers),
        period_s_(period_s),
        last_(family.size() - 1),
        slack_s_(kMargin * (family.work_s(last_) + workers * period_s)),
        counts_(family.size(), workers, model.uses_all_workers) {}

  enum class Outcome { kFound, kNone, kOutOfTime };

  Outcome Run(TimeBudget& budget) {
    beside_.resize(family_.size());
    for (int cut = 0; cut <= last_; ++cut) beside_[cut] = ReplicasBeside(cut);
    counts_.Start(0);
    Keep(0);
    for (int cut = 1; cut <= last_; ++cut) {
      if (beside_[cut] >= workers_ && cut != last_) continue;
      Reach(cut);
      if (counts_.least(cut) <= workers_ && cut != last_) Keep(cut);
      if (budget.IsSpent(static_cast<int64_t>(keys_.size()))) return Outcome::kOutOfTime;
    }
    return counts_.Has(last_, workers_) ? Outcome::kFound : Outcome::kNone;
  }

  // REQUIRES: Run() was not out of time.
  std::vector<int> LeastWorkers() const {
    std::vector<int> least(family_.size());
    for (int cut = 0; cut <= last_; ++cut) least[cut] = counts_.least(cut);
    return least;
  }

  // REQUIRES: Run() found one.
  CutPlan Trace() const {
    CutPlan plan;
    int cut = last_;
    int count = model_.uses_all_workers ? workers_ : counts_.least(last_);
    plan.cuts.push_back(cut);
    while (cut != 0) {
      const auto [from, replicas] = StageInto(cut, count);
      plan.cuts.push_back(from);
      plan.replicas.push_back(replicas);
      cut = from;
      count = model_.uses_all_workers ? count - replicas : counts_.least(from);
    }
    std::reverse(plan.cuts.begin(), plan.cuts.end());
    std::reverse(plan.replicas.begin(), plan.replicas.end());
    plan.period_s = PeriodOf(family_, model_, plan);
    return plan;
  }

 private:
  // Returns the replicas that a stage must have at `cut` to keep its link within the period.
  int ReplicasBeside(int cut) const {
    const double bytes = family_.live_bytes(cut);
    if (cut == 0 || cut == last_ || model_.LinkS(bytes, 1) <= period_s_) return 1;
    if (model_.link == LinkRule::kWhole || model_.LinkS(bytes, workers_) > period_s_) {
      return workers_ + 1;
    }
    int replicas = std::max(1, static_cast<int>(model_.LinkS(bytes, 1) / period_s_));
    while (model_.LinkS(bytes, replicas) > period_s_) ++replicas;
    while (replicas > 1 && model_.LinkS(bytes, replicas - 1) <= period_s_) --replicas;
    return replicas;
  }

  // Returns the least number of workers for the layers behind `cut`.
  int WorkersBehind(int cut) const {
    if (cut == last_) return 0;
    const double work_s = family_.StageWorkS(cut, last_) - slack_s_;
    return std::max(1, static_cast<int>(std::min(std::ceil(work_s / period_s_), workers_ + 1.0)));
  }

  int LeastReplicas(int from, int to) const {
    const bool sends_free = model_.link == LinkRule::kOwnReplicas && from == 0;
    return std::max(beside_[from], sends_free ? 1 : beside_[to]);
  }

  // Returns the replicas that the stage between two cuts may have, up to `most`. Under the summed and the sharded rules
  // more than two replicas are never slower; an all-reduce's time grows with them.
  ReplicaRange RangeOf(int from, int to, int most) const {
    const double work_s = family_.StageWorkS(from, to);
    const double parameter_bytes = family_.StageParameterBytes(from, to);
    const int least = LeastReplicas(from, to);
    ReplicaRange range;
    range.one = least <= 1 && model_.StageS(work_s, parameter_bytes, 1) <= period_s_;
    if (!model_.replicates) return range;
    const auto fits = [&](int replicas) {
      return model_.StageS(work_s, parameter_bytes, replicas) <= period_s_;
    };
    int low = std::max({2, least, LeastByWork(work_s)});
    if (model_.sync == SyncRule::kMax2) {
      while (low <= most && work_s / low > period_s_) ++low;
      int high = low - 1;
      while (high < most && fits(high + 1)) ++high;
      range.low = low;
      range.high = high;
      return range;
    }
    if (low > most || !fits(most)) return range;
    int fitting = most;
    while (low < fitting) {
      const int middle = low + (fitting - low) / 2;
      if (fits(middle)) {
        fitting = middle;
      } else {
        low = middle + 1;
      }
    }
    range.low = fitting;
    range.high = workers_;
    return range;
  }

  int LeastByWork(double work_s) const {
    return static_cast<int>(std::min(std::ceil((work_s - slack_s_) / period_s_), workers_ + 1.0));
  }

  void Keep(int cut) {
    kept_.push_back(cut);
    keys_.push_back(family_.most_work_s(cut) - period_s_ * counts_.least(cut));
  }

  // Finds what reaches `cut`, nearest cuts first.
  void Reach(int cut) {
    const int most = workers_ - WorkersBehind(cut);
    const double window_s =
        model_.replicates ? kInfinity : period_s_ + slack_s_;  // of one stage's work
    int missing = counts_.LargestMissing(cut, most);
    for (size_t at = kept_.size(); at-- > 0 && missing > 0;) {
      // A stage from here takes more workers than the largest number still missing.
      if (keys_[at] + slack_s_ < family_.work_s(cut) - period_s_ * missing) continue;
      const int from = kept_[at];
      if (family_.StageWorkS(from, cut) > window_s) break;
      const int room = missing - counts_.least(from);
      if (LeastReplicas(from, cut) > room || !family_.Inside(from, cut)) continue;
      const ReplicaRange range = RangeOf(from, cut, room);
      if (range.empty()) continue;
      counts_.Extend(from, range, cut);
      missing = counts_.LargestMissing(cut, missing);
    }
  }

  struct Step {
    int from;
    int replicas;
  };
  // Returns a stage that ends at `cut` and brings the number of workers up to `count`.
  Step StageInto(int cut, int count) const {
    for (size_t at = kept_.size(); at-- > 0;) {
      const int from = kept_[at];
      if (from >= cut || !family_.Inside(from, cut)) continue;
      const ReplicaRange range = RangeOf(from, cut, count);
      if (range.one && counts_.Has(from, count - 1)) return {from, 1};
      for (int replicas = range.low; replicas <= std::min(range.high, count); ++replicas) {
        if (counts_.Has(from, count - replicas)) return {from, replicas};
      }
    }
    PENSTOCK_CHECK(false);
    return {};
  }

  const CutFamily& family_;
  const StageCostModel& model_;
  const int workers_;
  const double period_s_;
  const int last_;
  const double slack_s_;  // for rounding, in comparisons that only refuse
  WorkerCounts counts_;
  std::vector<int> beside_;   // by cut
  std::vector<int> kept_;     // reached cuts, ascending
  std::vector<double> keys_;  // of them: work - period * least workers
};

// Returns a period that no pipeline of the family exceeds, however it is cut.
double LongestPeriod(const CutFamily& family, const StageCostModel& model, int workers) {
  const int last = family.size() - 1;
  double link_s = 0;
  for (int cut = 1; cut < last; ++cut) {
    link_s = std::max(link_s, model.LinkS(family.live_bytes(cut), 1));
  }
  const double sync_s = model.SyncS(family.parameter_bytes(last), workers);
  return family.work_s(last) + sync_s + link_s;
}

}  // namespace

double PeriodOf(const CutFamily& family, const StageCostModel& model, const CutPlan& plan) {
  double period_s = 0;
  const size_t stages = plan.replicas.size();
  for (size_t stage = 0; stage < stages; ++stage) {
    const int from = plan.cuts[stage];
    const int to = plan.cuts[stage + 1];
    period_s = std::max(
        period_s, model.StageS(family.StageWorkS(from, to), family.StageParameterBytes(from, to),
                               plan.replicas[stage]));
    if (stage + 1 == stages) break;
    const int here = plan.replicas[stage];
    const int next = plan.replicas[stage + 1];
    int sharing = std::min(here, next);
    if (model.link == LinkRule::kOwnReplicas && stage == 0) sharing = next;
    period_s = std::max(period_s, model.LinkS(family.live_bytes(to), sharing));
  }
  return period_s;
}

CutSearchResult SearchCuts(const CutFamily& family, const StageCostModel& model, int workers,
                           double must_beat_s, TimeBudget& budget, double tolerance) {
  const double work_s = family.work_s(family.size() - 1);
  CutSearchResult result{.lower_bound_s = work_s / workers * (1 - kMargin)};
  double best_s = std::min(must_beat_s, LongestPeriod(family, model, workers) * (1 + 2 * kMargin));
  bool bisects = false;  // the first sweep asks whether there is anything to gain
  while (result.lower_bound_s < best_s * (1 - std::max(kMargin, tolerance))) {
    const double middle_s = (result.lower_bound_s + best_s) / 2;
    const double period_s = bisects && best_s - result.lower_bound_s > 1e-4 * best_s
                                ? middle_s
                                : best_s * (1 - kMargin);
    Sweep sweep(family, model, workers, period_s);
    const Sweep::Outcome outcome = sweep.Run(budget);
    if (outcome == Sweep::Outcome::kOutOfTime) {
      result.in_time = false;
      return result;
    }
    if (outcome == Sweep::Outcome::kNone) {
      result.lower_bound_s = period_s;
      continue;
    }
    result.plan = sweep.Trace();
    best_s = std::min(period_s, result.plan->period_s);
    bisects = true;
  }
  return result;
}

std::optional<std::vector<int>> LeastWorkers(const CutFamily& family, const StageCostModel& model,
                                             int workers, double period_s, TimeBudget& budget) {
  StageCostModel at_most = model;
  at_most.uses_all_workers = false;
  Sweep sweep(family, at_most, workers, period_s);
  if (sweep.Run(budget) == Sweep::Outcome::kOutOfTime) return std::nullopt;
  return sweep.LeastWorkers();
}

}  // namespace penstock
