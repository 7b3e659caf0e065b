// Files of tokenizers and texts for them: an input is a text up to its first zero, then a tokenizer.json or a .model. Ids are
// those of tokens, and are decoded.
#include "tests/fuzz/fuzz_target.h"
#include "tokenizer/tokenizer.h"

PENSTOCK_FUZZ_TARGET(tokenizer) {
  using namespace penstock;
  FuzzBytes input(data, size);
  const absl::string_view text = input.TakeUntil('\0');
  const bool is_json = !input.rest().empty() && input.rest().front() == '{';
  const auto tokenizer =
      is_json ? ParseTokenizerJson(input.rest()) : ParseSentencePieceModel(input.rest());
  if (!tokenizer.ok()) return 0;
  FuzzAccepted();
  const auto ids = (*tokenizer)->Encode(text, Framing::kOfFile);
  if (!ids.ok()) {
    PENSTOCK_CHECK(ids.status().code() == absl::StatusCode::kResourceExhausted);
    return 0;
  }
  for (const int32_t id : *ids) {
    PENSTOCK_CHECK(id >= 0 && id < (*tokenizer)->vocabulary_size());
  }
  PENSTOCK_CHECK((*tokenizer)->Decode(*ids).ok());
  return 0;
}
