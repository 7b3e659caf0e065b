// Normalizer: what a tokenizer.json changes in a text before it is cut: NFC, and what BERT does.
//
// Unicode's tables are those of utf8proc. The `tokenizers` package has older ones for BERT's part (Unicode 8): characters
// that came later are other categories there, so texts with them may have other ids.
//
// A value; const methods may be called from any thread.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"

namespace penstock {

// Unicode's canonical composition. Bytes that are part of no character stay.
struct Nfc {};

// Reads a byte that is part of no character as U+FFFD.
struct BertNormalization {
  bool clean_text = true;            // control characters go, white space becomes " "
  bool handle_chinese_chars = true;  // " " around every ideograph
  bool strip_accents = true;
  bool lowercase = true;
};

class Normalizer {
 public:
  using Step = std::variant<Nfc, BertNormalization>;

  Normalizer() = default;
  explicit Normalizer(std::vector<Step> steps) : steps_(std::move(steps)) {}

  bool changes_nothing() const { return steps_.empty(); }
  // `text`, which may be `buffer`'s content after it.
  // Takes time in proportion to the text, or n log n for n combining marks on one letter.
  absl::string_view Apply(absl::string_view text, std::string& buffer) const;

 private:
  std::vector<Step> steps_;
};

}  // namespace penstock
