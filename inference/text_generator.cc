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

// True if the layer's only weight is stored with the embedding.
bool IsTiedHead(const LayerSpec& layer) {
  const HeadLayer* head = std::get_if<HeadLayer>(&layer.config);
  return head != nullptr && head->tied;
}

absl::Status LoadWeights(Files& files, const CheckpointModel& model, Stage& stage) {
  for (int i = 0; i < model.chain.size(); ++i) {
    if (IsTiedHead(model.chain.layers[i])) continue;
    PENSTOCK_ASSIGN_OR_RETURN(const LayerState layer,
                              LoadLayer(files, model.directory, model.manifest, i));
    PENSTOCK_RETURN_IF_ERROR(Annotate(stage.LoadLayerWeights(i, layer.weights), model.directory));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TextGenerator> TextGenerator::Create(Files& files, const CheckpointModel& model) {
  if (model.chain.vocabulary != kByteVocabulary) {
    return absl::UnimplementedError(
        absl::StrCat(model.directory, ": the model has ", model.chain.vocabulary,
                     " tokens; text can be generated for byte-level models (256 tokens) only"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, MakeCpuBackend(kThreads));
  TextGenerator generator(std::move(backend), model.chain.context);
  const StageOptions options = {.layers = {0, model.chain.size()},
                                .batch = {.batch = 1, .time = model.chain.context},
                                .optimizer = SgdConfig()};
  PENSTOCK_ASSIGN_OR_RETURN(generator.stage_,
                            Stage::Create(*generator.backend_, model.chain, options));
  PENSTOCK_RETURN_IF_ERROR(LoadWeights(files, model, *generator.stage_));
  return generator;
}

absl::StatusOr<char> TextGenerator::Next(const std::string& text, Sampler& sampler) {
  const int64_t seen = std::min<int64_t>(context_, static_cast<int64_t>(text.size()));
  std::vector<int32_t> tokens(static_cast<size_t>(context_), 0);
  for (int64_t i = 0; i < seen; ++i) {
    tokens[i] = static_cast<unsigned char>(text[text.size() - seen + i]);
  }
  PENSTOCK_ASSIGN_OR_RETURN(const Tensor input, stage_->TokensToDevice("token", tokens));
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<float> logits,
                            stage_->NextTokenLogits(stage_->version(), input, seen - 1));
  return static_cast<char>(sampler.Draw(logits));
}

}  // namespace penstock
