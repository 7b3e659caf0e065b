#include "planner/graph/placement_search.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "planner/graph/limits.h"
#include "planner/graph/prefix_bound.h"

namespace penstock {
namespace {

class ByPeriod : public PlacementJudge {
 public:
  double Score(const PlacementCosts& costs, const ClusterPlacement& placement) const override {
    return costs.Charge(placement).period_s;
  }
  double Bound(double period_s, double /*memory_bytes*/) const override { return period_s; }
};

class ByMemory : public PlacementJudge {
 public:
  double Score(const PlacementCosts& costs, const ClusterPlacement& placement) const override {
    const PlacementCharge charge = costs.Charge(placement);
    return charge.period_s < kInfinity ? charge.memory_bytes : kInfinity;
  }
  double Bound(double /*period_s*/, double memory_bytes) const override { return memory_bytes; }
};

// Says which workers and hosts may stand for each other.
class Alikes {
 public:
  explicit Alikes(const Cluster& cluster) : cluster_(cluster) {
    const std::vector<std::vector<int>> by_host = WorkersByHost(cluster);
    const int hosts = static_cast<int>(by_host.size());
    host_before_.assign(hosts, -1);
    for (int host = 1; host < hosts; ++host) {
      for (int other = host - 1; other >= 0 && host_before_[host] < 0; --other) {
        if (SameHosts(host, other, by_host)) host_before_[host] = other;
      }
    }
    class_of_.resize(cluster.workers.size());
    worker_before_.assign(cluster.workers.size(), -1);
    for (int worker = 0; worker < cluster.size(); ++worker) {
      class_of_[worker] = worker;
      for (int other = 0; other < worker; ++other) {
        const bool is_same_host = cluster.workers[other].host == cluster.workers[worker].host;
        if (!is_same_host || !SameWorkers(worker, other)) continue;
        class_of_[worker] = class_of_[other];
        worker_before_[worker] = other;
      }
    }
  }

  // Returns the one that is to be taken before this one, or -1 if there is none.
  int worker_before(int worker) const { return worker_before_[worker]; }
  int host_before(int host) const { return host_before_[host]; }
  int class_of(int worker) const { return class_of_[worker]; }

 private:
  bool SameWorkers(int a, int b) const {
    const PlanWorker& one = cluster_.workers[a];
    const PlanWorker& two = cluster_.workers[b];
    return one.speed == two.speed && one.memory_bytes == two.memory_bytes;
  }
  bool SameHosts(int a, int b, const std::vector<std::vector<int>>& by_host) const {
    const PlanHost& one = cluster_.hosts[a];
    const PlanHost& two = cluster_.hosts[b];
    // A path makes its hosts special.
    const bool has_path =
        std::any_of(cluster_.paths.begin(), cluster_.paths.end(), [&](const HostPath& path) {
          return path.from == a || path.to == a || path.from == b || path.to == b;
        });
    return !has_path && one.nic_bytes_per_second == two.nic_bytes_per_second &&
           one.inside_bytes_per_second == two.inside_bytes_per_second &&
           std::equal(by_host[a].begin(), by_host[a].end(), by_host[b].begin(), by_host[b].end(),
                      [&](int x, int y) { return SameWorkers(x, y); });
  }

  const Cluster& cluster_;
  std::vector<int> host_before_;
  std::vector<int> worker_before_;
  std::vector<int> class_of_;
};

class Search {
 public:
  Search(const PlacementCosts& costs, const PlacementJudge& judge, double must_beat,
         int64_t stages_max, TimeBudget& budget)
      : costs_(costs),
        judge_(judge),
        cluster_(costs.cluster()),
        budget_(budget),
        alikes_(cluster_),
        least_(costs.family(), cluster_),
        stages_left_(stages_max),
        is_used_(cluster_.workers.size()),
        used_on_(cluster_.hosts.size()),
        unused_(cluster_.size()) {
    for (const PlanWorker& worker : cluster_.workers) unused_speed_ += worker.speed;
    result_.score = must_beat;
  }

  PlacementSearchResult Run() {
    Extend({.to_cut = costs_.family().size() - 1, .loads = costs_.NoLoads()});
    return std::move(result_);
  }

 private:
  // Describes the stages put so far, all of them behind `to_cut`.
  struct Suffix {
    int to_cut = 0;
    PlacementCosts::Loads loads;
    double period_s = 0;
    double memory_bytes = 0;
  };

