// WorkerOrders: the ways to put a cluster's workers at the places of a pipeline that differ for it.
//
// Workers of a host with the same speed and memory stand for one another, and so do hosts with the same network and
// the same workers that no path of its own joins to others.
//
// Thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "planner/graph/cluster.h"

namespace penstock {

class WorkerOrders {
 public:
  // `cluster` must outlive it.
  explicit WorkerOrders(const Cluster& cluster);

  // Calls `visit` with one of each kind of order of `count` workers, until it says not to go on.
  // Returns whether it never did.
  bool ForEach(int64_t count, const std::function<bool(const std::vector<int>&)>& visit);

 private:
  struct Kind {
    int host = 0;
    std::vector<int> workers;
    size_t used = 0;
  };
  struct Host {
    size_t like = 0;  // the first host that is as this one
    int used = 0;     // workers
  };

  static bool AreAlike(const PlanWorker& one, const PlanWorker& other);
  size_t FirstLike(const std::vector<std::vector<int>>& by_host, size_t host) const;
  // Returns whether a worker like those of this kind comes first, on a host like theirs that has no place either.
  bool IsLikeAnEarlierOne(size_t kind) const;

  const Cluster& cluster_;
  std::vector<Kind> kinds_;  // by host
  std::vector<Host> hosts_;
  std::vector<int> order_;
};

}  // namespace penstock
