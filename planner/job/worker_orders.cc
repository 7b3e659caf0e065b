#include "planner/job/worker_orders.h"

#include <algorithm>

namespace penstock {

WorkerOrders::WorkerOrders(const Cluster& cluster) : cluster_(cluster) {
  const std::vector<std::vector<int>> by_host = WorkersByHost(cluster);
  for (size_t host = 0; host < by_host.size(); ++host) {
    for (const int worker : by_host[host]) {
      const PlanWorker& it = cluster.workers[worker];
      const auto kind = std::find_if(kinds_.begin(), kinds_.end(), [&](const Kind& known) {
        return known.host == it.host && AreAlike(cluster.workers[known.workers.front()], it);
      });
      if (kind != kinds_.end()) {
        kind->workers.push_back(worker);
      } else {
        kinds_.push_back({.host = it.host, .workers = {worker}});
      }
    }
    hosts_.push_back({.like = FirstLike(by_host, host)});
  }
}

bool WorkerOrders::ForEach(int64_t count,
                           const std::function<bool(const std::vector<int>&)>& visit) {
  if (static_cast<int64_t>(order_.size()) == count) return visit(order_);
  for (size_t at = 0; at < kinds_.size(); ++at) {
    Kind& kind = kinds_[at];
    if (kind.used == kind.workers.size() || IsLikeAnEarlierOne(at)) continue;
    order_.push_back(kind.workers[kind.used++]);
    ++hosts_[kind.host].used;
    const bool goes_on = ForEach(count, visit);
    --hosts_[kind.host].used;
    --kind.used;
    order_.pop_back();
    if (!goes_on) return false;
  }
  return true;
}

bool WorkerOrders::AreAlike(const PlanWorker& one, const PlanWorker& other) {
  return one.speed == other.speed && one.memory_bytes == other.memory_bytes;
}

size_t WorkerOrders::FirstLike(const std::vector<std::vector<int>>& by_host, size_t host) const {
  const auto has_path = [&](size_t it) {
    return std::any_of(cluster_.paths.begin(), cluster_.paths.end(), [&](const HostPath& path) {
      return path.from == static_cast<int>(it) || path.to == static_cast<int>(it);
    });
  };
  for (size_t other = 0; other < host; ++other) {
    const PlanHost& a = cluster_.hosts[other];
    const PlanHost& b = cluster_.hosts[host];
    const bool same_network = a.nic_bytes_per_second == b.nic_bytes_per_second &&
                              a.inside_bytes_per_second == b.inside_bytes_per_second &&
                              a.nic_latency_s == b.nic_latency_s &&
                              a.inside_latency_s == b.inside_latency_s;
    const bool same_workers = std::equal(
        by_host[other].begin(), by_host[other].end(), by_host[host].begin(), by_host[host].end(),
        [&](int one, int two) { return AreAlike(cluster_.workers[one], cluster_.workers[two]); });
    if (same_network && same_workers && !has_path(other) && !has_path(host)) return other;
  }
  return host;
}

bool WorkerOrders::IsLikeAnEarlierOne(size_t kind) const {
  const Kind& it = kinds_[kind];
  if (hosts_[it.host].used > 0) return false;
  return std::any_of(
      kinds_.begin(), kinds_.begin() + static_cast<std::ptrdiff_t>(kind), [&](const Kind& other) {
        return hosts_[other.host].used == 0 && hosts_[other.host].like == hosts_[it.host].like &&
               AreAlike(cluster_.workers[other.workers.front()],
                        cluster_.workers[it.workers.front()]);
      });
}

}  // namespace penstock
