#include "inference/continuations.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace penstock {

absl::StatusOr<Continuations> Continuations::Create(const Tokenizer& tokenizer,
                                                    absl::Span<const std::string> prompts,
                                                    const ContinuationOptions& options) {
  Continuations continuations(tokenizer, options);
  SamplerOptions sampler = options.sampler;
  for (const std::string& prompt : prompts) {
    PENSTOCK_ASSIGN_OR_RETURN(std::vector<int32_t> tokens,
                              tokenizer.Encode(prompt, Framing::kOfFile));
    if (tokens.empty()) {
      return absl::InvalidArgumentError("is empty; give at least one character");
    }
    continuations.texts_.push_back({.prompt = prompt});
    continuations.outputs_.emplace_back(tokenizer, tokens, options.stops);
    continuations.samplers_.emplace_back(sampler);
    continuations.tokens_.push_back(std::move(tokens));
    ++sampler.seed;
  }
  return continuations;
}

bool Continuations::AllEnded() const {
  return std::all_of(texts_.begin(), texts_.end(),
                     [](const Continuation& text) { return text.ended_by != nullptr; });
}

absl::StatusOr<std::string> Continuations::Extend(size_t i, int32_t token) {
  Continuation& text = texts_[i];
  TextOutput& output = outputs_[i];
  tokens_[i].push_back(token);
  ++text.tokens;
  std::string shown;
  if (token == end_) {
    text.ended_by = "end";
  } else {
    PENSTOCK_ASSIGN_OR_RETURN(shown, output.Add(token));
    if (output.stopped()) text.ended_by = "stop";
  }
  if (text.ended_by == nullptr && text.tokens == options_.tokens_max) text.ended_by = "tokens";
  if (text.ended_by != nullptr) shown += output.TakeRest();
  text.text += shown;
  return shown;
}

absl::Status Continuations::Run(Next next, Show show) {
  while (!AllEnded()) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens,
                              next(tokens_, absl::MakeSpan(samplers_)));
    for (size_t i = 0; i < texts_.size(); ++i) {
      if (texts_[i].ended_by != nullptr) continue;
      PENSTOCK_ASSIGN_OR_RETURN(const std::string shown, Extend(i, tokens[i]));
      show(i, shown);
    }
  }
  return absl::OkStatus();
}

}  // namespace penstock
