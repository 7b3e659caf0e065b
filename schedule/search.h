// SearchSchedule: the best static order of one training step that a search finds for measured costs.
//
// Every worker keeps its stages, all microbatches of the step pass all of them, and the pipeline drains at
// the end (weights of a single version, staleness 0). What is free is the order in which each worker runs
// its forwards, input gradients and weight gradients; what is minimised is the length of the step, or of
// several that run on from one to the next, as those between two cuts do: a worker that is done begins the next one.
//
// Places of the pipeline may have replicas (topology.h), each of which has an order of its own.
//
// The search starts from the synchronous methods of the catalog and from list scheduling under many rules,
// and improves the best of them by local search, under a limit of activations on each worker. It ends when
// its budget of moves is spent or its bound is reached. A search of the same kind, over the same three
// passes, finds the schedules of Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024, arXiv 2401.10241.
//
// The result depends on the arguments alone, on any machine. It runs as a custom schedule
// (ScheduleOptions::listed): the caller passes the order on as text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "schedule/schedule.h"
#include "schedule/simulate.h"

namespace penstock {

struct SearchOptions {
  SimulationCosts costs;
  // By worker: microbatches between F and W at most, over all its stages. Empty: as many on every worker as the one keeps
  // that keeps most with 1F1B. Without replicas that is the first, which keeps as many as there are stages.
  std::vector<int64_t> activations_max;
  // The moves of the local search, which takes time in proportion to them and to the passes. Empty: 200,000, and fewer
  // for steps of more than 3,000 passes, so that a search takes seconds. 0: none.
  std::optional<int64_t> moves;
  uint64_t seed = 0;
  int64_t steps = 1;                            // whose length counts; each runs in the same order
  int32_t channel_capacity = kChannelCapacity;  // messages
};

struct SearchResult {
  Schedule schedule;                // "searched": one step from microbatch 0 on, complete
  double makespan_s = 0.0;          // of all steps
  double bound_s = 0.0;             // no order is shorter
  std::string catalog_method;       // the best synchronous one within the limits; empty: none
  double catalog_makespan_s = 0.0;  // its length, gradients sent early or not; with replicas: early

  // By how much the bound allows a shorter step: 0.02 is 2 %.
  double gap() const { return bound_s > 0 ? makespan_s / bound_s - 1.0 : 0.0; }
};

// The passes (F, I, W of every stage and microbatch, which has one replica of each) of the steps that are searched.
inline constexpr int64_t kSearchPassesMax = 100'000;
// The microbatches of a step that this leaves, where `places` are the stages of the pipeline, each with all its replicas.
constexpr int64_t SearchMicrobatchesMax(int64_t places, int64_t steps) {
  constexpr int64_t kPassesOfAMicrobatch = 3;
  return kSearchPassesMax / kPassesOfAMicrobatch / places / steps;
}

// The times leave out the groups of `topology` (REDUCE) and a gradient norm, so that replicas do not wait for each other
// at the end of a step. They also leave out limits of network cards, and a gradient takes the time of the activation
// on the same link. The schedule has those groups that are replicas of a place; their gradients are added up.
//
// Errors: InvalidArgument (topology, several pipelines, stages that recompute, costs, limits that
// are not one for each worker or less than the stages it holds, a step of too many passes or of a
// century, a number of microbatches that the replicas do not share evenly).
absl::StatusOr<SearchResult> SearchSchedule(const Topology& topology, int64_t microbatches,
                                            const SearchOptions& options);

}  // namespace penstock
