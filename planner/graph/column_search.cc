#include "planner/graph/column_search.h"

#include <algorithm>
#include <cmath>

#include "planner/graph/limits.h"

namespace penstock {
namespace {

constexpr double kColumnTolerance = 1e-3;
constexpr int kNarrowColumns = 16;  // up to here columns of every width are tried
constexpr double kColumnWidthRatio = 1.15;

class ColumnSearch {
 public:
  ColumnSearch(const PlacementCosts& costs, const std::vector<int>& chain)
      : family_(costs.family()),
        chain_(chain),
        hosts_(WorkersByHost(costs.cluster())),
        host_workers_(static_cast<int>(hosts_.front().size())) {
    const Cluster& cluster = costs.cluster();
    const double ways = cluster.full_duplex ? 1 : 2;
    for (const PlanHost& host : cluster.hosts) {
      nic_ = std::min(nic_, host.nic_bytes_per_second / ways);
      inside_ = std::min(inside_, host.inside_bytes_per_second / ways);
    }
    for (const PlanWorker& worker : cluster.workers) speed_ = std::min(speed_, worker.speed);
    const int count = static_cast<int>(hosts_.size());
    for (int width = 1; width < count;) {
      widths_.push_back(width);
      width = width < kNarrowColumns ? width + 1
                                     : static_cast<int>(std::ceil(width * kColumnWidthRatio));
    }
    widths_.push_back(count);
  }

  double LeastPeriod() const {
    return family_.work_s(family_.size() - 1) / (speed_ * host_workers_ * hosts_.size());
  }

  // Returns a placement that takes at most `period_s`, but for what worker's links carry; nullopt if there is none.
  std::optional<ClusterPlacement> Run(double period_s, TimeBudget& budget) const {
    const int last = static_cast<int>(chain_.size()) - 1;
    const int count = static_cast<int>(hosts_.size());
    std::vector<Reached> reached(chain_.size(), {.hosts = count + 1});
    reached[0].hosts = 0;
    for (int from = 0; from < last; ++from) {
      for (const int width : widths_) {
        const int hosts = reached[from].hosts + width;
        if (hosts > count) break;
        const int furthest = Furthest(from, width, period_s).back();
        for (int to = from + 1; to <= furthest; ++to) {
          if (reached[to].hosts <= hosts || !NicsCarry(from, to, width, period_s)) continue;
          reached[to] = {.hosts = hosts, .from = from, .width = width};
        }
        if (budget.IsSpent(furthest - from + 10 * host_workers_ * host_workers_)) {
          return std::nullopt;
        }
      }
    }
    if (reached[last].hosts > count) return std::nullopt;
    return Trace(reached, period_s);
  }

 private:
  // The fewest hosts that hold all layers before a cut, and the last column of theirs.
  struct Reached {
    int hosts = 0;
    int from = 0;
    int width = 0;
  };

  double EdgeBytes(int at) const {
    const bool is_end = at == 0 || at + 1 == static_cast<int>(chain_.size());
    return is_end ? 0.0 : family_.live_bytes(chain_[at]);
  }

  // Returns the bytes that the NIC of each of `width` hosts carries for the gradients of what is between two cuts.
  double SyncBytes(int from, int to, double width) const {
    return 2 * family_.StageParameterBytes(chain_[from], chain_[to]) * (width - 1) /
           (width * width);
  }

  bool NicsCarry(int from, int to, int width, double period_s) const {
    const double bytes = (EdgeBytes(from) + EdgeBytes(to)) / width + SyncBytes(from, to, width);
    return bytes <= period_s * nic_;
  }

  // Returns whether a stage with `workers` on each of `width` hosts is in time.
  bool IsInTime(int from, int to, int workers, int width, double period_s) const {
    const double replicas = static_cast<double>(workers) * width;
    const double link_bytes = 2 * family_.StageParameterBytes(chain_[from], chain_[to]) *
                              (workers - 1) / (replicas * replicas);
    const double sync_s = std::max(SyncBytes(from, to, width) / nic_, link_bytes / inside_);
    return family_.StageWorkS(chain_[from], chain_[to]) / (speed_ * replicas) + sync_s <= period_s;
  }

