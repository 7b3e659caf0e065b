#include "tokenizer/byte_pair_training.h"

#include <algorithm>
#include <map>
#include <queue>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/utf8.h"
#include "nlohmann/json.hpp"
#include "tokenizer/byte_letters.h"
#include "tokenizer/characters.h"
#include "tokenizer/limits.h"

namespace penstock {
namespace {

using Pair = std::pair<int32_t, int32_t>;

struct Word {
  std::vector<int32_t> tokens;
  int64_t occurrences = 0;
};

// The most frequent pair, and of those the one with the smallest ids, is on top. Counts may be old: see Learn.
struct Ranked {
  int64_t count = 0;
  Pair pair;
  friend bool operator<(const Ranked& a, const Ranked& b) {
    return a.count != b.count ? a.count < b.count : a.pair > b.pair;
  }
};

absl::Status CheckOptions(const BytePairTraining& options) {
  const int64_t size_min = 256 + static_cast<int64_t>(options.special_tokens.size());
  if (options.vocabulary_size < size_min || options.vocabulary_size > kVocabularyMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "vocabulary_size: expected ", size_min, " (256 bytes and the special tokens) to ",
        kVocabularyMax, ", got ", options.vocabulary_size));
  }
  if (options.occurrences_min < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("occurrences_min: expected 1 or more, got ", options.occurrences_min));
  }
  std::set<std::string> seen;
  for (const std::string& token : options.special_tokens) {
    const bool is_good = !token.empty() && token.size() <= kAddedTokenBytesMax &&
                         FindInvalidUtf8(token) == absl::string_view::npos &&
                         !(BytesOfLetters(token).value_or("").size() == 1);
    if (!is_good || !seen.insert(token).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("special_tokens: \"", token, "\" is empty, longer than ",
                       kAddedTokenBytesMax, " bytes, no UTF-8, a byte's letter, or there twice"));
    }
  }
  return absl::OkStatus();
}

class Learning {
 public:
  explicit Learning(const BytePairTraining& options) : options_(options) {
    for (const std::string& token : options.special_tokens) Add(token);
    // The letters in their order, which is not that of the bytes.
    std::map<char32_t, int> letters;
    for (int byte = 0; byte < 256; ++byte) letters[LetterOfByte(static_cast<uint8_t>(byte))] = byte;
    for (const auto& [letter, byte] : letters) {
      std::string token;
      AppendCharacter(letter, token);
      byte_ids_[byte] = Add(token);
    }
  }

  absl::Status Count(absl::string_view text) {
    PENSTOCK_ASSIGN_OR_RETURN(Pattern pattern, Pattern::Compile(options_.expression));
    std::vector<WordCutter::Step> steps;
    steps.push_back({WordCutter::Step::Kind::kCut, std::move(pattern)});
    const WordCutter cutter(std::move(steps));
    WordCutter::Scratch scratch;
    absl::flat_hash_map<absl::string_view, int64_t> counts;
    while (!text.empty()) {
      const absl::string_view valid = text.substr(0, FindInvalidUtf8(text));
      PENSTOCK_RETURN_IF_ERROR(
          cutter.Cut(valid, scratch, [&](absl::string_view word) { ++counts[word]; }));
      text.remove_prefix(std::min(text.size(), valid.size() + 1));
    }
    for (const auto& [word, occurrences] : counts) {
      Word& added = words_.emplace_back();
      added.occurrences = occurrences;
      for (const char byte : word) added.tokens.push_back(byte_ids_[static_cast<uint8_t>(byte)]);
    }
    return absl::OkStatus();
  }

  void Learn() {
    for (size_t w = 0; w < words_.size(); ++w) {
      const Word& word = words_[w];
      for (size_t i = 0; i + 1 < word.tokens.size(); ++i) {
        Change({word.tokens[i], word.tokens[i + 1]}, word.occurrences, w);
      }
    }
    changed_.clear();
    for (const auto& [pair, count] : counts_) queue_.push({count, pair});
    while (static_cast<int64_t>(tokens_.size()) < options_.vocabulary_size && !queue_.empty()) {
      const Ranked top = queue_.top();
      queue_.pop();
      const int64_t count = counts_[top.pair];
      if (count < options_.occurrences_min) continue;
      if (count != top.count) {  // less by now; more was put into the queue when it came
        if (count < top.count) queue_.push({count, top.pair});
        continue;
      }
      Merge(top.pair);
    }
  }

  std::string Json() const;

