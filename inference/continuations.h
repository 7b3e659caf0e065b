// Continuations: several texts continued side by side, until each has come to its end.
//
// Thread-compatible.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "inference/sampler.h"
#include "inference/text_output.h"
#include "tokenizer/tokenizer.h"

namespace penstock {

struct ContinuationOptions {
  int64_t tokens_max = 1;          // that a text gets
  std::vector<std::string> stops;  // texts to end before; none is empty
  SamplerOptions sampler;          // of the first text; each further one has the next seed
};

struct Continuation {
  std::string prompt;
  std::string text;  // without the prompt
  int64_t tokens = 0;
  // "tokens" (as many as there may be), "end" (the tokenizer's token for it) or "stop"; null: it goes on.
  const char* ended_by = nullptr;
};

class Continuations {
 public:
  // The tokens that follow texts, one of each; as TextGenerator::Next.
  using Next = absl::FunctionRef<absl::StatusOr<std::vector<int32_t>>(
      absl::Span<const std::vector<int32_t>> texts, absl::Span<Sampler> samplers)>;
  // What can be shown now of the text with this number.
  using Show = absl::FunctionRef<void(size_t text, absl::string_view shown)>;

  // REQUIRES: `tokenizer` outlives it. Errors: InvalidArgument (a prompt is empty), those of the tokenizer.
  static absl::StatusOr<Continuations> Create(const Tokenizer& tokenizer,
                                              absl::Span<const std::string> prompts,
                                              const ContinuationOptions& options);

  // Until all have ended. A text that has ended is not asked about any more, but stays among those that `next` gets.
  // Errors: those of `next`; OutOfRange (an id that no token has).
  absl::Status Run(Next next, Show show);

  const std::vector<Continuation>& texts() const { return texts_; }

 private:
  Continuations(const Tokenizer& tokenizer, const ContinuationOptions& options)
      : options_(options), end_(tokenizer.SpecialId(SpecialToken::kEos)) {}

  bool AllEnded() const;
  // Adds `token` to text `i`, and returns what can be shown of it now.
  absl::StatusOr<std::string> Extend(size_t i, int32_t token);

  const ContinuationOptions options_;
  const std::optional<int32_t> end_;
  // By text.
  std::vector<Continuation> texts_;
  std::vector<std::vector<int32_t>> tokens_;  // with those of the prompt
  std::vector<TextOutput> outputs_;
  std::vector<Sampler> samplers_;
};

}  // namespace penstock
