// Cluster: the workers that a plan may use, and the network between them.
//
// The workers of a host reach each other over their own links, and workers of other hosts through the NIC of their
// host, which they share; the path between some hosts may be slower still. Latencies count where steps are simulated
// (planner/job/), not in the loads of planner/graph/placement.h.
//
// Plain values.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace penstock {

struct PlanHost {
  std::string name;
  double nic_bytes_per_second = std::numeric_limits<double>::infinity();  // each way
  double inside_bytes_per_second =
      std::numeric_limits<double>::infinity();  // of a worker's link, each way
  double nic_latency_s = 0;     // to another host; between two the longer one counts
  double inside_latency_s = 0;  // between its workers
};

struct PlanWorker {
  std::string name;
  int host = 0;
  double speed = 1.0;  // the profile's times are divided by it
  double memory_bytes = std::numeric_limits<double>::infinity();
  // Between its device and where offloaded stashes wait, each way; 0: not known, so that plans do not offload.
  double offload_bytes_per_second = 0;
};

// A path between two hosts that is slower than their NICs, equally in both directions.
struct HostPath {
  int from = 0;
  int to = 0;
  double bytes_per_second = 0;
  double latency_s = 0;
};

struct Cluster {
  std::vector<PlanHost> hosts;
  std::vector<PlanWorker> workers;
  std::vector<HostPath> paths;
  // True if links carry both directions at the same time, as Ethernet does; otherwise their bytes add up.
  bool full_duplex = true;

  int size() const { return static_cast<int>(workers.size()); }
};

// Returns a cluster of `hosts` equal hosts with `workers_per_host` equal workers each.
Cluster UniformCluster(int hosts, int workers_per_host, double nic_bytes_per_second,
                       double inside_bytes_per_second);

// Returns the workers of each host, ascending.
std::vector<std::vector<int>> WorkersByHost(const Cluster& cluster);

// Returns InvalidArgument, naming the host or worker, unless there is a worker, every worker has one of the hosts, and
// all speeds, sizes and bandwidths are positive.
absl::Status CheckCluster(const Cluster& cluster);

}  // namespace penstock
