#include "planner/graph/cost_model.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace penstock {

StageCostModel PipeDream2018Model(double bytes_per_second) {
  return {.name = "pipedream-2018",
          .sync = SyncRule::kMax4,
          .link = LinkRule::kWhole,
          .bytes_per_second = bytes_per_second,
          .uses_all_workers = true};
}

StageCostModel PipeDream2019Model(double bytes_per_second) {
  return {.name = "pipedream-2019",
          .sync = SyncRule::kMax2,
          .link = LinkRule::kWhole,
          .bytes_per_second = bytes_per_second,
          .uses_all_workers = true};
}

StageCostModel PipeDreamReleasedModel(double bytes_per_second, bool charge_links) {
  return {.name = "pipedream-released",
          .sync = SyncRule::kSum4,
          .link = charge_links ? LinkRule::kOwnReplicas : LinkRule::kFree,
          .bytes_per_second = bytes_per_second,
          .uses_all_workers = true};
}

StageCostModel ConsistentModel(double bytes_per_second) {
  return {.name = "consistent", .bytes_per_second = bytes_per_second};
}

absl::Status CheckCostModel(const StageCostModel& model) {
  if (std::isfinite(model.bytes_per_second) && model.bytes_per_second > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the bandwidth must be a positive number of bytes per second, got ", model.bytes_per_second));
}

}  // namespace penstock
