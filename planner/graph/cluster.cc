#include "planner/graph/cluster.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace penstock {

Cluster UniformCluster(int hosts, int workers_per_host, double nic_bytes_per_second,
                       double inside_bytes_per_second) {
  Cluster cluster;
  for (int host = 0; host < hosts; ++host) {
    const std::string name = absl::StrCat("host-", host);
    cluster.hosts.push_back({name, nic_bytes_per_second, inside_bytes_per_second});
    for (int worker = 0; worker < workers_per_host; ++worker) {
      cluster.workers.push_back({.name = absl::StrCat(name, "/", worker), .host = host});
    }
  }
  return cluster;
}

std::vector<std::vector<int>> WorkersByHost(const Cluster& cluster) {
  std::vector<std::vector<int>> by_host(cluster.hosts.size());
  for (int worker = 0; worker < cluster.size(); ++worker) {
    by_host[cluster.workers[worker].host].push_back(worker);
  }
  return by_host;
}

absl::Status CheckCluster(const Cluster& cluster) {
  const int hosts = static_cast<int>(cluster.hosts.size());
  const auto check = [](const std::string& what, double value) {
    if (value > 0) return absl::OkStatus();  // not NaN either
    return absl::InvalidArgumentError(absl::StrCat(what, " must be positive, got ", value));
  };
  if (cluster.workers.empty()) {
    return absl::InvalidArgumentError("a plan needs at least one worker, the cluster has none");
  }
  for (const PlanHost& host : cluster.hosts) {
    absl::Status status = check(absl::StrCat("the bandwidth of host ", host.name, "'s NIC"),
                                host.nic_bytes_per_second);
    status.Update(
        check(absl::StrCat("the bandwidth inside host ", host.name), host.inside_bytes_per_second));
    if (!status.ok()) return status;
  }
  for (const PlanWorker& worker : cluster.workers) {
    if (worker.host < 0 || worker.host >= hosts) {
      return absl::InvalidArgumentError(absl::StrCat("worker ", worker.name, " is on host ",
                                                     worker.host, ", there are ", hosts, " hosts"));
    }
    absl::Status status = check(absl::StrCat("the speed of worker ", worker.name), worker.speed);
    status.Update(check(absl::StrCat("the memory of worker ", worker.name), worker.memory_bytes));
    if (!status.ok()) return status;
  }
  for (const HostPath& path : cluster.paths) {
    if (path.from < 0 || path.to < 0 || path.from >= hosts || path.to >= hosts ||
        path.from == path.to) {
      return absl::InvalidArgumentError(absl::StrCat("a path joins hosts ", path.from, " and ",
                                                     path.to, ", expected two of ", hosts));
    }
    PENSTOCK_RETURN_IF_ERROR(
        check(absl::StrCat("the bandwidth between ", cluster.hosts[path.from].name, " and ",
                           cluster.hosts[path.to].name),
              path.bytes_per_second));
  }
  return absl::OkStatus();
}

}  // namespace penstock
