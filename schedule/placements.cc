#include "schedule/placements.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace penstock {
namespace {

WorkerId RoundTheWorkers(int32_t stage, int32_t workers) { return WorkerId(stage % workers); }
WorkerId DownAndUp(int32_t stage, int32_t workers) {
  return WorkerId(std::min(stage, 2 * workers - 1 - stage));
}

// The needs of each placement, by Placement.
struct PlacementRow {
  int32_t per_worker_min;  // stages
  int32_t per_worker_max;  // 0: any number, the same on each
  absl::string_view expected;
  WorkerId (*worker_of)(int32_t stage, int32_t workers);
};
constexpr PlacementRow kPlacements[] = {
    {1, 1, "one stage on each worker", RoundTheWorkers},
    {2, 0, "the same number of stages, two or more, on each worker", RoundTheWorkers},
    {2, 2, "two stages on each worker", DownAndUp},
    {1, 1, "one stage of each replica on each worker", RoundTheWorkers},
    {1, 0, "", RoundTheWorkers},  // CheckRoundTrip
    {1, 0, "", nullptr},
};

const PlacementRow& RowOf(Placement placement) {
  return kPlacements[static_cast<size_t>(placement)];
}

absl::Status CheckRoundTrip(int32_t stages, int32_t workers, int64_t microbatches,
                            int32_t stages_per_forward) {
  const int32_t slots = SlotsOfRoundTrip(stages, stages_per_forward);
  if (slots < workers) {
    int32_t enough = stages + 1;
    while (SlotsOfRoundTrip(enough, stages_per_forward) < workers) ++enough;
    return absl::InvalidArgumentError(
        absl::StrCat(stages, " stages make ", slots,
                     " slots, the way there and back, which are not enough to go round ", workers,
                     " workers; ", enough, " stages or ", slots, " workers would do"));
  }
  if (microbatches < workers ? microbatches >= 1 : microbatches % workers == 0) {
    return absl::OkStatus();
  }
  const int64_t below = microbatches / workers * workers;
  return absl::InvalidArgumentError(absl::StrCat(
      "needs fewer microbatches in a step than the ", workers,
      " workers, or a multiple of them, so that each has as many in every round; got ",
      microbatches, "; ", std::max<int64_t>(1, below), " or ", below + workers, " would do"));
}

std::vector<WorkerId> WorkersOfStages(Placement placement, int32_t stages, int32_t workers) {
  std::vector<WorkerId> worker_of;
  worker_of.reserve(stages);
  for (int32_t s = 0; s < stages; ++s) worker_of.push_back(WorkerAt(placement, s, workers));
  return worker_of;
}

// Without stages there is nothing, which CheckTopology refuses.
Topology Build(const TopologyShape& shape) {
  return shape.worker_of.empty() ? Topology() : Wire(shape).value();
}

}  // namespace

int32_t StagesPerWorkerMin(Placement placement) { return RowOf(placement).per_worker_min; }

WorkerId WorkerAt(Placement placement, int32_t stage, int32_t workers) {
  return RowOf(placement).worker_of(stage, workers);
}

absl::Status CheckPlacement(Placement placement, int32_t stages, int32_t workers,
                            int64_t microbatches_per_step, int32_t stages_per_forward) {
  PENSTOCK_CHECK(placement != Placement::kListed);
  const auto refuse = [&](absl::string_view rule) {
    return absl::InvalidArgumentError(absl::StrCat("expected ", rule, ", but the plan has ", stages,
                                                   " stages on ", workers, " workers"));
  };
  if (stages < 1 || workers < 1) return refuse("at least one stage and one worker");
  if (placement == Placement::kRoundTrip) {
    return CheckRoundTrip(stages, workers, microbatches_per_step, stages_per_forward);
  }
  const PlacementRow& row = RowOf(placement);
  const int32_t each = stages / workers;
  const bool fits = stages % workers == 0 && each >= row.per_worker_min &&
                    (row.per_worker_max == 0 || each <= row.per_worker_max);
  return fits ? absl::OkStatus() : refuse(row.expected);
}

