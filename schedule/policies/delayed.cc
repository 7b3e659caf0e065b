// double-buffer and vertical-sync: both passes read a version of a fixed age, the same on every stage.
//
// Microbatch k of a range (from 0) belongs to update k / `batch`; it reads the version that was there before
// the `lag` updates before that one, max(0, k / batch - lag) of the range, wherever the stage is by then.
// With a step as the batch and a lag of 1 this is PipeDream-2BW's double buffering (arXiv 2006.09503); with batches of 1 and
// a lag of the depth it is PipeDream's vertical sync (SOSP 2019).
//
// With replicas of stages the updates of a step are still the same everywhere, and so is double buffering. Vertical sync
// is what the first stage reads, whose updates hold one microbatch of each of its replicas (the batch), and which is its
// warm-up behind (the lag). Another stage, whose updates hold u microbatches, has no such version if its number of
// replicas is another one. There a microbatch reads the newest version that knows of no microbatch which the first
// stage's does not: that of max(0, k / batch - lag) * batch / u updates. All microbatches of one update of a stage read
// the same, that of the first of them, so that its replicas agree.
#include <algorithm>

#include "schedule/weight_policy.h"

namespace penstock {
namespace {

constexpr absl::string_view kForm = "delayed:<microbatches>:<versions>";

int64_t ReadsDelayed(const StageVersions& stage) {
  const WeightPolicy& policy = stage.policy;
  const int64_t update = stage.MicrobatchOf(stage.forwards) / policy.batch;
  const int64_t known = std::max<int64_t>(0, update - policy.lag) * policy.batch;  // microbatches
  return stage.first_version + known / stage.update;
}

int64_t LagAndOne(const WeightPolicy& policy, int64_t, int64_t) { return policy.lag + 1; }

void AppendDelayedState(const StageVersions& stage, std::vector<int64_t>& state) {
  const WeightPolicy& policy = stage.policy;
  const int64_t microbatch = stage.MicrobatchOf(stage.forwards);
  state.push_back(microbatch % policy.batch);
  state.push_back(microbatch % stage.update);
  state.push_back(std::min(microbatch / policy.batch, policy.lag));
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
          policy.batch = shape.replicas;
          policy.lag = shape.warm_up;
          if (policy.lag == 0) policy = kStashedVersions;  // the same: nothing is late
        },
    .old_reads = OldReads::kOneAMicrobatch,
    .next_forward = ReadsDelayed,
    .backward = ForwardsToo,
    .keeps_from = ReadsDelayed,
    .versions_max = LagAndOne,
    .append_state = AppendDelayedState};

}  // namespace penstock
