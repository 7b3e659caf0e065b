// ClusterPlacement: stages of a layer graph on the workers of a cluster, and what that costs.
//
// The cost model counts what each resource has to do for one minibatch, once the pipeline is full; the
// period is the largest of all. With C seconds of work of a stage, P bytes of parameters, r replicas,
// and O bytes over a cut:
//
//   worker        C / (speed r), the slowest replica's, and the averaging of gradients after it
//   averaging     every replica sends each other one its part, P / r, twice (worker/replica_sum.cc), once
//                 for r minibatches: the time of the busiest link, host's NIC or path that it uses
//   worker's link bytes to and from other workers of its host
//   host's NIC    bytes of all its workers to and from other hosts
//   path          bytes between two hosts
//
// Minibatch b goes from replica b mod r to replica b mod r' of the next stage, so the order of replicas decides what
// crosses between hosts. A cut's bytes go one way as activations and the other way as gradients: full duplex links
// carry both at the same time.
//
// Memory of a worker: weights, as many versions as the rule keeps, gradients and optimizer state, and
// what every microbatch in flight leaves until its backward; or, if the stage recomputes, its input,
// and once what a microbatch leaves, for one more forward. A stage recomputes if it does not fit
// otherwise.
//
// Plain values and pure functions; thread-compatible.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "planner/graph/cluster.h"
#include "planner/graph/cuts.h"
#include "planner/graph/layer_graph.h"

namespace penstock {

struct PlacedStage {
  int from_cut = 0;
  int to_cut = 0;
  std::vector<int> workers;  // of its replicas: minibatch b is that of replica b mod their number
  friend bool operator==(const PlacedStage&, const PlacedStage&) = default;
};

// Lists the stages from the first to the last; each begins where the one before ends. Workers without a stage are idle.
using ClusterPlacement = std::vector<PlacedStage>;

// Counts the bytes of a layer on a worker, apart from its output.
struct LayerMemory {
  double weight_bytes = 0;  // of one version
  double state_bytes = 0;   // gradients and optimizer
  double stash_bytes = 0;   // that one microbatch leaves until its backward
};

// Guesses the memory of a graph of which only sizes are known: gradients and each of `optimizer_copies` are as large as
// the parameters, and a layer keeps its output.
std::vector<LayerMemory> GuessMemory(const LayerGraph& graph, double optimizer_copies);

enum class KeptVersions : uint8_t {
  kOne,       // drains before every update, or reads what is there
  kTwo,       // double buffering
  kInFlight,  // weight stashing: one for every minibatch in flight
};

struct MemoryRule {
  KeptVersions versions = KeptVersions::kInFlight;
  // A stage with `behind` workers in it and the stages behind has ceil(behind / replicas) minibatches
  // in flight on each replica, and no more than this.
  int in_flight_max = std::numeric_limits<int>::max();
  bool may_recompute = true;
};

// Says why a plan is not faster.
struct BusiestResource {
  enum class Kind : uint8_t { kStage, kWorkerLink, kNic, kPath };
  Kind kind = Kind::kStage;
  int index = 0;  // of the stage, worker, host or path
};

struct StageCharge {
  double compute_s = 0;  // of the slowest replica, its share of a minibatch
  double sync_s = 0;     // its share
  double memory_bytes = 0;
  int in_flight = 0;
  bool recomputes = false;
};

struct PlacementCharge {
  double period_s = 0;  // infinite if a stage does not fit into memory
  BusiestResource busiest;
  std::vector<StageCharge> stages;
  std::vector<double> worker_link_s;
  std::vector<double> nic_s;  // by host
  std::vector<double> path_s;
  std::vector<double>
      boundary_s;           // by stage but the last: the largest of its output on any one resource
  double memory_bytes = 0;  // of the stage that needs most
};

// Charges placements. `graph`, `family` and `cluster` must outlive it.
class PlacementCosts {
 public:
  // REQUIRES: `family` holds cuts of `graph` as SortGraph sorts it; CheckCluster(cluster) is OK;
  // `memory` is by node.
  PlacementCosts(const LayerGraph& graph, const CutFamily& family, const Cluster& cluster,
                 const std::vector<LayerMemory>& memory, const MemoryRule& rule);

  const CutFamily& family() const { return family_; }
  const Cluster& cluster() const { return cluster_; }

  // REQUIRES: the stages cover all layers, and no worker has two.
  PlacementCharge Charge(const ClusterPlacement& placement) const;

  // Charges one stage by itself, with `behind` workers in it and the stages behind. Returns nullopt if it does not fit
  // into the memory of its workers.
  std::optional<StageCharge> ChargeStage(const PlacedStage& stage, int behind) const;

  // Holds what the rest of the resources have to do for a minibatch, as stages are put before others.
  struct Loads {
    std::vector<double> worker_link_s;
    std::vector<double> nic_s;
    std::vector<double> path_s;
    double most_s = 0;
  };
  Loads NoLoads() const;
  // Adds the load of averaging the gradients of `stage`.
  void AddSync(const PlacedStage& stage, Loads& loads) const;
  // Adds the load of what crosses between two stages.
  void AddBoundary(const PlacedStage& stage, const PlacedStage& next, Loads& loads) const;

  // Returns the bytes that a stage needs on each of its workers, without a limit of memory.
  double StageMemoryBytes(const PlacedStage& stage, int behind, bool recomputes) const;

 private:
  // Holds sums by cut over the layers inside.
  struct Inside {
    std::vector<double> forward_s;
    std::vector<double> weight_bytes;
    std::vector<double> state_bytes;
    std::vector<double> stash_bytes;
  };

  // These add bytes in one direction; see placement.cc.
  void AddHostBytes(int host, double bytes, Loads& loads) const;
  void AddPathBytes(int from, int to, double bytes, Loads& loads) const;
  void AddWorkerBytes(int worker, double bytes, Loads& loads) const;
  double SlowestSpeed(const PlacedStage& stage) const;
  double InputBytes(int cut) const { return cut == 0 ? 0.0 : family_.live_bytes(cut); }

  const CutFamily& family_;
  const Cluster& cluster_;
  const MemoryRule rule_;
  Inside inside_;
  std::vector<int> path_of_;  // by pair of hosts; -1: none
};

}  // namespace penstock
