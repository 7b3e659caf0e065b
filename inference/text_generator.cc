#include "inference/text_generator.h"

#include <algorithm>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "checkpoint/checkpoint.h"

namespace penstock {
namespace {

constexpr int kThreads = 1;
constexpr int64_t kByteVocabulary = 256;

absl::Status LoadWeights(Files& files, const CheckpointModel& model, Stage& stage) {
  const ModelGraph& graph = model.graph;
  for (int i = 0; i < graph.size(); ++i) {
    if (graph.tied() && i + 1 == graph.size()) continue;  // its weight is the first layer's
    PENSTOCK_ASSIGN_OR_RETURN(const LayerState layer,
                              LoadLayer(files, model.directory, model.manifest, i));
    PENSTOCK_RETURN_IF_ERROR(Annotate(stage.LoadLayerWeights(i, layer.weights), model.directory));
  }
  return absl::OkStatus();
}

// Of the token after time step `position`.
std::vector<float> LogitsAt(const std::vector<float>& logits, int64_t position) {
  const auto first = logits.begin() + position * kByteVocabulary;
  return {first, first + kByteVocabulary};
}

}  // namespace

absl::StatusOr<TextGenerator> TextGenerator::Create(Files& files, const CheckpointModel& model) {
  if (model.config.vocabulary != kByteVocabulary) {
    return absl::UnimplementedError(
        absl::StrCat(model.directory, ": the model has ", model.config.vocabulary,
                     " tokens; text can be generated for byte-level models (256 tokens) only"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, MakeCpuBackend(kThreads));
  TextGenerator generator(std::move(backend), model.config.context);
  const StageOptions options = {.layers = {0, model.graph.size()},
                                .samples = 1,
                                .optimizer = SgdConfig()};
  PENSTOCK_ASSIGN_OR_RETURN(generator.stage_,
                            Stage::Create(*generator.backend_, model.graph, options));
  PENSTOCK_RETURN_IF_ERROR(LoadWeights(files, model, *generator.stage_));
  return generator;
}

absl::StatusOr<char> TextGenerator::Next(const std::string& text, Sampler& sampler) {
  const int64_t seen = std::min<int64_t>(context_, static_cast<int64_t>(text.size()));
  std::vector<int32_t> tokens(static_cast<size_t>(context_), 0);
  for (int64_t i = 0; i < seen; ++i) {
    tokens[i] = static_cast<unsigned char>(text[text.size() - seen + i]);
  }
  // The model's first port has the tokens; the other, the targets, is for the loss alone.
  PENSTOCK_ASSIGN_OR_RETURN(
      Tensor input, stage_->PortToDevice(0, absl::MakeConstSpan(
                                                reinterpret_cast<const std::byte*>(tokens.data()),
                                                tokens.size() * sizeof(int32_t))));
  PENSTOCK_ASSIGN_OR_RETURN(
      const std::vector<float> logits,
      stage_->Predictions(stage_->version(), Tensor(), {std::move(input), Tensor()}));
  return static_cast<char>(sampler.Draw(LogitsAt(logits, seen - 1)));
}

}  // namespace penstock