 private:
  int32_t Add(const std::string& token) {
    const auto [found, is_new] = ids_.try_emplace(token, static_cast<int32_t>(tokens_.size()));
    if (is_new) tokens_.push_back(token);
    return found->second;
  }

  void Change(const Pair& pair, int64_t by, size_t word) {
    counts_[pair] += by;
    if (by > 0) {
      words_with_[pair].insert(word);
      changed_.insert(pair);
    }
  }

  void Merge(const Pair& pair) {
    const int32_t merged = Add(tokens_[pair.first] + tokens_[pair.second]);
    merges_.push_back(pair);
    const absl::flat_hash_set<size_t> words = std::move(words_with_[pair]);
    words_with_.erase(pair);
    for (const size_t w : words) {
      Word& word = words_[w];
      std::vector<int32_t>& tokens = word.tokens;
      for (size_t i = 0; i + 1 < tokens.size(); ++i) {
        if (tokens[i] != pair.first || tokens[i + 1] != pair.second) continue;
        if (i > 0) {
          Change({tokens[i - 1], pair.first}, -word.occurrences, w);
          Change({tokens[i - 1], merged}, word.occurrences, w);
        }
        if (i + 2 < tokens.size()) {
          Change({pair.second, tokens[i + 2]}, -word.occurrences, w);
          Change({merged, tokens[i + 2]}, word.occurrences, w);
        }
        tokens[i] = merged;
        tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      }
    }
    counts_[pair] = 0;
    for (const Pair& changed : changed_) {
      const int64_t count = counts_[changed];
      if (count > 0) queue_.push({count, changed});
    }
    changed_.clear();
  }

  const BytePairTraining& options_;
  int32_t byte_ids_[256];
  std::vector<std::string> tokens_;  // by id
  absl::flat_hash_map<std::string, int32_t> ids_;
  std::vector<Pair> merges_;
  std::vector<Word> words_;
  absl::flat_hash_map<Pair, int64_t> counts_;
  absl::flat_hash_map<Pair, absl::flat_hash_set<size_t>> words_with_;  // perhaps no longer
  absl::flat_hash_set<Pair> changed_;                                  // became more
  std::priority_queue<Ranked> queue_;
};

std::string Learning::Json() const {
  using Json = nlohmann::ordered_json;
  Json added = Json::array();
  for (const std::string& token : options_.special_tokens) {
    added.push_back({{"id", ids_.at(token)},
                     {"content", token},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  Json vocabulary = Json::object();
  // Without a search for each token, which are different.
  auto& entries = vocabulary.get_ref<Json::object_t&>();
  for (size_t id = 0; id < tokens_.size(); ++id) entries.emplace_back(tokens_[id], id);
  Json merges = Json::array();
  for (const Pair& pair : merges_) {
    merges.push_back(Json::array({tokens_[pair.first], tokens_[pair.second]}));
  }
  const Json split = {{"type", "Split"},
                      {"pattern", {{"Regex", options_.expression}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  const auto byte_level = [](bool use_regex) {
    return Json{{"type", "ByteLevel"},
                {"add_prefix_space", false},
                {"trim_offsets", true},
                {"use_regex", use_regex}};
  };
  const Json cut =
      options_.expression == kGpt2Expression
          ? byte_level(true)
          : Json{{"type", "Sequence"}, {"pretokenizers", Json::array({split, byte_level(false)})}};
  const Json file = {{"version", "1.0"},
                     {"truncation", nullptr},
                     {"padding", nullptr},
                     {"added_tokens", added},
                     {"normalizer", nullptr},
                     {"pre_tokenizer", cut},
                     {"post_processor", nullptr},
                     {"decoder", byte_level(true)},
                     {"model",
                      {{"type", "BPE"},
                       {"dropout", nullptr},
                       {"unk_token", nullptr},
                       {"continuing_subword_prefix", nullptr},
                       {"end_of_word_suffix", nullptr},
                       {"fuse_unk", false},
                       {"byte_fallback", false},
                       {"ignore_merges", false},
                       {"vocab", vocabulary},
                       {"merges", merges}}}};
  return file.dump(1) + "\n";
}

}  // namespace

absl::StatusOr<std::string> TrainBytePairs(absl::string_view text,
                                           const BytePairTraining& options) {
  PENSTOCK_RETURN_IF_ERROR(CheckOptions(options));
  Learning learning(options);
  PENSTOCK_RETURN_IF_ERROR(learning.Count(text));
  learning.Learn();
  return learning.Json();
}

}  // namespace penstock
