#include "inference/text_generator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "inference/load_stage.h"
#include "model/decode_step.h"
#include "model/ops/list.h"

namespace penstock {
namespace {

constexpr int64_t kByteVocabulary = 256;
constexpr int64_t kBlockLogitsMax = 16 << 20;  // floats that a pass over a block of all texts makes

}  // namespace

// Ports: tokens and the targets that follow them, as data of the kinds text and tokens have them.
absl::Status CheckGeneratesText(const ModelGraph& model, bool has_tokenizer) {
  const std::vector<Port>& ports = model.ports;
  const bool reads_tokens = ports.size() == 2 && ports[0].type.dtype == DType::kI32 &&
                            ports[0].type.dims.size() == 1 && ports[1].type == ports[0].type;
  if (!reads_tokens) {
    return absl::UnimplementedError(
        "the model does not read tokens and their targets, so there is no text to go on with; use "
        "penstock evaluate, with --decode for a model that translates");
  }
  if (has_tokenizer || ports[0].ids == kByteVocabulary) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat("the model has ", ports[0].ids,
                   " tokens, and nothing says which text the ones beyond bytes are; name their "
                   "tokenizer (--tokenizer), or use penstock evaluate"));
}

absl::StatusOr<std::unique_ptr<Tokenizer>> TokenizerOf(Files& files, const CheckpointModel& model,
                                                       const std::string& path) {
  if (!path.empty()) return LoadTokenizer(files, path);
  if (model.manifest.attached.empty()) return MakeByteTokenizer();
  return LoadTokenizer(files, model.directory);
}

absl::StatusOr<int64_t> TargetBytes(const DataSource& data, int64_t samples, int64_t context,
                                    const Tokenizer& tokenizer) {
  constexpr int64_t kTokensAtOnce = 1 << 20;
  const auto size_of = [&](absl::Span<const int32_t> ids) -> absl::StatusOr<int64_t> {
    PENSTOCK_ASSIGN_OR_RETURN(const std::string text, tokenizer.Decode(ids, SpecialTokens::kShow));
    return static_cast<int64_t>(text.size());
  };
  const int64_t samples_at_once = std::max<int64_t>(1, kTokensAtOnce / context);
  // The token before, where there is one, and those of some samples: the first token of a text may be without its space.
  std::vector<int32_t> ids;
  int64_t bytes = 0;
  for (int64_t sample = 0; sample < samples; sample += samples_at_once) {
    const auto before = static_cast<int64_t>(sample > 0);
    const int64_t count = std::min(samples_at_once, samples - sample) * context;
    if (before > 0) ids[0] = ids.back();
    ids.resize(static_cast<size_t>(before + count));
    PENSTOCK_RETURN_IF_ERROR(
        data.Read(Split::kValidation, sample, /*port=*/1,
                  absl::MakeSpan(reinterpret_cast<std::byte*>(ids.data() + before),
                                 static_cast<size_t>(count) * sizeof(int32_t))));
    PENSTOCK_ASSIGN_OR_RETURN(const int64_t all, size_of(ids));
    bytes += all;
    if (before == 0) continue;
    PENSTOCK_ASSIGN_OR_RETURN(const int64_t known, size_of(absl::MakeConstSpan(ids).first(1)));
    bytes -= known;
  }
  return bytes;
}

absl::StatusOr<TextGenerator> TextGenerator::Create(Files& files, const CheckpointModel& model,
                                                    const GeneratorOptions& options) {
  const Port& port = model.graph.ports[0];
  if (port.ids < options.vocabulary) {
    return absl::InvalidArgumentError(absl::StrCat(model.directory, ": the model knows ", port.ids,
                                                   " tokens, but the tokenizer has ",
                                                   options.vocabulary, "; name its own"));
  }
  TextGenerator generator(files, model, options);
  PENSTOCK_ASSIGN_OR_RETURN(generator.backend_, MakeCpuBackend(options.threads));
  if (!options.caches) return generator;
  absl::StatusOr<ModelGraph> step = DecodeStepOf(model.graph);
  if (absl::IsUnimplemented(step.status())) return generator;  // the window does
  PENSTOCK_RETURN_IF_ERROR(step.status());
  CheckpointModel step_model = model;
  step_model.graph = *std::move(step);
  PENSTOCK_ASSIGN_OR_RETURN(generator.step_,
                            LoadStage(files, step_model, options.texts, *generator.backend_));
  return generator;
}

bool TextGenerator::UsesStep(absl::Span<const std::vector<int32_t>> texts) const {
  if (step_ == nullptr) return false;
  bool equal = true;
  for (const std::vector<int32_t>& text : texts) {
    if (static_cast<int64_t>(text.size()) > context()) return false;
    equal = equal && text.size() == texts.front().size();
  }
  // Attention takes a token twice without harm, while texts with more tokens are fed; an LSTM does not.
  const bool has_attention_alone =
      std::none_of(model_.graph.nodes.begin(), model_.graph.nodes.end(),
                   [](const Node& node) { return node.op == &ops::kLstm; });
  return equal || has_attention_alone;
}

absl::StatusOr<Tensor> TextGenerator::PortOf(Stage& stage, int port,
                                             absl::Span<const int32_t> values) {
  return stage.PortToDevice(port,
                            absl::MakeConstSpan(reinterpret_cast<const std::byte*>(values.data()),
                                                values.size() * sizeof(int32_t)));
}

