// WordCutter: how a byte-level tokenizer cuts a text into the words that its pairs are merged in: the pre_tokenizer of a
// tokenizer.json.
//
// Immutable after Make; a Scratch for each thread.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tokenizer/pattern.h"

namespace penstock {

// GPT-2's expression, which ByteLevel has by itself.
inline constexpr char kGpt2Expression[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr char kLlama3Expression[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr char kQwenExpression[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

class WordCutter {
 public:
  struct Step {
    enum class Kind { kCut, kPrefixSpace };
    Kind kind = Kind::kCut;
    Pattern pattern;  // kCut: matches, and what lies between them, are words
  };
  struct Scratch {
    std::vector<std::unique_ptr<Pattern::Matcher>> matchers;  // by step
    std::vector<std::string> prefixed;                        // by step
  };

  explicit WordCutter(std::vector<Step> steps) : steps_(std::move(steps)) {}

  // Whether a text gets a space before it, if it has none.
  bool adds_space() const {
    return std::any_of(steps_.begin(), steps_.end(),
                       [](const Step& step) { return step.kind == Step::Kind::kPrefixSpace; });
  }

  // Calls take(word) with every word, in order. REQUIRES: text is UTF-8. Errors: those of Pattern::Find.
  template <typename Take>
  absl::Status Cut(absl::string_view text, Scratch& scratch, const Take& take) const {
    while (scratch.matchers.size() < steps_.size()) {
      scratch.matchers.push_back(std::make_unique<Pattern::Matcher>());
      scratch.prefixed.emplace_back();
    }
    return CutFrom(0, text, scratch, take);
  }

 private:
  template <typename Take>
  absl::Status CutFrom(size_t step, absl::string_view text, Scratch& scratch,
                       const Take& take) const {
    if (text.empty()) return absl::OkStatus();
    if (step == steps_.size()) {
      take(text);
      return absl::OkStatus();
    }
    if (steps_[step].kind == Step::Kind::kPrefixSpace) {
      if (text.front() == ' ') return CutFrom(step + 1, text, scratch, take);
      std::string& prefixed = scratch.prefixed[step];
      prefixed.assign(1, ' ');
      prefixed.append(text.data(), text.size());
      return CutFrom(step + 1, prefixed, scratch, take);
    }
    size_t at = 0;
    while (at < text.size()) {
      const absl::StatusOr<Pattern::Match> match =
          steps_[step].pattern.Find(text, at, *scratch.matchers[step]);
      if (!match.ok()) return match.status();
      for (const absl::string_view word : {text.substr(at, match->begin - at),
                                           text.substr(match->begin, match->end - match->begin)}) {
        const absl::Status status = CutFrom(step + 1, word, scratch, take);
        if (!status.ok()) return status;
      }
      at = match->end;
    }
    return absl::OkStatus();
  }

  std::vector<Step> steps_;
};

}  // namespace penstock
