// HostBound: a period that no placement beats, because the workers of a host share its NIC.
//
// Let x be the share of minibatches that a host takes through a layer: the part of the stage's replicas that it has.
// Under planner/graph/placement.h its NIC then carries, for one minibatch and each way, at least
//
//   2 P x (1 - x)    for a layer with P bytes of parameters: k of r replicas send k (r - k) parts of 2 P / r^2
//   O |x - x'|       over a cut of O bytes, where the shares on its two sides are x and x'
//
// and its workers have x C seconds of work for a layer of C. Cut every host's shares at all heights u between 0 and 1:
// {x > u} falls into runs of consecutive layers. A run over the layers I carries O at each of its ends, but for the ends
// of the model, and 2 P (1 - x) for each layer inside. The shares of all hosts add up to 1 for every layer, so the runs
// of all hosts and heights cover every layer with measure 1. Weights on intervals of a line that cover every point with
// measure 1 are a mean of partitions of the line (the matrix of consecutive ones is totally unimodular). So all NICs
// together carry no less than the cheapest partition, if every run is charged what it costs at least:
//
//   O at its ends + 2 (P of I - the largest sum of P x over I that a host has work for)
//
// With the period T a host has T times its workers' speed for work, so the last term is a fractional knapsack, bounded
// from above by its dual. The larger T, the cheaper the partition and the more the NICs can carry: bisection finds the
// least period for which they can.
//
// Pure functions.
#pragma once

#include "planner/graph/cluster.h"
#include "planner/graph/cuts.h"
#include "planner/graph/layer_graph.h"
#include "planner/graph/time_budget.h"

namespace penstock {

// Returns a period below that of every placement of the graph on the cluster, at most `known_s` and to 0.1 % of it;
// 0 if NICs do not limit, or if the budget is spent before anything is proven.
// REQUIRES: `family` holds all cuts of `graph` as SortGraph sorts it; CheckCluster(cluster) is OK; `known_s` is finite.
double HostBound(const LayerGraph& graph, const CutFamily& family, const Cluster& cluster,
                 double known_s, TimeBudget& budget);

}  // namespace penstock
