#include "coordinator/known_links.h"

#include <string>

namespace penstock {

std::optional<std::vector<v1::ProfiledLink>> KnownLinks::Find(
    const std::vector<WorkerOffer>& workers) const {
  std::vector<v1::ProfiledLink> links;
  for (const WorkerOffer& from : workers) {
    for (const WorkerOffer& to : workers) {
      if (&from == &to) continue;
      const auto known = links_.find({from.incarnation, to.incarnation});
      if (known == links_.end()) return std::nullopt;
      links.push_back(known->second);
    }
  }
  return links;
}

void KnownLinks::Keep(const std::vector<WorkerOffer>& workers, const v1::ClusterProfile& profile) {
  if (links_.size() + profile.links_size() > kLinksMax) links_.clear();
  std::map<std::string, uint64_t> incarnations;
  for (const WorkerOffer& worker : workers) incarnations[worker.name] = worker.incarnation;
  for (const v1::ProfiledLink& link : profile.links()) {
    links_[{incarnations[link.from()], incarnations[link.to()]}] = link;
  }
}

}  // namespace penstock
