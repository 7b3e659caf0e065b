// WordLevelModel: a token for each whole word, as the WordModel of a tokenizer.json. Words are what its expressions cut, such as
// single characters.
//
// Thread safety: as WordModel.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "tokenizer/json_tokenizer.h"
#include "tokenizer/word_cache.h"
#include "tokenizer/word_cutter.h"

namespace penstock {

class WordLevelModel final : public WordModel {
 public:
  // `unknown`: the id of words that are no tokens; none: they are errors.
  WordLevelModel(WordCutter cutter, absl::flat_hash_map<std::string, int32_t> ids,
                 std::optional<int32_t> unknown)
      : cutter_(std::move(cutter)), ids_(std::move(ids)), unknown_(unknown) {}

  // Errors: InvalidArgument (a word that is no token, by itself).
  absl::Status Encode(absl::string_view text, std::vector<int32_t>& ids) const override;
  void Decode(absl::string_view token, bool is_first, std::string& text) const override;

 private:
  const WordCutter cutter_;
  const absl::flat_hash_map<std::string, int32_t> ids_;
  const std::optional<int32_t> unknown_;
  mutable ScratchPool<WordCutter::Scratch> scratches_;
};

}  // namespace penstock
