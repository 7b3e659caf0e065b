#include "inference/load_stage.h"

#include "base/status.h"
#include "checkpoint/checkpoint.h"

namespace penstock {

absl::StatusOr<std::unique_ptr<Stage>> LoadStage(Files& files, const CheckpointModel& model,
                                                 int64_t samples, Backend& backend) {
  const ModelGraph& graph = model.graph;
  const StageOptions options = {
      .layers = {0, graph.size()}, .samples = samples, .updates = false, .optimizer = SgdConfig()};
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<Stage> stage, Stage::Create(backend, graph, options));
  for (int i = 0; i < graph.size(); ++i) {
    if (graph.tied() && i + 1 == graph.size()) continue;  // its weight is the first layer's
    PENSTOCK_ASSIGN_OR_RETURN(const LayerState layer,
                              LoadLayer(files, model.directory, model.manifest, i));
    PENSTOCK_RETURN_IF_ERROR(Annotate(stage->LoadLayerWeights(i, layer.weights), model.directory));
  }
  return stage;
}

}  // namespace penstock
