#include "planner/job/searched_order.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "job/keys/check_fields.h"
#include "job/keys/limits.h"
#include "job/open_job.h"
#include "planner/cost/run_memory.h"
#include "planner/job/assign.h"
#include "schedule/search.h"
#include "schedule/text.h"
#include "schedule/warm_up.h"

namespace penstock {
namespace {

constexpr int64_t kMovesByEstimate = 10'000;
constexpr int64_t kMovesTimesPasses = 10'000'000;

// By worker: of all its stages.
std::vector<int64_t> ActivationsMax(OrderRoom room, const Topology& topology) {
  const std::vector<int64_t> warm_ups =
      WarmUpForwards(ReplicasOf(topology), ReplicasMeet::kAtSteps);
  std::vector<int64_t> room_of(topology.workers);
  for (const StageWiring& row : topology.table) {
    room_of[row.worker.value] += warm_ups[row.place] + 1;
  }
  if (room == OrderRoom::kOfOneFOneB) return room_of;
  const int64_t most = *std::max_element(room_of.begin(), room_of.end());
  return std::vector<int64_t>(topology.workers, room == OrderRoom::kTwice ? 2 * most : most);
}

// Per stage, for a microbatch; the stages together take a second, as only their ratios count.
SimulationCosts EstimatedTimes(const ModelGraph& model, const std::vector<LayerRange>& layers) {
  SimulationCosts costs;
  double all = 0;
  for (const LayerRange& range : layers) {
    StageCosts& stage = costs.stages.emplace_back(StageCosts{0, 0, 0, 0});
    for (int layer = range.first; layer < range.end(); ++layer) {
      const LayerCost cost = EstimateCost(model, model.layers[layer]);
      stage.forward_s += cost.forward_flops;
      stage.backward_input_s += cost.backward_input_flops;
      stage.backward_weight_s += cost.backward_weight_flops;
    }
    all += stage.forward_s + stage.backward_input_s + stage.backward_weight_s;
  }
  for (StageCosts& stage : costs.stages) {
    for (double* time : {&stage.forward_s, &stage.backward_input_s, &stage.backward_weight_s}) {
      *time /= std::max(all, 1.0);
    }
  }
  return costs;
}

}  // namespace

absl::StatusOr<Schedule> SearchOrder(const ResolvedJob& draft, const ScheduleOptions& options,
                                     const SimulationCosts& costs, const OrderSearch& search) {
  const int64_t passes = kSearchedSteps * draft.microbatches * options.topology.depth() * 3;
  SearchOptions asked = {
      .costs = costs,
      .activations_max = ActivationsMax(search.room, options.topology),
      .moves = std::min(search.moves, kMovesTimesPasses / passes),
      .steps = kSearchedSteps,
      .channel_capacity = static_cast<int32_t>(ChannelCapacityOf(options.topology))};
  // A forward that is done again comes with the backward.
  Topology topology = options.topology;
  for (const StageId stage : topology.Recomputing()) {
    StageCosts& cost = asked.costs.stages[stage.value];
    cost.backward_input_s += cost.recompute_s.value_or(cost.forward_s);
  }
  topology.Recompute({});
  PENSTOCK_ASSIGN_OR_RETURN(SearchResult found,
                            SearchSchedule(topology, draft.microbatches, asked));
  return std::move(found.schedule);
}

ResolvedJob InOrder(const ResolvedJob& draft, Schedule order) {
  ResolvedJob job = draft;
  job.method = &SearchedMethod();
  job.listed = std::make_shared<const Schedule>(std::move(order));
  return job;
}

absl::Status SetOrder(const Schedule& order, v1::JobSpec& spec) {
  std::string text = PrintSchedule(order);
  if (text.size() > kScheduleBytesMax) {
    return InvalidKey("pipeline.method",
                      absl::StrCat("is searched, but the order that was found takes ", text.size(),
                                   " bytes to write, and a job holds ", kScheduleBytesMax,
                                   "; fewer microbatches would do"));
  }
  spec.mutable_pipeline()->set_method(std::string(SearchedMethod().name));
  spec.mutable_pipeline()->set_schedule(std::move(text));
  return absl::OkStatus();
}

absl::Status FillEstimatedOrder(int64_t stages, v1::JobSpec& spec) {
  PENSTOCK_ASSIGN_OR_RETURN(const ResolvedJob draft, ResolveSubmitted(spec));
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<LayerRange> layers, SplitLayers(draft, stages));
  const ScheduleOptions options = ScheduleOptionsOf(draft, TopologyOf(draft, stages), layers);
  PENSTOCK_ASSIGN_OR_RETURN(
      const Schedule order,
      SearchOrder(draft, options,
                  EstimatedTimes(draft.model, LayersOfStages(options.topology, layers)),
                  {.room = OrderRoom::kOfOneFOneB, .moves = kMovesByEstimate}));
  return SetOrder(order, spec);
}

}  // namespace penstock
