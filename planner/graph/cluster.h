// Cluster: the workers that a plan may use, and the network between them.
//
// A host's workers reach each other by links of their own, and workers of other hosts through the one
// network card of their host, which they share; between some hosts the way may be slower still. Latencies
// count where steps are simulated (planner/job/), not in the loads of planner/graph/placement.h.
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
  double card_bytes_per_second = std::numeric_limits<double>::infinity();  // each way
  double inside_bytes_per_second =
      std::numeric_limits<double>::infinity();  // of a worker's link, each way
  double card_latency_s = 0;    // to another host; between two the longer one counts
  double inside_latency_s = 0;  // between its workers
};

struct PlanWorker {
  std::string name;
  int host = 0;
  double speed = 1.0;  // the profile's times are divided by it
  double memory_bytes = std::numeric_limits<double>::infinity();
};

// A way between two hosts that is slower than their cards, in both directions alike.
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
  // Whether links carry both directions at the same time, as Ethernet does. Else their bytes add up.
  bool full_duplex = true;

  int size() const { return static_cast<int>(workers.size()); }
};

// `hosts` alike, with `workers_per_host` alike each.
Cluster UniformCluster(int hosts, int workers_per_host, double card_bytes_per_second,
                       double inside_bytes_per_second);

// By host: its workers, ascending.
std::vector<std::vector<int>> WorkersByHost(const Cluster& cluster);

// InvalidArgument, naming host or worker, unless there is a worker, every worker has one of the hosts,
// and all speeds, sizes and bandwidths are positive.
absl::Status CheckCluster(const Cluster& cluster);

}  // namespace penstock
