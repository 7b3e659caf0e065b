// drawn: both passes read one of the last `lag` + 1 versions, sampled, and the update of a microbatch changes one
// stage, sampled too (randomized pipeline descent, block_draws.h).
//
// A version counts the microbatches that the whole model has seen. If the draw of a microbatch is another stage, its
// UPDATE makes a version that is the same weights as the one before: the gradient is dropped, and no memory is taken.
// The versions that may be read, and so the actions that are allowed, do not depend on the samples.
#include <algorithm>

#include "schedule/block_draws.h"
#include "schedule/weight_policy.h"

namespace penstock {
namespace {

BlockDraws DrawsOf(const StageVersions& stage) {
  return {stage.policy.seed, stage.policy.lag, stage.places};
}

int64_t NewestDrawn(const StageVersions& stage) {
  const int64_t k = stage.forwards;
  return stage.first_version + k - DrawsOf(stage).DelayMin(stage.place, k);
}

// Microbatches without an update read no older one.
int64_t OldestDrawn(const StageVersions& stage) {
  return std::max(stage.first_version, stage.current - stage.policy.lag);
}

}  // namespace

constinit const Weights Weights::kDrawn = {
    .name = "drawn",
    .form = "drawn:<versions>:<seed>",
    .set_numbers =
        [](const UpdateShape& shape, WeightPolicy& policy) {
          policy.lag = shape.delta.value_or(PipelineDelay(shape.stages));
          policy.seed = shape.seed;
        },
    .old_reads = OldReads::kOneAMicrobatch,
    .draws = true,
    .next_forward = NewestDrawn,
    .forward =
        [](const StageVersions& stage, int64_t microbatch) {
          const int64_t k = stage.forwards;
          return stage.first_version + k - DrawsOf(stage).DelayOf(microbatch, stage.place, k);
        },
    .backward = ForwardsToo,
    .keeps_from = OldestDrawn,
    .updates = [](const StageVersions& stage,
                  int64_t microbatch) { return DrawsOf(stage).StageOf(microbatch) == stage.place; },
    .versions_max = [](const WeightPolicy& policy, int64_t, int64_t) { return policy.lag + 1; },
    // This is what is allowed from here, not what was or will be sampled, nor which weights are the same.
    .append_state =
        [](const StageVersions& stage, std::vector<int64_t>& state) {
          state.push_back(std::min<int64_t>(stage.forwards, stage.places - 1 - stage.place));
          state.push_back(stage.first_version + stage.forwards - stage.current);
        }};

}  // namespace penstock
