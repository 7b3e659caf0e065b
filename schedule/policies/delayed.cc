// double-buffer and vertical-sync: both passes read a version of a fixed age, the same on every stage.
//
// The n-th forward of a range (from 0) belongs to update n / `batch`; it reads the version that was there before
// the `lag` updates before that one, max(0, n / batch - lag) of the range, wherever the stage is by then.
// With a step as the batch and a lag of 1 this is PipeDream-2BW's double buffering (arXiv 2006.09503); with batches of 1 and
// a lag of the depth it is PipeDream's vertical sync (SOSP 2019).
#include <algorithm>

#include "schedule/weight_policy.h"

namespace penstock {
namespace {

constexpr absl::string_view kForm = "delayed:<microbatches>:<versions>";

int64_t ReadsDelayed(const StageVersions& stage) {
  const WeightPolicy& policy = stage.policy;
  return stage.first_version + std::max<int64_t>(0, stage.forwards / policy.batch - policy.lag);
}

int64_t LagAndOne(const WeightPolicy& policy, int64_t, int64_t) { return policy.lag + 1; }

void AppendDelayedState(const StageVersions& stage, std::vector<int64_t>& state) {
  const WeightPolicy& policy = stage.policy;
  state.push_back(stage.forwards % policy.batch);
  state.push_back(std::min(stage.forwards / policy.batch, policy.lag));
  state.push_back(stage.current - ReadsDelayed(stage));
}

}  // namespace

constinit const Weights Weights::kDoubleBuffer = {
    .name = "double-buffer",
    .form = kForm,
    .fills_pipeline = true,
    .refusal = [](bool updates_each_microbatch) -> absl::string_view {
      return updates_each_microbatch
                 ? "double buffers need an update per step, not one per microbatch"
                 : "";
    },
    .set_numbers =
        [](const UpdateShape& shape, WeightPolicy& policy) {
          policy.batch = shape.microbatches;
          policy.lag = 1;
        },
    .old_reads = OldReads::kOneAnUpdate,
    .next_forward = ReadsDelayed,
    .backward = ForwardsToo,
    .keeps_from = ReadsDelayed,
    .versions_max = LagAndOne,
    .append_state = AppendDelayedState};

constinit const Weights Weights::kVerticalSync = {
    .name = "vertical-sync",
    .form = kForm,
    .refusal = [](bool updates_each_microbatch) -> absl::string_view {
      return updates_each_microbatch
                 ? ""
                 : "vertical sync needs an update per microbatch, not one per step";
    },
    .set_numbers =
        [](const UpdateShape& shape, WeightPolicy& policy) {
          policy.lag = shape.stages - 1;
          if (policy.lag == 0) policy = kStashedVersions;  // the same: nothing is late
        },
    .old_reads = OldReads::kOneAMicrobatch,
    .next_forward = ReadsDelayed,
    .backward = ForwardsToo,
    .keeps_from = ReadsDelayed,
    .versions_max = LagAndOne,
    .append_state = AppendDelayedState};

}  // namespace penstock
