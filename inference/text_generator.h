// TextGenerator: continues texts with a trained language model, in this process.
//
// Texts are tokens of the model's tokenizer, which its checkpoint has (AttachedFile); without one, a token is a byte. The model
// sees the last `context` tokens. As long as a text is no longer than that, a new token costs a pass over itself alone
// (model/decode_step.h), and else one over all of them. The tokens that texts begin with are read in blocks.
//
// Thread-compatible.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/files.h"
#include "compute/backend.h"
#include "compute/stage.h"
#include "inference/checkpoint_model.h"
#include "inference/sampler.h"
#include "tokenizer/tokenizer.h"
#include "worker/data_source.h"

namespace penstock {

// Checks that a TextGenerator can be made of the model. `has_tokenizer`: its tokens are those of a tokenizer, or else bytes.
// Errors: Unimplemented (it reads no tokens, or nothing says which text they are).
absl::Status CheckGeneratesText(const ModelGraph& model, bool has_tokenizer);

// The tokenizer of a checkpoint, or `path` if that is not empty, or else that of bytes.
// Errors: those of LoadTokenizer.
absl::StatusOr<std::unique_ptr<Tokenizer>> TokenizerOf(Files& files, const CheckpointModel& model,
                                                       const std::string& path);

// The bytes of the text that the targets of the first `samples` windows of validation are, each of `context` tokens.
// Errors: those of `data`; OutOfRange (an id that no token has).
absl::StatusOr<int64_t> TargetBytes(const DataSource& data, int64_t samples, int64_t context,
                                    const Tokenizer& tokenizer);

struct GeneratorOptions {
  int64_t vocabulary =
      0;  // the ids below it are tokens; the model may know more, which are never chosen
  int64_t texts = 1;  // that are continued at once
  int threads = 1;
  bool caches = true;   // false: every token costs a pass over all
  int64_t block = 256;  // tokens of each text that are read at once, at most
};

class TextGenerator {
 public:
  // Loads the weights. REQUIRES: CheckGeneratesText; `files` and `model` outlive it.
  // Errors: those of LoadStage, ResourceExhausted, InvalidArgument (the model knows fewer ids than the vocabulary).
  static absl::StatusOr<TextGenerator> Create(Files& files, const CheckpointModel& model,
                                              const GeneratorOptions& options);

  // The token that follows each text, chosen by its sampler. Texts are those of the call before with more at their ends.
  // REQUIRES: there are as many of both as options.texts, none is empty.
  absl::StatusOr<std::vector<int32_t>> Next(absl::Span<const std::vector<int32_t>> texts,
                                            absl::Span<Sampler> samplers);

 private:
  TextGenerator(Files& files, const CheckpointModel& model, const GeneratorOptions& options)
      : files_(files), model_(model), options_(options), fed_(options.texts, 0) {}

  int64_t context() const { return model_.graph.ports[0].type.dims[0]; }
  // Whether the step knows what comes next of such texts.
  bool UsesStep(absl::Span<const std::vector<int32_t>> texts) const;
  // [texts, ids]: what follows the last token of each text.
  absl::StatusOr<std::vector<float>> LogitsOfStep(absl::Span<const std::vector<int32_t>> texts);
  // Lets what the step keeps have seen the texts but for the last token of the longest, and perhaps a few before it.
  absl::Status ReadBlocks(absl::Span<const std::vector<int32_t>> texts);
  // Passes over the next tokens of each text, as many as `stage` has time steps, and returns what follows each of them.
  absl::StatusOr<std::vector<float>> Feed(Stage& stage, int64_t steps,
                                          absl::Span<const std::vector<int32_t>> texts);
  absl::StatusOr<std::vector<float>> LogitsOfWindow(absl::Span<const std::vector<int32_t>> texts);
  absl::StatusOr<Tensor> PortOf(Stage& stage, int port, absl::Span<const int32_t> values);

  Files& files_;
  const CheckpointModel& model_;
  const GeneratorOptions options_;
  std::unique_ptr<Backend> backend_;
  // After the back-end they live on. The window is loaded when it is first needed.
  std::unique_ptr<Stage> step_, window_;
  std::vector<int64_t> fed_;  // by text: its tokens that the step has seen
};

}  // namespace penstock
