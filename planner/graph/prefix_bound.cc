#include "planner/graph/prefix_bound.h"

#include <algorithm>

#include "planner/graph/limits.h"

namespace penstock {
namespace {

constexpr double kStepsMax = 5e7;  // a fraction of a second
constexpr double kRounding = 1e-9;

}  // namespace

PrefixBound::PrefixBound(const CutFamily& family, const Cluster& cluster)
    : family_(family), workers_(cluster.size()), stride_(cluster.size() + 1) {
  const double pairs = 0.5 * family.size() * family.size() * workers_ * workers_;
  if (pairs > kStepsMax) return;
  Fill(FastestOf(cluster));
}

PrefixBound::Fastest PrefixBound::FastestOf(const Cluster& cluster) {
  Fastest fastest{.hosts = static_cast<int>(cluster.hosts.size())};
  const double ways = cluster.full_duplex ? 1 : 2;
  for (const PlanWorker& worker : cluster.workers) {
    fastest.speed = std::max(fastest.speed, worker.speed);
  }
  for (const PlanHost& host : cluster.hosts) {
    fastest.nic_bytes_per_second =
        std::max(fastest.nic_bytes_per_second, host.nic_bytes_per_second / ways);
    fastest.bytes_per_second =
        std::max(fastest.bytes_per_second,
                 (host.nic_bytes_per_second + host.inside_bytes_per_second) / ways);
  }
  for (const std::vector<int>& host : WorkersByHost(cluster)) {
    fastest.host_workers = std::max(fastest.host_workers, static_cast<int>(host.size()));
  }
  return fastest;
}

// Returns the least seconds to average the gradients of one minibatch of a stage.
double PrefixBound::SyncS(const Fastest& fastest, double parameter_bytes, int replicas) {
  const double pair_bytes = 2 * parameter_bytes / (static_cast<double>(replicas) * replicas);
  double sync_s = pair_bytes * (replicas - 1) / fastest.bytes_per_second;
  if (replicas > fastest.host_workers) {
    // The host with most of them has k, from `few` to all that a host can have, and sends k (r - k) parts, which are
    // fewest at one of the two ends.
    const int few = (replicas + fastest.hosts - 1) / fastest.hosts;
    const double parts =
        std::min(static_cast<double>(few) * (replicas - few),
                 static_cast<double>(fastest.host_workers) * (replicas - fastest.host_workers));
    sync_s = std::max(sync_s, pair_bytes * parts / fastest.nic_bytes_per_second);
  }
  return sync_s;
}

// Fills row by row: a last stage from `from` to `to` with `replicas`, and the best of what is before it.
void PrefixBound::Fill(const Fastest& fastest) {
  table_.assign(static_cast<size_t>(family_.size()) * stride_, kInfinity);
  for (int workers = 0; workers <= workers_; ++workers) At(0, workers) = 0;
  for (int to = 1; to < family_.size(); ++to) {
    for (int from = 0; from < to; ++from) {
      if (!family_.Inside(from, to)) continue;
      const double work_s = family_.StageWorkS(from, to) / fastest.speed;
      const double parameter_bytes = family_.StageParameterBytes(from, to);
      const double link_s = from == 0 ? 0 : family_.live_bytes(from) / fastest.bytes_per_second;
      for (int replicas = 1; replicas <= workers_; ++replicas) {
        const double stage_s = work_s / replicas + SyncS(fastest, parameter_bytes, replicas);
        for (int workers = replicas; workers <= workers_; ++workers) {
          double& least = At(to, workers);
          const double before_s = At(from, workers - replicas);
          if (before_s >= least) continue;
          // Either side of the cut may be the smaller one; each of its replicas has a link.
          const int others = std::max(1, workers - replicas);
          const double across_s = link_s / std::min(replicas, others);
          least = std::min(least, std::max({before_s, stage_s, across_s}));
        }
      }
    }
  }
}

double PrefixBound::PeriodS(int cut, int workers, double speed) const {
  if (cut == 0) return 0;
  if (workers <= 0) return kInfinity;
  const double work_s = family_.work_s(cut) / speed;
  if (table_.empty()) return work_s * (1 - kRounding);
  const double least_s = table_[static_cast<size_t>(cut) * stride_ + workers];
  return std::max(work_s, least_s) * (1 - kRounding);
}

}  // namespace penstock
