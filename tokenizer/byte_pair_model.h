// BytePairModel: byte-level BPE as the WordModel of a tokenizer.json.
//
// Thread safety: as WordModel.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "tokenizer/byte_pairs.h"
#include "tokenizer/json_tokenizer.h"
#include "tokenizer/word_cache.h"
#include "tokenizer/word_cutter.h"

namespace penstock {

class BytePairModel final : public WordModel {
 public:
  // `whole_words`: bytes of the words that are tokens whatever their merges say (ignore_merges).
  BytePairModel(WordCutter cutter, BytePairs pairs,
                absl::flat_hash_map<std::string, int32_t> whole_words)
      : cutter_(std::move(cutter)),
        pairs_(std::move(pairs)),
        whole_words_(std::move(whole_words)) {}

  absl::Status Encode(absl::string_view text, std::vector<int32_t>& ids) const override;
  void Decode(absl::string_view token, bool is_first, std::string& text) const override;
  bool can_be_cut() const override { return !cutter_.adds_space(); }

 private:
  struct Scratch {
    WordCutter::Scratch cutter;
    BytePairs::Scratch pairs;
    WordCache words;
  };
  void EncodeWord(absl::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const;

  const WordCutter cutter_;
  const BytePairs pairs_;
  const absl::flat_hash_map<std::string, int32_t> whole_words_;
  mutable ScratchPool<Scratch> scratches_;
};

}  // namespace penstock
