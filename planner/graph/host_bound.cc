#include "planner/graph/host_bound.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "planner/graph/limits.h"

namespace penstock {
namespace {

constexpr double kTolerance = 1e-3;  // of the period known
constexpr double kRounding = 1e-9;
constexpr int kPrices = 12;

// Decides for one period after the other whether the NICs can carry what it needs.
class NicLoad {
 public:
  NicLoad(const LayerGraph& graph, const CutFamily& family, const Cluster& cluster)
      : family_(family) {
    const double ways = cluster.full_duplex ? 1 : 2;
    const std::vector<std::vector<int>> by_host = WorkersByHost(cluster);
    for (size_t host = 0; host < by_host.size(); ++host) {
      double speed = 0;
      for (const int worker : by_host[host]) speed += cluster.workers[worker].speed;
      host_speed_ = std::max(host_speed_, speed);
      if (!by_host[host].empty()) nics_ += cluster.hosts[host].nic_bytes_per_second / ways;
    }
    SetPrices(graph);
  }

  bool IsLimited() const { return nics_ < kInfinity; }

  // Returns whether all NICs together can carry what they have to with this period.
  bool Carries(double period_s, TimeBudget& budget) const {
    const double room_s = period_s * host_speed_;  // for the work of a host
    const int last = family_.size() - 1;
    std::vector<double> least_bytes(family_.size(),
                                    kInfinity);  // of a partition of what is inside a cut
    least_bytes[0] = 0;
    for (int to = 1; to <= last; ++to) {
      const double output_bytes = to == last ? 0 : family_.live_bytes(to);
      for (int from = 0; from < to; ++from) {
        const double before_bytes = least_bytes[from] + output_bytes + InputBytes(from);
        if (before_bytes >= least_bytes[to] || !family_.Inside(from, to)) continue;
        least_bytes[to] =
            std::min(least_bytes[to], before_bytes + 2 * SentParameterBytes(from, to, room_s));
      }
      if (budget.IsSpent(to * 10)) return true;
    }
    return least_bytes[last] * (1 - kRounding) <= period_s * nics_;
  }

 private:
  // What a second of work on a host saves at most, and what layers save beyond that, by cut over the layers inside.
  struct Price {
    double bytes_per_s = 0;
    std::vector<double> above_bytes;
  };

  double InputBytes(int cut) const { return cut == 0 ? 0.0 : family_.live_bytes(cut); }

  // Prices are those at which the layers with the most bytes for their work add up to all work, half of it, and so on.
  void SetPrices(const LayerGraph& graph) {
    std::vector<int> by_ratio(graph.nodes.size());
    std::iota(by_ratio.begin(), by_ratio.end(), 0);
    const auto ratio = [&](int node) {
      const LayerNode& layer = graph.nodes[node];
      return layer.work_s() > 0 ? layer.parameter_bytes / layer.work_s() : kInfinity;
    };
    std::stable_sort(by_ratio.begin(), by_ratio.end(),
                     [&](int a, int b) { return ratio(a) > ratio(b); });
    const double total_s = TotalWorkS(graph);
    for (int halvings = 0; halvings < kPrices; ++halvings) {
      double work_s = 0;
      for (const int node : by_ratio) {
        work_s += graph.nodes[node].work_s();
        if (work_s < std::ldexp(total_s, -halvings) || ratio(node) == kInfinity) continue;
        AddPrice(graph, ratio(node));
        break;
      }
    }
    AddPrice(graph, 0);
  }

  void AddPrice(const LayerGraph& graph, double bytes_per_s) {
    Price price{.bytes_per_s = bytes_per_s};
    for (int cut = 0; cut < family_.size(); ++cut) {
      double bytes = 0;
      for (const int node : family_.NodesBetween(0, cut)) {
        const LayerNode& layer = graph.nodes[node];
        bytes += std::max(0.0, layer.parameter_bytes - bytes_per_s * layer.work_s());
      }
      price.above_bytes.push_back(bytes);
    }
    prices_.push_back(std::move(price));
  }

  // Returns the least parameters that a run must send, of a host with room for so much work.
  double SentParameterBytes(int from, int to, double room_s) const {
    const double all_bytes = family_.StageParameterBytes(from, to);
    double kept_bytes = all_bytes;
    for (const Price& price : prices_) {
      kept_bytes =
          std::min(kept_bytes, price.bytes_per_s * room_s +
                                   std::max(0.0, price.above_bytes[to] - price.above_bytes[from]));
    }
    return all_bytes - kept_bytes;
  }

  const CutFamily& family_;
  double host_speed_ = 0;  // of the fastest, all its workers together
  double nics_ = 0;        // bytes a second of all hosts
  std::vector<Price> prices_;
};

}  // namespace

double HostBound(const LayerGraph& graph, const CutFamily& family, const Cluster& cluster,
                 double known_s, TimeBudget& budget) {
  const NicLoad load(graph, family, cluster);
  if (!load.IsLimited()) return 0;
  double low_s = 0;
  double high_s = known_s;
  while (high_s - low_s > kTolerance * known_s && !budget.IsSpent(0)) {
    const double middle_s = (low_s + high_s) / 2;
    (load.Carries(middle_s, budget) ? high_s : low_s) = middle_s;
  }
  return low_s;
}

}  // namespace penstock
