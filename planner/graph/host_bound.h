// HostBound: a period that no placement beats, because the workers of a host share its NIC.
//
// Let x be the share of minibatches that a host takes through a layer: the part of the stage's replicas that it has.
// Under planner/graph/placement.h its NIC then carries, for one minibatch and each way, at least
//
//   2 P x (1 - x)    for a layer with P bytes of parameters: k of r replicas send k (r - k) parts of 2 P / r^2
//   O |x - x'|       over a cut of O bytes, where the shares on its two sides are x and x'
//
// and its workers have x C seconds of work for a layer of C. Cut a host's shares at all heights u between 0 and 1:
// {x > u} falls into runs of consecutive layers. A run of layers I carries O at each of its ends, but for the ends of the
// model, and 2 P (1 - x) for each layer inside: over all heights that adds up to the above. So a run carries at least
//
//   c(I) = O at its ends + 2 (P of I - the largest sum of P x over I that a host has work for, with x <= X)
//
// where X of a layer is the most that x can be. With a period T a host has T times its workers' speed for work, which
// makes the last term a fractional knapsack; its dual bounds it from above, at any price of work. Two things follow.
//
//   One host     The runs around a layer at the heights below x carry x min c(I) or more, over all I around it, and a NIC
//                carries T times its bandwidth. That bounds X, and so c(I) again, until nothing changes.
//   All hosts    The shares of all hosts add up to 1 for every layer, so their runs cover every layer with measure 1.
//                Such weights on intervals of a line are a mean of partitions of the line, since the matrix of intervals
//                is totally unimodular. So all NICs together carry no less than the cheapest partition, by c(I).
//
// The larger T, the less must be carried and the more can be: bisection finds the least period for which NICs can do it.
// Stages of graphs with branches lie along some chain of cuts; the cheapest partition is that of the cheapest chain.
//
// Pure functions.
#pragma once

#include "planner/graph/cluster.h"
#include "planner/graph/cuts.h"
#include "planner/graph/layer_graph.h"
#include "planner/graph/time_budget.h"

namespace penstock {

// Returns a period that no placement of the graph on the cluster is below, to 0.1 % of `known_s`, which it is not above
// either; 0 if NICs have no limit or nothing is proven before the budget is spent. A guess takes O(cuts^2 log hosts)
// steps, some ten times over.
// REQUIRES: `family` holds all cuts of `graph` as SortGraph sorts it; CheckCluster(cluster) is OK; `known_s` is finite.
double HostBound(const LayerGraph& graph, const CutFamily& family, const Cluster& cluster,
                 double known_s, TimeBudget& budget);

// Returns whether there are several hosts with workers, and their NICs have a limit: otherwise HostBound is 0.
bool NicsAreLimited(const Cluster& cluster);

}  // namespace penstock
