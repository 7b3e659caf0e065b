#include "tokenizer/character_tokenizer.h"

#include <set>

#include "nlohmann/json.hpp"
#include "tokenizer/characters.h"

namespace penstock {

std::vector<char32_t> AlphabetOf(absl::string_view text) {
  std::set<char32_t> codes;
  while (!text.empty()) {
    const Character character = ReadCharacter(text);
    codes.insert(character.code);
    text.remove_prefix(character.bytes);
  }
  return {codes.begin(), codes.end()};
}

std::string CharacterTokenizerJson(absl::string_view text) {
  using Json = nlohmann::ordered_json;
  Json vocabulary = Json::object();
  // Without a search for each character, which are different.
  auto& entries = vocabulary.get_ref<Json::object_t&>();
  for (const char32_t code : AlphabetOf(text)) {
    std::string character;
    AppendCharacter(code, character);
    entries.emplace_back(character, entries.size());
  }
  const Json file = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", Json::array()},
      {"normalizer", nullptr},
      {"pre_tokenizer",
       {{"type", "Split"},
        {"pattern", {{"Regex", R"(\s|\S)"}}},
        {"behavior", "Isolated"},
        {"invert", false}}},
      {"post_processor", nullptr},
      {"decoder", {{"type", "Fuse"}}},
      // The format asks for an unknown token; none of the characters is it.
      {"model", {{"type", "WordLevel"}, {"vocab", vocabulary}, {"unk_token", "[UNK]"}}}};
  return file.dump(1) + "\n";
}

}  // namespace penstock
