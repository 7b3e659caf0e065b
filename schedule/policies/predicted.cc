// predicted and spectrain: passes read the current weights moved ahead to an update that is still to come.
//
// With `predicted`, as XPipe does it (arXiv 1911.04610), the n-th forward of a range aims at the version that its
// own update will replace, n / `batch` of the range: on 1F1B it is S-1-s backwards away on stage s, and when the backward
// comes it is the current one. With `spectrain` (arXiv 1809.02839) all stages aim at one moment, that of the
// first stage's update: until then stage s makes those of another floor(s/2) microbatches, one in two slots. So single
// microbatches are moved by floor(s/2) + S-1-s updates in the forward and by floor(s/2) in the backward. These
// numbers are derived from the order of 1F1B here; those of the papers count their own schedules.
//
// With replicas both say the same of microbatches: number k belongs to update k / u of a stage whose updates hold u (those
// of a step, or one of each replica); and where the first stage has a more between forward and backward than stage s,
// half of them are on their way back, so that stage s makes the updates of another floor(a/2). Without replicas a is s.
// The replicas of a stage do as many microbatches at the same time, and aim at what the first of these aims at: as many
// replicas everywhere are pipelines beside each other.
#include "schedule/weight_policy.h"

namespace penstock {
namespace {

int64_t OwnUpdate(const StageVersions& stage, int64_t forward, int64_t) {
  return stage.first_version + stage.MicrobatchOf(forward) / stage.update;
}

int64_t FirstStagesUpdate(const StageVersions& stage, int64_t forward, int64_t) {
  const int64_t meanwhile = stage.behind_first / 2;
  return stage.first_version + (stage.MicrobatchOf(forward) + meanwhile) / stage.update;
}

void BatchOfUpdate(const UpdateShape& shape, WeightPolicy& policy) {
  policy.batch = shape.microbatches;
}

void AppendAim(const StageVersions& stage, std::vector<int64_t>& state) {
  state.push_back(stage.MicrobatchOf(stage.forwards) % stage.update);
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
