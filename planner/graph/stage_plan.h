// StagePlan: a layer graph cut into replicated stages, with what each costs and what binds.
//
// Plain values, made by planner/graph/stage_planner.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/graph/cost_model.h"
#include "planner/graph/layer_graph.h"

namespace penstock {

// Names what the period is made of where it is longest.
enum class Binding : uint8_t { kCompute, kSync, kLink, kShared };
const char* NameOf(Binding binding);  // "compute", "sync", "link", "shared"

// Names what several stages or links use together, on a cluster: a host's NIC, the path between two hosts, a worker's
// link to the others of its host.
struct SharedResource {
  std::string name;
  double busy_s = 0;  // for one minibatch
};

struct PlannedStage {
  std::vector<int> nodes;  // of the layer graph, in topological order; never empty
  int replicas = 1;        // of it at its level
  int workers = 1;         // of all replicas together

  double work_s = 0;  // of a minibatch on one worker
  double parameter_bytes = 0;
  double input_bytes = 0;   // over the cut before it, tensors for later stages included
  double output_bytes = 0;  // over the cut behind it

  // The cost model charges these for a minibatch, in its period.
  double compute_s = 0;
  double sync_s = 0;
  double input_s = 0;   // the link before it
  double output_s = 0;  // the link behind it
  double stage_s = 0;   // compute and sync as the model joins them

  // On a cluster (planner/graph/cluster.h), these are the workers of its replicas, in their order.
  std::vector<int> placed_on;
  double memory_bytes = 0;  // on each of them
  int in_flight = 0;        // minibatches of a replica
  bool recomputes = false;  // its forwards, to fit into memory
  // Where tensors are chosen one by one (planner/dawnpiper/), those that are not kept on the worker.
  int recomputed_tensors = 0;
  int swapped_tensors = 0;

  // One replica runs as this pipeline of the level below, of `workers / replicas` workers. It is empty at the lowest
  // level.
  std::vector<PlannedStage> inner;

  double period_s() const;  // the largest of stage_s, input_s, output_s
};

struct StagePlan {
  std::string model;  // of costs, its name
  std::vector<PlannedStage> stages;
  double period_s = 0;
  int workers_used = 0;

  int binding_stage = 0;  // the first of those that take the whole period
  Binding binding = Binding::kCompute;
  std::vector<SharedResource> shared;  // on a cluster, those that are used, the busiest first

  // No plan under the model is faster. `is_optimal` says that none is by more than 1e-9 of it.
  double lower_bound_s = 0;
  bool is_optimal = false;
  bool in_time = true;  // else the search was cut short by its budget
  int cuts_examined = 0;

  // These are for comparison under the same model.
  double one_worker_s = 0;
  double data_parallel_s = 0;  // the whole model on every worker
};

// Returns "7-1", or with levels "3x(2-1-1) + 1x(1-1-1-1)".
std::string ReplicasText(const StagePlan& plan);

// Explains the plan in one paragraph for people: the period, the stage and the part of its cost that set it, and how
// far from the bound that is.
std::string Explain(const LayerGraph& graph, const StagePlan& plan);

}  // namespace penstock
