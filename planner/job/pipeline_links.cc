#include "planner/job/pipeline_links.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

namespace penstock {
namespace {

class PipelineLinks {
 public:
  PipelineLinks(const Cluster& cluster, const std::vector<int>& workers, const Topology& topology)
      : cluster_(cluster), workers_(workers), nics_(cluster.hosts.size()) {
    CountStreams(topology);
    CountOthers();
  }

  // Returns the link of a stream between two workers of the pipeline; replicas, which talk at other times than
  // neighbouring stages, share the NICs and paths among themselves.
  v1::LinkTimes Between(int one, int two) const {
    const int from = HostOf(one);
    const int to = HostOf(two);
    double bytes_per_second = cluster_.hosts[from].inside_bytes_per_second;
    double latency_s = cluster_.hosts[from].inside_latency_s;
    if (from != to) {
      bytes_per_second = std::numeric_limits<double>::infinity();
      latency_s = std::max(cluster_.hosts[from].nic_latency_s, cluster_.hosts[to].nic_latency_s);
      for (const int host : {from, to}) {
        bytes_per_second = std::min(bytes_per_second, cluster_.hosts[host].nic_bytes_per_second *
                                                          ShareOf(one, two, nics_[host]));
      }
      for (const HostPath& path : cluster_.paths) {
        if (std::minmax(path.from, path.to) != std::minmax(from, to)) continue;
        const double share = ShareOf(one, two, between_.at(std::minmax(from, to)));
        bytes_per_second = std::min(bytes_per_second, path.bytes_per_second * share);
        latency_s = std::max(latency_s, path.latency_s);
      }
    }
    // Both directions are as busy in training: a forward's bytes come back as a gradient.
    if (!cluster_.full_duplex) bytes_per_second /= 2;
    v1::LinkTimes link;
    link.add_workers(one);
    link.add_workers(two);
    if (std::isfinite(bytes_per_second)) link.set_gigabits_per_second(bytes_per_second * 8e-9);
    link.set_latency_ms(latency_s * 1e3);
    return link;
  }

 private:
  // A NIC or path that several streams share.
  struct Shared {
    double load = 0;  // of streams between stages: bytes of a microbatch, in those of one boundary
    int others = 0;   // pairs of workers without such a stream
  };

  int HostOf(int worker) const { return cluster_.workers[workers_[worker]].host; }

  double ShareOf(int one, int two, const Shared& shared) const {
    const auto stream = streams_.find({one, two});
    return stream != streams_.end() ? stream->second / shared.load : 1.0 / shared.others;
  }

  void CountStreams(const Topology& topology) {
    for (const int32_t number : topology.outgoing) {
      const Edge& edge = topology.edges[number];
      const int here = topology.worker(edge.from).value;
      const int there = topology.worker(edge.to).value;
      if (edge.kind != EdgeKind::kActivation || HostOf(here) == HostOf(there)) continue;
      const StageWiring& sender = topology[edge.from];
      const int32_t receivers = sender.out[static_cast<size_t>(edge.kind)].count;
      const double weight = 1.0 / (sender.replicas * static_cast<double>(receivers));
      streams_[std::minmax(here, there)] += weight;
      nics_[HostOf(here)].load += weight;
      nics_[HostOf(there)].load += weight;
      between_[std::minmax(HostOf(here), HostOf(there))].load += weight;
    }
  }

  void CountOthers() {
    const int count = static_cast<int>(workers_.size());
    for (int one = 0; one < count; ++one) {
      for (int two = one + 1; two < count; ++two) {
        if (HostOf(one) == HostOf(two) || streams_.contains({one, two})) continue;
        ++nics_[HostOf(one)].others;
        ++nics_[HostOf(two)].others;
        ++between_[std::minmax(HostOf(one), HostOf(two))].others;
      }
    }
  }

  const Cluster& cluster_;
  const std::vector<int>& workers_;
  std::map<std::pair<int, int>, double>
      streams_;               // by workers of the pipeline, the lower one first
  std::vector<Shared> nics_;  // by host
  std::map<std::pair<int, int>, Shared> between_;  // by hosts, the lower one first
};

}  // namespace

void AddWorkers(const Cluster& cluster, const std::vector<int>& workers, const Topology& topology,
                v1::DeviceTimes& times) {
  double offload_bytes_per_second = std::numeric_limits<double>::infinity();  // of the slowest
  for (const int worker : workers) {
    times.add_speeds(cluster.workers[worker].speed);
    offload_bytes_per_second =
        std::min(offload_bytes_per_second, cluster.workers[worker].offload_bytes_per_second);
  }
  if (offload_bytes_per_second > 0 && std::isfinite(offload_bytes_per_second)) {
    times.set_offload_gigabits_per_second(offload_bytes_per_second * 8e-9);
  }
  const PipelineLinks links(cluster, workers, topology);
  const int count = static_cast<int>(workers.size());
  for (int one = 0; one < count; ++one) {
    for (int two = one + 1; two < count; ++two) *times.add_links() = links.Between(one, two);
  }
}

}  // namespace penstock
