#include "planner/graph/host_bound.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "planner/graph/limits.h"

namespace penstock {
namespace {

constexpr double kHostBoundTolerance = 1e-3;  // of the period known
constexpr double kHostBoundRounding = 1e-9;
constexpr int kShareRounds = 12;
constexpr double kSharesSettled =
    1e-3;  // when shares change by less than this part, they are left at that

// Decides for one period after the other whether the NICs can carry what it needs.
class NicLoad {
 public:
  NicLoad(const LayerGraph& graph, const CutFamily& family, const Cluster& cluster)
      : family_(family),
        last_(family.size() - 1),
        is_chain_(last_ == static_cast<int>(graph.nodes.size())) {
    for (int cut = 0; cut <= last_; ++cut) {
      end_bytes_.push_back(cut == 0 || cut == last_ ? 0 : family.live_bytes(cut));
      inside_bytes_.push_back(family.parameter_bytes(cut));
    }
    const double ways = cluster.full_duplex ? 1 : 2;
    const std::vector<std::vector<int>> by_host = WorkersByHost(cluster);
    for (size_t host = 0; host < by_host.size(); ++host) {
      if (by_host[host].empty()) continue;
      double speed = 0;
      for (const int worker : by_host[host]) speed += cluster.workers[worker].speed;
      host_speed_ = std::max(host_speed_, speed);
      const double nic = cluster.hosts[host].nic_bytes_per_second / ways;
      widest_nic_ = std::max(widest_nic_, nic);
      all_nics_ += nic;
      ++hosts_;
    }
    for (const LayerNode& node : graph.nodes) {
      work_s_.push_back(node.work_s());
      parameter_bytes_.push_back(node.parameter_bytes);
    }
    SetPrices();
    FindPlaces();
  }

  // Returns whether the NICs can carry what they have to with this period, or the budget is spent.
  bool Carries(double period_s, TimeBudget& budget) const {
    std::vector<double> most_share(work_s_.size(), 1.0);
    for (int round = 0; round < kShareRounds; ++round) {
      const Carried carried = CarriedWith(most_share, period_s * host_speed_, budget);
      if (budget.IsSpent(0)) return true;
      if (carried.partition_bytes * (1 - kHostBoundRounding) > period_s * all_nics_) return false;
      bool changes = false;
      for (size_t node = 0; node < most_share.size(); ++node) {
        if (carried.around_bytes[node] <= 0) continue;
        const double share =
            period_s * widest_nic_ / carried.around_bytes[node] * (1 + kHostBoundRounding);
        if (share * hosts_ < 1) return false;
        if (share >= most_share[node]) continue;
        changes = changes || share < most_share[node] * (1 - kSharesSettled);
        most_share[node] = share;
      }
      if (!changes) break;
    }
    return true;
  }

 private:
  // The least bytes of a partition, and of a run around each layer, for a share of 1.
  struct Carried {
    double partition_bytes = 0;
    std::vector<double> around_bytes;  // by node
  };

  // Prices are those at which the layers with the most bytes for their work add up to all work, half of it, and so on
  // down to the work of one host: there it is the most bytes that a second of work can save.
  void SetPrices() {
    const auto ratio = [&](int node) {
      return work_s_[node] > 0 ? parameter_bytes_[node] / work_s_[node] : kInfinity;
    };
    std::vector<int> by_ratio(work_s_.size());
    std::iota(by_ratio.begin(), by_ratio.end(), 0);
    std::stable_sort(by_ratio.begin(), by_ratio.end(),
                     [&](int a, int b) { return ratio(a) > ratio(b); });
    const double total_s = std::accumulate(work_s_.begin(), work_s_.end(), 0.0);
    prices_ = {0};
    for (double part = 1; part * hosts_ >= 0.25; part /= 2) {
      double inside_s = 0;
      for (const int node : by_ratio) {
        inside_s += work_s_[node];
        if (inside_s < part * total_s || ratio(node) == kInfinity) continue;
        if (std::find(prices_.begin(), prices_.end(), ratio(node)) == prices_.end()) {
          prices_.push_back(ratio(node));
        }
        break;
      }
    }
  }

  // Finds for each cut one inside it, so that sums over the layers inside take few steps, and for each layer the last cut
  // without it and the first with it: a run around it begins no later than at the one and ends no earlier than at the
  // other.
  void FindPlaces() {
    base_.assign(family_.size(), 0);
    added_.resize(family_.size());
    last_without_.assign(work_s_.size(), 0);
    first_with_.assign(work_s_.size(), last_);
    ending_.resize(family_.size());
    for (int cut = 1; cut <= last_; ++cut) {
      int inner = cut - 1;
      while (!family_.Inside(inner, cut)) --inner;
      base_[cut] = inner;
      added_[cut] = family_.NodesBetween(inner, cut);
      std::vector<bool> is_inside(work_s_.size());
      for (const int node : family_.NodesBetween(0, cut)) {
        is_inside[node] = true;
        first_with_[node] = std::min(first_with_[node], cut);
      }
      for (size_t node = 0; node < work_s_.size(); ++node) {
        if (!is_inside[node]) last_without_[node] = cut;
      }
    }
    for (size_t node = 0; node < work_s_.size(); ++node) {
      ending_[last_without_[node]].push_back(static_cast<int>(node));
    }
  }

