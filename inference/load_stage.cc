#include "inference/load_stage.h"

#include "base/status.h"
#include "checkpoint/checkpoint.h"

namespace penstock {
namespace {

// What training carried to its next step is nothing to go on from elsewhere.
void ForgetCarried(const ModelGraph& graph, int64_t samples, int layer,
                   std::vector<NamedArray>& arrays) {
  const LayerSpec& spec = graph.layers[layer];
  for (int node = spec.first_node; node < spec.end_node(); ++node) {
    for (const BufferSpec& buffer : graph.nodes[node].buffers) {
      if (buffer.kind != BufferSpec::Kind::kCarried) continue;
      for (NamedArray& array : arrays) {
        if (array.name != buffer.name) continue;
        array.shape.front() = samples;
        array.values.assign(samples * buffer.size(), 0.0f);
      }
    }
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Stage>> LoadStage(Files& files, const CheckpointModel& model,
                                                 int64_t samples, Backend& backend) {
  const ModelGraph& graph = model.graph;
  const StageOptions options = {.layers = {0, graph.size()},
                                .samples = samples,
                                .step_samples = samples,
                                .updates = false,
                                .optimizer = SgdConfig()};
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<Stage> stage, Stage::Create(backend, graph, options));
  for (int i = 0; i < graph.size(); ++i) {
    if (graph.tied() && i + 1 == graph.size()) continue;  // its weight is the first layer's
    PENSTOCK_ASSIGN_OR_RETURN(LayerState layer,
                              LoadLayer(files, model.directory, model.manifest, i));
    ForgetCarried(graph, samples, i, layer.weights);
    PENSTOCK_RETURN_IF_ERROR(Annotate(stage->LoadLayerWeights(i, layer.weights), model.directory));
  }
  return stage;
}

}  // namespace penstock