// A text that has no more tokens gives its last one again, which attention takes without harm.
absl::StatusOr<std::vector<float>> TextGenerator::Feed(
    Stage& stage, int64_t steps, absl::Span<const std::vector<int32_t>> texts) {
  const bool is_first =
      std::all_of(fed_.begin(), fed_.end(), [](int64_t count) { return count == 0; });
  std::vector<int32_t> tokens, places;
  for (size_t i = 0; i < texts.size(); ++i) {
    for (int64_t k = 0; k < steps; ++k) {
      const int64_t place = std::min(fed_[i], static_cast<int64_t>(texts[i].size()) - 1);
      tokens.push_back(texts[i][place]);
      places.push_back(static_cast<int32_t>(place));
      fed_[i] = place + 1;
    }
  }
  // The targets are for the loss alone, and an LSTM needs no place.
  std::vector<Tensor> ports;
  for (const int port : stage.ports()) {
    Tensor& given = ports.emplace_back();
    if (port == 1) continue;
    PENSTOCK_ASSIGN_OR_RETURN(given, PortOf(stage, port, port == 0 ? tokens : places));
  }
  return stage.Predictions(stage.version(), Tensor(), ports, {0, /*afresh=*/is_first});
}

absl::Status TextGenerator::ReadBlocks(absl::Span<const std::vector<int32_t>> texts) {
  int64_t rest = 0;  // of the text with the most to read, without its last token
  for (size_t i = 0; i < texts.size(); ++i) {
    rest = std::max(rest, static_cast<int64_t>(texts[i].size()) - 1 - fed_[i]);
  }
  const int64_t logits = options_.texts * model_.graph.ports[0].ids;  // of a time step
  const int64_t most = std::min(options_.block, kBlockLogitsMax / logits);
  if (rest < 2 || most < 2) return absl::OkStatus();
  const int64_t blocks = (rest + most - 1) / most;
  const int64_t steps = rest / blocks;  // so that less than a token for each block is left
  if (steps < 2) return absl::OkStatus();
  PENSTOCK_ASSIGN_OR_RETURN(const ModelGraph graph, DecodeStepOf(model_.graph, steps));
  const StageOptions options = {.layers = {0, graph.size()},
                                .samples = options_.texts,
                                .step_samples = options_.texts,
                                .updates = false,
                                .drops_gradients = true,
                                .borrows_weights = true,
                                .optimizer = SgdConfig()};
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<Stage> stage,
                            Stage::Create(*backend_, graph, options));
  PENSTOCK_RETURN_IF_ERROR(stage->EvaluateFor(*step_));
  for (int64_t block = 0; block < blocks; ++block) {
    PENSTOCK_RETURN_IF_ERROR(Feed(*stage, steps, texts).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<float>> TextGenerator::LogitsOfStep(
    absl::Span<const std::vector<int32_t>> texts) {
  PENSTOCK_RETURN_IF_ERROR(ReadBlocks(texts));
  while (true) {
    PENSTOCK_ASSIGN_OR_RETURN(std::vector<float> logits, Feed(*step_, 1, texts));
    bool is_fed = true;
    for (size_t i = 0; i < texts.size(); ++i) {
      is_fed = is_fed && fed_[i] == static_cast<int64_t>(texts[i].size());
    }
    if (is_fed) return logits;
  }
}

absl::StatusOr<std::vector<float>> TextGenerator::LogitsOfWindow(
    absl::Span<const std::vector<int32_t>> texts) {
  if (window_ == nullptr) {
    PENSTOCK_ASSIGN_OR_RETURN(window_, LoadStage(files_, model_, options_.texts, *backend_));
  }
  const auto seen = [&](const std::vector<int32_t>& text) {
    return std::min<int64_t>(context(), static_cast<int64_t>(text.size()));
  };
  std::vector<int32_t> tokens(texts.size() * static_cast<size_t>(context()), 0);
  for (size_t i = 0; i < texts.size(); ++i) {
    std::copy(texts[i].end() - seen(texts[i]), texts[i].end(),
              tokens.begin() + static_cast<int64_t>(i) * context());
  }
  PENSTOCK_ASSIGN_OR_RETURN(Tensor input, PortOf(*window_, 0, tokens));
  PENSTOCK_ASSIGN_OR_RETURN(
      const std::vector<float> all,
      window_->Predictions(window_->version(), Tensor(), {std::move(input), Tensor()}));
  const int64_t ids = model_.graph.ports[0].ids;
  std::vector<float> logits;
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto row = all.begin() + (static_cast<int64_t>(i) * context() + seen(texts[i]) - 1) * ids;
    logits.insert(logits.end(), row, row + ids);
  }
  return logits;
}

absl::StatusOr<std::vector<int32_t>> TextGenerator::Next(
    absl::Span<const std::vector<int32_t>> texts, absl::Span<Sampler> samplers) {
  PENSTOCK_CHECK(static_cast<int64_t>(texts.size()) == options_.texts);
  PENSTOCK_CHECK(texts.size() == samplers.size());
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<float> logits,
                            UsesStep(texts) ? LogitsOfStep(texts) : LogitsOfWindow(texts));
  const int64_t ids = model_.graph.ports[0].ids;
  std::vector<int32_t> next;
  for (size_t i = 0; i < texts.size(); ++i) {
    next.push_back(samplers[i].Draw(
        absl::MakeConstSpan(logits).subspan(i * ids, static_cast<size_t>(options_.vocabulary))));
  }
  return next;
}

}  // namespace penstock