  bool IsOver() {
    if (stages_left_ <= 0 || budget_.IsSpent(1'000)) result_.is_complete = false;
    return !result_.is_complete;
  }
  bool CanBeat(double period_s, double memory_bytes) const {
    return judge_.Bound(period_s, memory_bytes) < result_.score * (1 - kMargin);
  }

  void Extend(const Suffix& suffix) {
    if (suffix.to_cut == 0) {
      ClusterPlacement placement(stages_.rbegin(), stages_.rend());
      const double score = judge_.Score(costs_, placement);
      if (score < result_.score * (1 - kMargin)) {
        result_.score = score;
        result_.placement = std::move(placement);
      }
      return;
    }
    for (int from = suffix.to_cut - 1; from >= 0; --from) {
      if (IsOver()) return;
      if (!costs_.family().Inside(from, suffix.to_cut)) continue;
      // Work only grows from here on.
      const double work_s = costs_.family().StageWorkS(from, suffix.to_cut);
      if (!CanBeat(std::max(work_s / unused_speed_, suffix.period_s), suffix.memory_bytes)) return;
      stages_.push_back({.from_cut = from, .to_cut = suffix.to_cut});
      AddReplica(suffix);
      stages_.pop_back();
    }
  }

  // Tries every way to give the stage at hand one more worker, and the stages before it the others.
  void AddReplica(const Suffix& suffix) {
    for (int worker = 0; worker < cluster_.size(); ++worker) {
      if (is_used_[worker] || !IsFirstOfAlikes(worker)) continue;
      if (IsOver()) return;
      Use(worker, true);
      stages_.back().workers.push_back(worker);
      TryStage(suffix);
      if (unused_ > 0) AddReplica(suffix);
      stages_.back().workers.pop_back();
      Use(worker, false);
    }
  }

  bool IsFirstOfAlikes(int worker) const {
    // For later replicas of the last stage, counting minibatches from another one changes nothing, so its first replica
    // may be of the first class of all of them.
    const std::vector<int>& workers = stages_.back().workers;
    if (stages_.size() == 1 && !workers.empty() &&
        alikes_.class_of(worker) < alikes_.class_of(workers.front())) {
      return false;
    }
    const int before = alikes_.worker_before(worker);
    if (before >= 0 && !is_used_[before]) return false;
    const int host = cluster_.workers[worker].host;
    const int host_before = alikes_.host_before(host);
    return used_on_[host] > 0 || host_before < 0 || used_on_[host_before] > 0;
  }

  void Use(int worker, bool is_used) {
    const int sign = is_used ? 1 : -1;
    is_used_[worker] = is_used;
    used_on_[cluster_.workers[worker].host] += sign;
    unused_ -= sign;
    // The sum is computed again, since a running difference would drift.
    unused_speed_ = 0;
    for (int other = 0; other < cluster_.size(); ++other) {
      if (!is_used_[other]) unused_speed_ += cluster_.workers[other].speed;
    }
  }

  void TryStage(const Suffix& suffix) {
    const PlacedStage& stage = stages_.back();
    if (stage.from_cut > 0 && unused_ == 0) return;
    --stages_left_;
    const double rest_s = least_.PeriodS(stage.from_cut, unused_, unused_speed_);
    if (!CanBeat(std::max(rest_s, suffix.period_s), suffix.memory_bytes)) return;
    const std::optional<StageCharge> charge = costs_.ChargeStage(stage, cluster_.size() - unused_);
    if (!charge.has_value()) return;
    Suffix longer = {
        .to_cut = stage.from_cut,
        .period_s = std::max({suffix.period_s, rest_s, charge->compute_s + charge->sync_s}),
        .memory_bytes = std::max(suffix.memory_bytes, charge->memory_bytes)};
    if (!CanBeat(longer.period_s, longer.memory_bytes)) return;
    longer.loads = suffix.loads;
    costs_.AddSync(stage, longer.loads);
    if (stages_.size() > 1) costs_.AddBoundary(stage, stages_[stages_.size() - 2], longer.loads);
    longer.period_s = std::max(longer.period_s, longer.loads.most_s);
    if (CanBeat(longer.period_s, longer.memory_bytes)) Extend(longer);
  }

  const PlacementCosts& costs_;
  const PlacementJudge& judge_;
  const Cluster& cluster_;
  TimeBudget& budget_;
  const Alikes alikes_;
  const PrefixBound least_;
  int64_t stages_left_;
  std::vector<bool> is_used_;
  std::vector<int> used_on_;  // by host
  int unused_;
  double unused_speed_ = 0;
  std::vector<PlacedStage> stages_;  // from the last one on
  PlacementSearchResult result_;
};

}  // namespace

const PlacementJudge& PeriodJudge() {
  static const ByPeriod judge;
  return judge;
}

const PlacementJudge& MemoryJudge() {
  static const ByMemory judge;
  return judge;
}

PlacementSearchResult SearchPlacements(const PlacementCosts& costs, const PlacementJudge& judge,
                                       double must_beat, int64_t stages_max, TimeBudget& budget) {
  return Search(costs, judge, must_beat, stages_max, budget).Run();
}

}  // namespace penstock
