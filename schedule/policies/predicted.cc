// predicted and spectrain: passes read the current weights moved ahead to an update that is still to come.
//
// With `predicted`, as XPipe does it (arXiv 1911.04610), the n-th forward of a range aims at the version that its
// own update will replace, n / `batch` of the range: on 1F1B it is S-1-s backwards away on stage s, and when the backward
// comes it is the current one. With `spectrain` (arXiv 1809.02839) all stages aim at one moment, that of the
// first stage's update: until then stage s makes those of another floor(s/2) microbatches, one in two slots. So single
// microbatches are moved by floor(s/2) + S-1-s updates in the forward and by floor(s/2) in the backward. These
// numbers are derived from the order of 1F1B here; those of the papers count their own schedules.
#include "schedule/weight_policy.h"

namespace penstock {
namespace {

int64_t OwnUpdate(const StageVersions& stage, int64_t forward, int64_t) {
  return stage.first_version + forward / stage.policy.batch;
}

int64_t FirstStagesUpdate(const StageVersions& stage, int64_t forward, int64_t version) {
  return OwnUpdate(stage, forward + stage.stage / 2, version);
}

void BatchOfUpdate(const UpdateShape& shape, WeightPolicy& policy) {
  policy.batch = shape.microbatches;
}

void AppendAim(const StageVersions& stage, std::vector<int64_t>& state) {
  state.push_back(stage.forwards % stage.policy.batch);
  state.push_back(stage.current - stage.policy.weights->aim(stage, stage.forwards, stage.current));
}

}  // namespace

constinit const Weights Weights::kPredicted = {.name = "predicted",
                                               .form = "predicted:<microbatches>",
                                               .set_numbers = BatchOfUpdate,
                                               .moves = true,
                                               .aim = OwnUpdate,
                                               .append_state = AppendAim};

constinit const Weights Weights::kSpecTrain = {.name = "spectrain",
                                               .form = "aligned:<microbatches>",
                                               .set_numbers = BatchOfUpdate,
                                               .moves = true,
                                               .aim = FirstStagesUpdate,
                                               .append_state = AppendAim};

}  // namespace penstock