absl::StatusOr<Topology> Place(Placement placement, int32_t stages, int32_t workers,
                               int64_t microbatches_per_step, std::optional<int32_t> replicas,
                               int32_t stages_per_forward) {
  if (replicas.value_or(1) < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected at least one replica, but the plan has ", *replicas));
  }
  PENSTOCK_RETURN_IF_ERROR(
      CheckPlacement(placement, stages, workers, microbatches_per_step, stages_per_forward));
  switch (placement) {
    case Placement::kReplicas:
      return ReplicatedPipelines(stages, replicas.value_or(workers));
    case Placement::kRoundTrip:
      return RoundTripPipelines(stages, workers, microbatches_per_step, stages_per_forward);
    default:
      return PipelineOn(WorkersOfStages(placement, stages, workers));
  }
}

Topology StraightPipeline(int32_t stages) { return LoopedPipeline(stages, stages); }

Topology LoopedPipeline(int32_t stages, int32_t workers) {
  return PipelineOn(WorkersOfStages(Placement::kLooped, stages, workers));
}

Topology VPipeline(int32_t workers) {
  return PipelineOn(WorkersOfStages(Placement::kV, 2 * workers, workers));
}

Topology PipelineOn(std::vector<WorkerId> worker_of) {
  return Build({.worker_of = std::move(worker_of)});
}

Topology ReplicatedPipelines(int32_t depth, int32_t pipelines) {
  Topology topology =
      Build({.worker_of = WorkersOfStages(Placement::kReplicas, depth * pipelines, depth),
             .pipelines = pipelines});
  topology.groups = GroupsOfParts(topology);
  return topology;
}

Topology ReplicatedStages(absl::Span<const int32_t> replicas, ReduceGroup::Operation operation) {
  const int32_t stages = std::accumulate(replicas.begin(), replicas.end(), 0);
  Topology topology = Build({.worker_of = WorkersOfStages(Placement::kStraight, stages, stages),
                             .replicas = {replicas.begin(), replicas.end()}});
  topology.groups = GroupsOfParts(topology, operation);
  return topology;
}

Topology PipelinesBesideEachOther(Placement placement, int32_t stages, int32_t workers,
                                  int32_t replicas, ReduceGroup::Operation operation) {
  std::vector<WorkerId> worker_of;
  for (const WorkerId worker : WorkersOfStages(placement, stages, workers)) {
    for (int32_t i = 0; i < replicas; ++i) worker_of.emplace_back(worker.value * replicas + i);
  }
  Topology topology = Build(
      {.worker_of = std::move(worker_of), .replicas = std::vector<int32_t>(stages, replicas)});
  topology.groups = GroupsOfParts(topology, operation);
  return topology;
}

Topology::Rounds RoundsOf(int32_t workers, int64_t step) {
  return {.microbatches = std::min<int64_t>(workers, step), .step = step};
}

int32_t SlotsOfRoundTrip(int32_t parts, int32_t stages_per_forward) {
  return (parts - 1 + stages_per_forward - 1) / stages_per_forward + parts;
}

int32_t RoundTripsOf(int32_t slots, int32_t workers, int64_t step) {
  const int64_t rounds = step / RoundsOf(workers, step).microbatches;
  return static_cast<int32_t>(std::min<int64_t>(rounds, workers / std::gcd(slots, workers)));
}

Topology RoundTripPipelines(int32_t parts, int32_t workers, int64_t step,
                            int32_t stages_per_forward) {
  const int32_t slots = SlotsOfRoundTrip(parts, stages_per_forward);
  const int32_t pipelines = RoundTripsOf(slots, workers, step);
  std::vector<WorkerId> worker_of;
  for (int32_t first = 0; first < pipelines * slots; first += slots) {
    for (int32_t part = 0; part + 1 < parts; ++part) {
      worker_of.push_back(
          WorkerAt(Placement::kRoundTrip, first + part / stages_per_forward, workers));
    }
    for (int32_t slot = slots - parts; slot < slots; ++slot) {
      worker_of.push_back(WorkerAt(Placement::kRoundTrip, first + slot, workers));
    }
  }
  Topology topology = Build({.worker_of = std::move(worker_of),
                             .pipelines = pipelines,
                             .rounds = RoundsOf(workers, step)});
  topology.groups = GroupsOfParts(topology);
  return topology;
}

absl::StatusOr<Topology> StreamWeights(const Topology& round_trip, bool in_file) {
  TopologyShape shape = {.pipelines = round_trip.pipelines,
                         .rounds = round_trip.rounds,
                         .streams_weights = true,
                         .weights_in_file = in_file};
  for (const StageWiring& row : round_trip.table) shape.worker_of.push_back(row.worker);
  return Wire(shape);
}

}  // namespace penstock
