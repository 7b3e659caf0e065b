#include "inference/load_stage.h"

#include "base/status.h"

namespace penstock {

absl::StatusOr<std::unique_ptr<Stage>> LoadStage(Files& files, const CheckpointModel& model,
                                                 int64_t samples, Backend& backend) {
  const StageOptions options = {.layers = {0, model.graph.size()},
                                .samples = samples,
                                .step_samples = samples,
                                .updates = false,
                                .optimizer = SgdConfig()};
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<Stage> stage,
                            Stage::Create(backend, model.graph, options));
  PENSTOCK_RETURN_IF_ERROR(LoadWeights(files, model, options.layers, *stage));
  return stage;
}

}  // namespace penstock
