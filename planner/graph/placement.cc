#include "planner/graph/placement.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "planner/graph/limits.h"

namespace penstock {
namespace {

// Counts how many replicas of a stage, of those that are alike modulo `classes`, each host has.
std::vector<std::vector<int>> CountByClass(const Cluster& cluster, const std::vector<int>& workers,
                                           int classes) {
  std::vector<std::vector<int>> counts(classes, std::vector<int>(cluster.hosts.size()));
  for (size_t replica = 0; replica < workers.size(); ++replica) {
    ++counts[replica % classes][cluster.workers[workers[replica]].host];
  }
  return counts;
}

}  // namespace

std::vector<LayerMemory> GuessMemory(const LayerGraph& graph, double optimizer_copies) {
  std::vector<LayerMemory> memory;
  for (const LayerNode& node : graph.nodes) {
    memory.push_back({.weight_bytes = node.parameter_bytes,
                      .state_bytes = (1 + optimizer_copies) * node.parameter_bytes,
                      .stash_bytes = node.activation_bytes});
  }
  return memory;
}

PlacementCosts::PlacementCosts(const LayerGraph& graph, const CutFamily& family,
                               const Cluster& cluster, const std::vector<LayerMemory>& memory,
                               const MemoryRule& rule)
    : family_(family), cluster_(cluster), rule_(rule) {
  for (int cut = 0; cut < family.size(); ++cut) {
    double forward_s = 0;
    LayerMemory sum;
    for (const int node : family.NodesBetween(0, cut)) {
      forward_s += graph.nodes[node].forward_s;
      sum.weight_bytes += memory[node].weight_bytes;
      sum.state_bytes += memory[node].state_bytes;
      sum.stash_bytes += memory[node].stash_bytes;
    }
    inside_.forward_s.push_back(forward_s);
    inside_.weight_bytes.push_back(sum.weight_bytes);
    inside_.state_bytes.push_back(sum.state_bytes);
    inside_.stash_bytes.push_back(sum.stash_bytes);
  }
  const size_t hosts = cluster.hosts.size();
  path_of_.assign(hosts * hosts, -1);
  for (size_t path = 0; path < cluster.paths.size(); ++path) {
    const HostPath& between = cluster.paths[path];
    path_of_[between.from * hosts + between.to] = static_cast<int>(path);
    path_of_[between.to * hosts + between.from] = static_cast<int>(path);
  }
}

PlacementCosts::Loads PlacementCosts::NoLoads() const {
  return {.worker_link_s = std::vector<double>(cluster_.workers.size()),
          .nic_s = std::vector<double>(cluster_.hosts.size()),
          .path_s = std::vector<double>(cluster_.paths.size())};
}

// Every load is of bytes in one direction, and as many go the other way.
void PlacementCosts::AddHostBytes(int host, double bytes, Loads& loads) const {
  const double ways = cluster_.full_duplex ? 1 : 2;
  loads.nic_s[host] += ways * bytes / cluster_.hosts[host].nic_bytes_per_second;
  loads.most_s = std::max(loads.most_s, loads.nic_s[host]);
}

void PlacementCosts::AddPathBytes(int from, int to, double bytes, Loads& loads) const {
  const int path = path_of_[from * cluster_.hosts.size() + to];
  if (path < 0) return;
  const double ways = cluster_.full_duplex ? 1 : 2;
  loads.path_s[path] += ways * bytes / cluster_.paths[path].bytes_per_second;
  loads.most_s = std::max(loads.most_s, loads.path_s[path]);
}

void PlacementCosts::AddWorkerBytes(int worker, double bytes, Loads& loads) const {
  const double ways = cluster_.full_duplex ? 1 : 2;
  const PlanHost& host = cluster_.hosts[cluster_.workers[worker].host];
  loads.worker_link_s[worker] += ways * bytes / host.inside_bytes_per_second;
  loads.most_s = std::max(loads.most_s, loads.worker_link_s[worker]);
}

void PlacementCosts::AddSync(const PlacedStage& stage, Loads& loads) const {
  const int replicas = static_cast<int>(stage.workers.size());
  if (replicas == 1) return;
  // One replica sends each other one this many bytes for one minibatch.
  const double bytes = 2 * family_.StageParameterBytes(stage.from_cut, stage.to_cut) /
                       (static_cast<double>(replicas) * replicas);
  const std::vector<int> count = CountByClass(cluster_, stage.workers, 1).front();
  for (const int worker : stage.workers) {
    AddWorkerBytes(worker, bytes * (count[cluster_.workers[worker].host] - 1), loads);
  }
  const int hosts = static_cast<int>(count.size());
  for (int host = 0; host < hosts; ++host) {
    if (count[host] == 0 || count[host] == replicas) continue;
    AddHostBytes(host, bytes * count[host] * (replicas - count[host]), loads);
    if (cluster_.paths.empty()) continue;
    for (int other = host + 1; other < hosts; ++other) {
      AddPathBytes(host, other, bytes * count[host] * count[other], loads);
    }
  }
}

void PlacementCosts::AddBoundary(const PlacedStage& stage, const PlacedStage& next,
                                 Loads& loads) const {
  const int replicas = static_cast<int>(stage.workers.size());
  const int next_replicas = static_cast<int>(next.workers.size());
  // Replicas i and j share minibatches if they are alike modulo the greatest common divisor.
  const int classes = std::gcd(replicas, next_replicas);
  const double bytes = family_.live_bytes(stage.to_cut) * classes /
                       (static_cast<double>(replicas) * next_replicas);  // of each such pair
  const auto here = CountByClass(cluster_, stage.workers, classes);
  const auto there = CountByClass(cluster_, next.workers, classes);
  const auto charge_workers = [&](const std::vector<int>& workers,
                                  const std::vector<std::vector<int>>& others) {
    for (size_t replica = 0; replica < workers.size(); ++replica) {
      const int worker = workers[replica];
      const int alike = others[replica % classes][cluster_.workers[worker].host];
      if (alike > 0) AddWorkerBytes(worker, bytes * alike, loads);
    }
  };
  charge_workers(stage.workers, there);
  charge_workers(next.workers, here);
  const int hosts = static_cast<int>(cluster_.hosts.size());
  for (int one = 0; one < classes; ++one) {
    const int sending = replicas / classes;
    const int receiving = next_replicas / classes;
    for (int host = 0; host < hosts; ++host) {
      const int out = here[one][host] * (receiving - there[one][host]);
      const int in = there[one][host] * (sending - here[one][host]);
      if (out + in > 0) AddHostBytes(host, bytes * (out + in), loads);
      if (cluster_.paths.empty()) continue;
      for (int other = 0; other < hosts; ++other) {
        const int pairs = here[one][host] * there[one][other];
        if (other != host && pairs > 0) AddPathBytes(host, other, bytes * pairs, loads);
      }
    }
  }
}

double PlacementCosts::SlowestSpeed(const PlacedStage& stage) const {
  double speed = kInfinity;
  for (const int worker : stage.workers) speed = std::min(speed, cluster_.workers[worker].speed);
  return speed;
}

double PlacementCosts::StageMemoryBytes(const PlacedStage& stage, int behind,
                                        bool recomputes) const {
  const int replicas = static_cast<int>(stage.workers.size());
  const int in_flight = std::min((behind + replicas - 1) / replicas, rule_.in_flight_max);
  const auto inside = [&](const std::vector<double>& sums) {
    return std::max(0.0, sums[stage.to_cut] - sums[stage.from_cut]);
  };
  double versions = 1;
  if (rule_.versions == KeptVersions::kInFlight) versions = in_flight;
  if (rule_.versions == KeptVersions::kTwo) versions = std::min(2, in_flight);
  const double input_bytes = InputBytes(stage.from_cut);
  const double stash_bytes = inside(inside_.stash_bytes);
  const double activation_bytes =
      recomputes ? in_flight * input_bytes + stash_bytes : in_flight * (input_bytes + stash_bytes);
  return versions * inside(inside_.weight_bytes) + inside(inside_.state_bytes) + activation_bytes;
}

std::optional<StageCharge> PlacementCosts::ChargeStage(const PlacedStage& stage, int behind) const {
  const int replicas = static_cast<int>(stage.workers.size());
  double limit_bytes = kInfinity;
  for (const int worker : stage.workers) {
    limit_bytes = std::min(limit_bytes, cluster_.workers[worker].memory_bytes);
  }
  StageCharge charge{
      .compute_s =
          family_.StageWorkS(stage.from_cut, stage.to_cut) / SlowestSpeed(stage) / replicas,
      .memory_bytes = StageMemoryBytes(stage, behind, false),
      .in_flight = std::min((behind + replicas - 1) / replicas, rule_.in_flight_max)};
  if (charge.memory_bytes > limit_bytes) {
    if (!rule_.may_recompute) return std::nullopt;
    charge.recomputes = true;
    charge.memory_bytes = StageMemoryBytes(stage, behind, true);
    if (charge.memory_bytes > limit_bytes) return std::nullopt;
    const double forward_s = inside_.forward_s[stage.to_cut] - inside_.forward_s[stage.from_cut];
    charge.compute_s += std::max(0.0, forward_s) / SlowestSpeed(stage) / replicas;
  }
  if (replicas > 1) {
    Loads loads = NoLoads();
    AddSync(stage, loads);
    charge.sync_s = loads.most_s;
  }
  return charge;
}

PlacementCharge PlacementCosts::Charge(const ClusterPlacement& placement) const {
  PlacementCharge charge;
  charge.stages.resize(placement.size());
  Loads loads = NoLoads();
  int behind = 0;
  for (size_t at = placement.size(); at-- > 0;) {
    behind += static_cast<int>(placement[at].workers.size());
    const std::optional<StageCharge> stage = ChargeStage(placement[at], behind);
    if (!stage.has_value()) {
      charge.period_s = kInfinity;
      charge.busiest = {BusiestResource::Kind::kStage, static_cast<int>(at)};
      return charge;
    }
    charge.stages[at] = *stage;
    charge.memory_bytes = std::max(charge.memory_bytes, stage->memory_bytes);
    AddSync(placement[at], loads);
    if (at + 1 < placement.size()) AddBoundary(placement[at], placement[at + 1], loads);
  }
  const auto consider = [&](double seconds, BusiestResource::Kind kind, size_t index) {
    if (seconds <= charge.period_s) return;
    charge.period_s = seconds;
    charge.busiest = {kind, static_cast<int>(index)};
  };
  const auto consider_all = [&](const std::vector<double>& seconds, BusiestResource::Kind kind) {
    for (size_t index = 0; index < seconds.size(); ++index) consider(seconds[index], kind, index);
  };
  for (size_t at = 0; at < placement.size(); ++at) {
    const StageCharge& stage = charge.stages[at];
    consider(stage.compute_s + stage.sync_s, BusiestResource::Kind::kStage, at);
  }
  consider_all(loads.worker_link_s, BusiestResource::Kind::kWorkerLink);
  consider_all(loads.nic_s, BusiestResource::Kind::kNic);
  consider_all(loads.path_s, BusiestResource::Kind::kPath);
  for (size_t at = 0; at + 1 < placement.size(); ++at) {
    Loads alone = NoLoads();
    AddBoundary(placement[at], placement[at + 1], alone);
    charge.boundary_s.push_back(alone.most_s);
  }
  charge.worker_link_s = std::move(loads.worker_link_s);
  charge.nic_s = std::move(loads.nic_s);
  charge.path_s = std::move(loads.path_s);
  return charge;
}

}  // namespace penstock
