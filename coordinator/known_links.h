// KnownLinks: the links that jobs have measured, by the incarnations of their workers. It leaves out what several jobs
// use at the same time: a link was alone when it was measured.
//
// Thread-compatible.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "penstock/v1/cluster.pb.h"
#include "planner/job/assign.h"

namespace penstock {

class KnownLinks {
 public:
  // Finds the links between all of `workers`, both ways; absent if one is not known.
  std::optional<std::vector<v1::ProfiledLink>> Find(const std::vector<WorkerOffer>& workers) const;
  void Keep(const std::vector<WorkerOffer>& workers, const v1::ClusterProfile& profile);

 private:
  static constexpr size_t kLinksMax = 1 << 14;

  // By the incarnations of both ends.
  std::map<std::pair<uint64_t, uint64_t>, v1::ProfiledLink> links_;
};

}  // namespace penstock
