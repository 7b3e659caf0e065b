#include "tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/check.h"
#include "tokenizer/characters.h"
#include "tokenizer/unicode_classes.h"

namespace penstock {
namespace {

constexpr int kDecompositionMax = 32;  // characters of one; Unicode has 4 at most

int CombiningClass(char32_t code) {
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(code))->combining_class;
}

// Calls `take` with the characters of `code`'s canonical decomposition.
template <typename Take>
void Decompose(char32_t code, Take take) {
  utf8proc_int32_t parts[kDecompositionMax];
  int boundary = 0;
  const utf8proc_ssize_t count = utf8proc_decompose_char(
      static_cast<utf8proc_int32_t>(code), parts, kDecompositionMax, UTF8PROC_DECOMPOSE, &boundary);
  if (count < 0 || count > kDecompositionMax) {
    take(code);
    return;
  }
  for (utf8proc_ssize_t k = 0; k < count; ++k) take(static_cast<char32_t>(parts[k]));
}

// A letter's combining marks in canonical order, which is by class and else as they came.
class MarkOrder {
 public:
  // Calls `take` with what comes before `code` for certain, and keeps the rest.
  template <typename Take>
  void Put(char32_t code, Take take) {
    const int combining_class = CombiningClass(code);
    if (combining_class != 0) {
      marks_.emplace_back(combining_class, code);
      return;
    }
    Flush(take);
    take(code);
  }
  template <typename Take>
  void Flush(Take take) {
    if (marks_.empty()) return;
    std::stable_sort(marks_.begin(), marks_.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& mark : marks_) take(mark.second);
    marks_.clear();
  }

 private:
  std::vector<std::pair<int, char32_t>> marks_;
};

// Whether a character neither changes in NFC nor is put together with one before it.
bool IsInert(char32_t code) {
  if (code < 0x300) return true;  // nothing there does but by what follows it, which is above
  const utf8proc_property_t& property = *utf8proc_get_property(static_cast<utf8proc_int32_t>(code));
  // A syllable of Hangul is put together with what is behind it alone; these are what comes behind.
  const bool is_jamo = (code >= 0x1161 && code <= 0x1175) || (code >= 0x11A8 && code <= 0x11C2);
  const bool composes_with_one_before =
      property.comb_index >= 0x8000 && property.comb_index != UINT16_MAX;
  return property.combining_class == 0 && property.decomp_seqindex == UINT16_MAX &&
         !composes_with_one_before && !is_jamo;
}

// Writes the characters of `text` in NFC. utf8proc would sort marks by exchanging neighbours, which takes minutes for a text of
// nothing else. So it is given them in order, and composes.
void ApplyNfc(absl::string_view text, std::vector<utf8proc_int32_t>& codes, std::string& result) {
  codes.clear();
  MarkOrder order;
  const auto take = [&](char32_t code) { codes.push_back(static_cast<utf8proc_int32_t>(code)); };
  while (!text.empty()) {
    const Character character = ReadCharacter(text);
    text.remove_prefix(character.bytes);
    Decompose(character.code, [&](char32_t part) { order.Put(part, take); });
  }
  order.Flush(take);
  const utf8proc_ssize_t count =
      utf8proc_normalize_utf32(codes.data(), static_cast<utf8proc_ssize_t>(codes.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  PENSTOCK_CHECK(count >= 0 && count <= static_cast<utf8proc_ssize_t>(codes.size()));
  for (utf8proc_ssize_t k = 0; k < count; ++k) {
    AppendCharacter(static_cast<char32_t>(codes[k]), result);
  }
}

// Copies what is inert. What is not changes together with the character before it. A byte that is part of no character stays,
// and parts what is before it from what is behind.
void ApplyNfcWhereNeeded(absl::string_view text, std::string& result) {
  std::vector<utf8proc_int32_t> codes;
  size_t copied = 0, before = 0;  // what the result has; where the character before begins
  for (size_t at = 0; at < text.size();) {
    const Character first = ReadCharacter(text.substr(at));
    if (!first.valid || IsInert(first.code)) {
      before = first.valid ? at : at + 1;
      at += first.bytes;
      continue;
    }
    while (at < text.size()) {
      const Character next = ReadCharacter(text.substr(at));
      if (!next.valid || IsInert(next.code)) break;
      at += next.bytes;
    }
    result.append(text.data() + copied, before - copied);
    ApplyNfc(text.substr(before, at - before), codes, result);
    copied = before = at;
  }
  result.append(text.data() + copied, text.size() - copied);
}

bool IsIdeograph(char32_t code) {
  return (code >= 0x4E00 && code <= 0x9FFF) || (code >= 0x3400 && code <= 0x4DBF) ||
         (code >= 0x20000 && code <= 0x2A6DF) || (code >= 0x2A700 && code <= 0x2B73F) ||
         (code >= 0x2B740 && code <= 0x2B81F) || (code >= 0x2B920 && code <= 0x2CEAF) ||
         (code >= 0xF900 && code <= 0xFAFF) || (code >= 0x2F800 && code <= 0x2FA1F);
}

class BertRun {
 public:
  BertRun(const BertNormalization& steps, std::string& result) : steps_(steps), result_(result) {}

  void Run(absl::string_view text) {
    while (!text.empty()) {
      const Character character = ReadCharacter(text);
      text.remove_prefix(character.bytes);
      Clean(character.code);
    }
    order_.Flush(lower_);
  }

 private:
  void Clean(char32_t code) {
    if (steps_.clean_text) {
      if (code == 0 || code == kReplacementCharacter || IsControl(code)) return;
      if (IsWhiteSpace(code)) code = ' ';
    }
    if (!steps_.handle_chinese_chars || !IsIdeograph(code)) return StripAccents(code);
    StripAccents(' ');
    StripAccents(code);
    StripAccents(' ');
  }

  void StripAccents(char32_t code) {
    if (!steps_.strip_accents) return Lower(code);
    if (code < 0x80) {
      order_.Flush(lower_);
      return Lower(code);
    }
    Decompose(code, [&](char32_t part) {
      if (!IsNonspacingMark(part)) order_.Put(part, lower_);
    });
  }

  void Lower(char32_t code) {
    if (!steps_.lowercase) return AppendCharacter(code, result_);
    if (code < 0x80) {
      result_ += static_cast<char>(code >= 'A' && code <= 'Z' ? code - 'A' + 'a' : code);
      return;
    }
    if (code == 0x130) {  // the only one with two characters: i and a dot above
      result_ += "i\xCC\x87";
      return;
    }
    AppendCharacter(LowerCaseOf(code), result_);
  }

  const BertNormalization& steps_;
  std::string& result_;
  MarkOrder order_;
  struct {
    BertRun* run;
    void operator()(char32_t code) const { run->Lower(code); }
  } lower_{this};
};

}  // namespace

absl::string_view Normalizer::Apply(absl::string_view text, std::string& buffer) const {
  for (const Step& step : steps_) {
    std::string result;
    result.reserve(text.size());
    if (const auto* const bert = std::get_if<BertNormalization>(&step)) {
      BertRun(*bert, result).Run(text);
    } else {
      ApplyNfcWhereNeeded(text, result);
    }
    buffer.swap(result);
    text = buffer;
  }
  return text;
}

}  // namespace penstock
