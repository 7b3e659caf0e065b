#include "schedule/recorded_order.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace penstock {

int32_t RecordedOrder::workers() const {
  int32_t workers = 0;
  for (const Stage& stage : stages) workers = std::max(workers, stage.worker.value + 1);
  return workers;
}

std::vector<StageId> RecordedOrder::StagesOf(WorkerId worker) const {
  std::vector<StageId> ids;
  for (size_t id = 0; id < stages.size(); ++id) {
    if (stages[id].worker == worker) ids.emplace_back(static_cast<int32_t>(id));
  }
  return ids;
}

std::vector<std::vector<StageId>> RecordedOrder::Places() const {
  std::vector<std::vector<StageId>> places;
  for (size_t id = 0; id < stages.size(); ++id) {
    const bool replica = id > 0 && stages[id].first_layer == stages[id - 1].first_layer &&
                         stages[id].layers == stages[id - 1].layers;
    if (!replica) places.emplace_back();
    places.back().emplace_back(static_cast<int32_t>(id));
  }
  return places;
}

int32_t RecordedOrder::ReplicasOn(WorkerId worker) const {
  for (const std::vector<StageId>& place : Places()) {
    for (const StageId stage : place) {
      if (stages[stage.value].worker == worker) return static_cast<int32_t>(place.size());
    }
  }
  return 1;
}

absl::Status Continue(const RecordedOrder& later, RecordedOrder& order) {
  if (later.method != order.method || later.weights != order.weights ||
      later.microbatches != order.microbatches || later.stages != order.stages) {
    return absl::InvalidArgumentError(
        "is of another job than the one before: method, weights, microbatches and stages must be "
        "the "
        "same");
  }
  const int64_t end = order.ranges.empty() ? 0 : order.ranges.back().microbatches.end();
  const int64_t first = later.ranges.empty() ? end : later.ranges.front().microbatches.first;
  if (first != end) {
    return absl::InvalidArgumentError(
        absl::StrCat("begins at microbatch ", first, ", but the one before ends before microbatch ",
                     end, "; give the orders of all runs, in their order"));
  }
  order.ranges.insert(order.ranges.end(), later.ranges.begin(), later.ranges.end());
  return absl::OkStatus();
}

}  // namespace penstock