  // Returns by price and cut what the layers inside save at most beyond the price of their work.
  std::vector<std::vector<double>> SavedInside(const std::vector<double>& most_share) const {
    std::vector<std::vector<double>> saved;
    for (const double price : prices_) {
      std::vector<double> inside(family_.size());
      for (int cut = 1; cut <= last_; ++cut) {
        inside[cut] = inside[base_[cut]];
        for (const int node : added_[cut]) {
          inside[cut] +=
              std::max(0.0, parameter_bytes_[node] - price * work_s_[node]) * most_share[node];
        }
      }
      saved.push_back(std::move(inside));
    }
    return saved;
  }

  Carried CarriedWith(const std::vector<double>& most_share, double room_s,
                      TimeBudget& budget) const {
    const std::vector<std::vector<double>> saved = SavedInside(most_share);
    std::vector<double> partition(family_.size(), kInfinity);
    partition[0] = 0;
    std::vector<double> kept(family_.size());
    std::vector<double> run(family_.size());  // from the cut at hand to each
    std::vector<double> least(family_.size(),
                              kInfinity);  // of runs that begin no later and end no earlier
    Carried carried{.around_bytes = std::vector<double>(work_s_.size(), kInfinity)};
    for (int from = 0; from < last_; ++from) {
      if (budget.IsSpent((last_ - from) * static_cast<int64_t>(prices_.size()))) break;
      std::fill(kept.begin() + from, kept.end(), kInfinity);
      for (size_t price = 0; price < prices_.size(); ++price) {
        const double* inside = saved[price].data();
        const double paid = prices_[price] * room_s - inside[from];
        for (int to = from + 1; to <= last_; ++to) kept[to] = std::min(kept[to], paid + inside[to]);
      }
      const double before = partition[from];
      for (int to = from + 1; to <= last_; ++to) {
        const double sent = std::max(0.0, inside_bytes_[to] - inside_bytes_[from] - kept[to]);
        run[to] = end_bytes_[from] + end_bytes_[to] + 2 * sent;
      }
      for (int to = from + 1; to <= last_ && !is_chain_; ++to) {
        if (!family_.Inside(from, to)) run[to] = kInfinity;
      }
      for (int to = from + 1; to <= last_; ++to) {
        partition[to] = std::min(partition[to], before + run[to]);
      }
      double least_run = kInfinity;
      for (int to = last_; to > from; --to) {
        least_run = std::min(least_run, run[to]);
        least[to] = std::min(least[to], least_run);
      }
      for (const int node : ending_[from]) carried.around_bytes[node] = least[first_with_[node]];
    }
    carried.partition_bytes = partition[last_];
    return carried;
  }

  const CutFamily& family_;
  const int last_;
  const bool is_chain_;                   // every cut is inside every later one
  std::vector<double> end_bytes_;         // by cut: what crosses it
  std::vector<double> inside_bytes_;      // by cut: of parameters
  int hosts_ = 0;                         // those with workers
  double host_speed_ = 0;                 // of the fastest, all its workers together
  double widest_nic_ = 0;                 // bytes a second
  double all_nics_ = 0;                   // of all hosts
  std::vector<double> work_s_;            // by node
  std::vector<double> parameter_bytes_;   // by node
  std::vector<double> prices_;            // bytes for a second of work
  std::vector<int> base_;                 // by cut
  std::vector<std::vector<int>> added_;   // by cut: the nodes beyond its base
  std::vector<int> last_without_;         // by node
  std::vector<int> first_with_;           // by node
  std::vector<std::vector<int>> ending_;  // by cut: the nodes with which it is the last one without
};

}  // namespace

bool NicsAreLimited(const Cluster& cluster) {
  int hosts = 0;
  double all_nics = 0;
  const std::vector<std::vector<int>> by_host = WorkersByHost(cluster);
  for (size_t host = 0; host < by_host.size(); ++host) {
    if (by_host[host].empty()) continue;
    all_nics += cluster.hosts[host].nic_bytes_per_second;
    ++hosts;
  }
  return hosts > 1 && all_nics < kInfinity;
}

double HostBound(const LayerGraph& graph, const CutFamily& family, const Cluster& cluster,
                 double known_s, TimeBudget& budget) {
  if (!NicsAreLimited(cluster)) return 0;
  const NicLoad load(graph, family, cluster);
  double low_s = 0;
  double high_s = known_s;
  while (high_s - low_s > kHostBoundTolerance * known_s && !budget.IsSpent(0)) {
    const double middle_s = (low_s + high_s) / 2;
    (load.Carries(middle_s, budget) ? high_s : low_s) = middle_s;
  }
  return low_s;
}

}  // namespace penstock
