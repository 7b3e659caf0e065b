// PrefixBound: the least time that the layers inside a cut can take on a number of workers, wherever they are.
//
// The bound takes every worker to be as fast as the fastest and to have the host's NIC to itself in addition to its own
// link, and memory to have no limit. Only where a stage has more replicas than any host has workers do their gradients
// go over shared NICs, spread as they burden them least. What a plan needs under planner/graph/placement.h is then no
// less. The bound is a table over cuts and workers, filled by the recurrence of planner/graph/cut_search.h; where that
// would take too long, it is work divided by speed alone.
//
// Immutable, and so thread-safe.
#pragma once

#include <vector>

#include "planner/graph/cluster.h"
#include "planner/graph/cuts.h"

namespace penstock {

class PrefixBound {
 public:
  PrefixBound(const CutFamily& family, const Cluster& cluster);

  // Returns the least period of all placements of the layers inside `cut` on `workers` workers, whose speeds add up to
  // `speed`; infinite if there is none.
  double PeriodS(int cut, int workers, double speed) const;

 private:
  // Holds what every worker has at most.
  struct Fastest {
    double speed = 0;
    double bytes_per_second = 0;      // of its link and the host's NIC together
    double nic_bytes_per_second = 0;  // of a host
    int host_workers = 0;
    int hosts = 0;
  };
  static Fastest FastestOf(const Cluster& cluster);
  static double SyncS(const Fastest& fastest, double parameter_bytes, int replicas);
  void Fill(const Fastest& fastest);
  double& At(int cut, int workers) { return table_[static_cast<size_t>(cut) * stride_ + workers]; }

  const CutFamily& family_;
  int workers_;
  int stride_;
  std::vector<double> table_;  // by cut and workers; empty if it would be too large
};

}  // namespace penstock
