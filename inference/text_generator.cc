#include "inference/text_generator.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "inference/load_stage.h"

namespace penstock {
namespace {

constexpr int kThreads = 1;
constexpr int64_t kByteVocabulary = 256;

// Of the token after time step `position`.
std::vector<float> LogitsAt(const std::vector<float>& logits, int64_t position) {
  const auto first = logits.begin() + position * kByteVocabulary;
  return {first, first + kByteVocabulary};
}

}  // namespace

// Ports: tokens and the targets that follow them, as data of the kind text has them.
absl::Status CheckGeneratesText(const ModelGraph& model) {
  const std::vector<Port>& ports = model.ports;
  const bool reads_tokens = ports.size() == 2 && ports[0].type.dtype == DType::kI32 &&
                            ports[0].type.dims.size() == 1 && ports[1].type == ports[0].type;
  if (!reads_tokens) {
    return absl::UnimplementedError(
        "the model does not read tokens and their targets, so there is no text to go on with; use "
        "penstock evaluate, with --decode for a model that translates");
  }
  if (ports[0].ids == kByteVocabulary) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat("the model has ", ports[0].ids,
                   " tokens, and nothing says which text the ones beyond bytes are; use a model of "
                   "256, or penstock evaluate"));
}

absl::StatusOr<TextGenerator> TextGenerator::Create(Files& files, const CheckpointModel& model) {
  PENSTOCK_RETURN_IF_ERROR(Annotate(CheckGeneratesText(model.graph), model.directory));
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, MakeCpuBackend(kThreads));
  TextGenerator generator(std::move(backend), model.graph.ports[0].type.dims[0]);
  PENSTOCK_ASSIGN_OR_RETURN(generator.stage_,
                            LoadStage(files, model, /*samples=*/1, *generator.backend_));
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
      Tensor input,
      stage_->PortToDevice(0, absl::MakeConstSpan(reinterpret_cast<const std::byte*>(tokens.data()),
                                                  tokens.size() * sizeof(int32_t))));
  PENSTOCK_ASSIGN_OR_RETURN(
      const std::vector<float> logits,
      stage_->Predictions(stage_->version(), Tensor(), {std::move(input), Tensor()}));
  return static_cast<char>(sampler.Draw(LogitsAt(logits, seen - 1)));
}

}  // namespace penstock