  // Returns the furthest end of a stage; `from` if not even the first layers are in time.
  int FurthestStage(int from, int workers, int width, double period_s) const {
    int low = from;
    int high = static_cast<int>(chain_.size()) - 1;
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (IsInTime(from, middle, workers, width, period_s)) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }

  // Returns by number of workers of each host how far its stages reach. A stage that begins later ends no earlier, so
  // the furthest is the best to go on from.
  std::vector<int> Furthest(int from, int width, double period_s) const {
    std::vector<int> furthest(host_workers_ + 1, from);
    for (int used = 1; used <= host_workers_; ++used) {
      for (int workers = 1; workers <= used; ++workers) {
        furthest[used] = std::max(
            furthest[used], FurthestStage(furthest[used - workers], workers, width, period_s));
      }
    }
    return furthest;
  }

  // Appends the stages of a column, on hosts from `first_host` on.
  void AppendStages(int from, int to, int first_host, int width, double period_s,
                    ClusterPlacement& placement) const {
    const std::vector<int> furthest = Furthest(from, width, period_s);
    struct Inner {
      int from = 0;
      int to = 0;
      int first_worker = 0;
      int workers = 0;
    };
    std::vector<Inner> stages;
    int used = 0;
    while (furthest[used] < to) ++used;
    int end = to;
    while (end > from) {
      while (furthest[used - 1] >= end) --used;  // these are as good, and leave no stage empty
      // Some number of workers was enough to get here; a shorter stage is in time as well.
      int workers = 1;
      while (FurthestStage(furthest[used - workers], workers, width, period_s) < end) ++workers;
      used -= workers;
      stages.push_back({furthest[used], end, used, workers});
      end = furthest[used];
    }
    for (size_t at = stages.size(); at-- > 0;) {
      PlacedStage stage{chain_[stages[at].from], chain_[stages[at].to]};
      for (int worker = 0; worker < stages[at].workers; ++worker) {
        for (int host = 0; host < width; ++host) {
          stage.workers.push_back(hosts_[first_host + host][stages[at].first_worker + worker]);
        }
      }
      placement.push_back(std::move(stage));
    }
  }

  ClusterPlacement Trace(const std::vector<Reached>& reached, double period_s) const {
    std::vector<int> ends;
    for (int to = static_cast<int>(chain_.size()) - 1; to > 0; to = reached[to].from) {
      ends.push_back(to);
    }
    ClusterPlacement placement;
    int host = 0;
    for (size_t at = ends.size(); at-- > 0;) {
      const Reached& column = reached[ends[at]];
      AppendStages(column.from, ends[at], host, column.width, period_s, placement);
      host += column.width;
    }
    return placement;
  }

  const CutFamily& family_;
  const std::vector<int>& chain_;
  const std::vector<std::vector<int>> hosts_;
  const int host_workers_;
  double nic_ = kInfinity;
  double inside_ = kInfinity;
  double speed_ = kInfinity;
  std::vector<int> widths_;
};

}  // namespace

std::optional<ClusterPlacement> SearchColumns(const PlacementCosts& costs,
                                              const std::vector<int>& chain, double must_beat_s,
                                              TimeBudget& budget) {
  const ColumnSearch search(costs, chain);
  double low_s = search.LeastPeriod() * (1 - kMargin);
  double high_s = must_beat_s;
  std::optional<ClusterPlacement> best;
  double best_s = must_beat_s;
  while (high_s - low_s > kColumnTolerance * high_s && !budget.IsSpent(0)) {
    const double middle_s = (low_s + high_s) / 2;
    std::optional<ClusterPlacement> found = search.Run(middle_s, budget);
    if (!found.has_value()) {
      low_s = middle_s;
      continue;
    }
    high_s = middle_s;
    const double period_s = costs.Charge(*found).period_s;
    if (period_s >= best_s) continue;
    best_s = period_s;
    best = std::move(found);
  }
  return best;
}

}  // namespace penstock
