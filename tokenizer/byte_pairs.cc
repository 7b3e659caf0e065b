#include "tokenizer/byte_pairs.h"

namespace penstock {
namespace {

std::vector<PairMerges::Merge> Ranked(const std::vector<BytePairs::Merge>& merges) {
  std::vector<PairMerges::Merge> ranked;
  ranked.reserve(merges.size());
  for (const BytePairs::Merge& merge : merges) {
    ranked.push_back({merge.left, merge.right, static_cast<uint32_t>(ranked.size()), merge.merged});
  }
  return ranked;
}

}  // namespace

BytePairs::BytePairs(const std::array<int32_t, 256>& byte_ids, const std::vector<Merge>& merges)
    : byte_ids_(byte_ids), merges_(Ranked(merges)), of_bytes_(256 * 256) {
  for (int left = 0; left < 256; ++left) {
    for (int right = 0; right < 256; ++right) {
      of_bytes_[left * 256 + right] = merges_.Find(byte_ids_[left], byte_ids_[right]);
    }
  }
}

void BytePairs::Encode(absl::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const {
  if (word.empty()) return;
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(word[i]); };
  scratch.symbols.resize(word.size());
  scratch.results.resize(word.size());
  for (size_t i = 0; i < word.size(); ++i) {
    scratch.symbols[i] = byte_ids_[byte(i)];
    if (i + 1 < word.size()) scratch.results[i] = of_bytes_[byte(i) * 256 + byte(i + 1)];
  }
  merges_.Apply(scratch.symbols, scratch.results, scratch.merges, ids);
}

}  // namespace penstock
