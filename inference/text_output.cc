#include "inference/text_output.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "base/status.h"

namespace penstock {
namespace {

// Of the last tokens before a new one, as many are decoded with it.
constexpr size_t kTokensBefore = 8;
// Tokens that together make no character are shown as they are.
constexpr size_t kPendingMax = 16;

bool IsContinuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

// Whether the last character of `text` lacks bytes.
bool EndsWithinCharacter(absl::string_view text) {
  size_t behind = 0;  // bytes of the character behind its first
  while (behind < 3 && behind < text.size() && IsContinuation(text[text.size() - 1 - behind])) {
    ++behind;
  }
  if (behind == text.size()) return false;
  const auto first = static_cast<unsigned char>(text[text.size() - 1 - behind]);
  const size_t expected = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : first >= 0xC0 ? 1 : 0;
  return behind < expected;
}

// The longest end of `text` with which `stop` begins.
size_t Overlap(absl::string_view text, absl::string_view stop) {
  size_t length = std::min(text.size(), stop.size() - 1);
  while (!absl::EndsWith(text, stop.substr(0, length))) --length;
  return length;
}

}  // namespace

TextOutput::TextOutput(const Tokenizer& tokenizer, std::vector<int32_t> before,
                       std::vector<std::string> stops)
    : tokenizer_(tokenizer), stops_(std::move(stops)), taken_(std::move(before)) {
  if (taken_.size() > kTokensBefore) taken_.erase(taken_.begin(), taken_.end() - kTokensBefore);
}

absl::StatusOr<TextOutput::Decoded> TextOutput::Decode() const {
  std::vector<int32_t> all = taken_;
  all.insert(all.end(), pending_.begin(), pending_.end());
  PENSTOCK_ASSIGN_OR_RETURN(const std::string before, tokenizer_.Decode(taken_));
  PENSTOCK_ASSIGN_OR_RETURN(std::string text, tokenizer_.Decode(all));
  return Decoded{std::move(text), before.size()};
}

absl::StatusOr<std::string> TextOutput::Add(int32_t token) {
  if (stopped_) return std::string();
  pending_.push_back(token);
  PENSTOCK_ASSIGN_OR_RETURN(const Decoded decoded, Decode());
  const bool waits = EndsWithinCharacter(decoded.text) && pending_.size() < kPendingMax;
  if (waits || decoded.text.size() < decoded.begin) return std::string();
  held_ += decoded.text.substr(decoded.begin);
  taken_ = std::exchange(pending_, {});
  return TakeSure();
}

std::string TextOutput::TakeSure() {
  size_t sure = held_.size();
  for (const std::string& stop : stops_) {
    const size_t found = held_.find(stop);
    if (found == std::string::npos) {
      sure = std::min(sure, held_.size() - Overlap(held_, stop));
      continue;
    }
    stopped_ = true;
    sure = std::min(sure, found);
  }
  std::string text = held_.substr(0, sure);
  held_.erase(0, stopped_ ? held_.size() : sure);
  return text;
}

std::string TextOutput::TakeRest() {
  std::string text = std::exchange(held_, {});
  if (stopped_ || pending_.empty()) return text;
  const absl::StatusOr<Decoded> decoded = Decode();
  pending_.clear();
  if (decoded.ok() && decoded->text.size() > decoded->begin) {
    text += decoded->text.substr(decoded->begin);
  }
  return text;
}

}  // namespace penstock
