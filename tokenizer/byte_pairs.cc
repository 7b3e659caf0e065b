#include "tokenizer/byte_pairs.h"

#include <algorithm>
#include <bit>

namespace penstock {

BytePairs::BytePairs(const std::array<int32_t, 256>& byte_ids, const std::vector<Merge>& merges)
    : byte_ids_(byte_ids) {
  const size_t slots = std::bit_ceil(std::max<size_t>(16, merges.size() * 2));
  entries_.resize(slots);
  mask_ = slots - 1;
  shift_ = 64 - std::countr_zero(slots);
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const Merge& merge = merges[rank];
    const uint64_t pair = PairOf(merge.left, merge.right);
    size_t at = Home(pair);
    while (entries_[at].pair != pair && entries_[at].pair != kNoPair) at = (at + 1) & mask_;
    entries_[at] = {pair, static_cast<uint32_t>(rank), merge.merged};
  }
  byte_entries_.resize(256 * 256);
  for (int left = 0; left < 256; ++left) {
    for (int right = 0; right < 256; ++right) {
      byte_entries_[left * 256 + right] = Find(byte_ids_[left], byte_ids_[right]);
    }
  }
}

void BytePairs::Encode(absl::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const {
  if (word.size() <= kShortWordMax) {
    EncodeShort(word, ids);
  } else {
    EncodeLong(word, scratch, ids);
  }
}

void BytePairs::EncodeShort(absl::string_view word, std::vector<int32_t>& ids) const {
  int32_t symbols[kShortWordMax];
  uint32_t ranks[kShortWordMax];   // of the pair that begins there
  int32_t results[kShortWordMax];  // what it becomes
  int count = static_cast<int>(word.size());
  if (count == 0) return;
  const auto byte = [&](int i) { return static_cast<uint8_t>(word[i]); };
  for (int i = 0; i < count; ++i) symbols[i] = byte_ids_[byte(i)];
  for (int i = 0; i + 1 < count; ++i) {
    const Entry& entry = byte_entries_[byte(i) * 256 + byte(i + 1)];
    ranks[i] = entry.rank;
    results[i] = entry.merged;
  }
  const auto look = [&](int i) {
    const Entry& entry = Find(symbols[i], symbols[i + 1]);
    ranks[i] = entry.rank;
    results[i] = entry.merged;
  };
  while (count > 1) {
    int best = 0;
    for (int i = 1; i + 1 < count; ++i) {
      if (ranks[i] < ranks[best]) best = i;
    }
    if (ranks[best] == kNoRank) break;
    symbols[best] = results[best];
    for (int i = best + 1; i + 1 < count; ++i) symbols[i] = symbols[i + 1];
    for (int i = best + 1; i + 2 < count; ++i) {
      ranks[i] = ranks[i + 1];
      results[i] = results[i + 1];
    }
    --count;
    if (best > 0) look(best - 1);
    if (best + 1 < count) look(best);
  }
  ids.insert(ids.end(), symbols, symbols + count);
}

void BytePairs::EncodeLong(absl::string_view word, Scratch& scratch,
                           std::vector<int32_t>& ids) const {
  std::vector<Scratch::Symbol>& symbols = scratch.symbols;
  std::vector<Scratch::Candidate>& heap = scratch.heap;
  const auto count = static_cast<int32_t>(word.size());
  symbols.clear();
  heap.clear();
  for (int32_t i = 0; i < count; ++i) {
    symbols.push_back(
        {byte_ids_[static_cast<uint8_t>(word[i])], i - 1, i + 1 < count ? i + 1 : -1});
  }
  const auto offer = [&](int32_t at) {
    const int32_t next = at < 0 ? -1 : symbols[at].next;
    if (next < 0) return false;
    const uint32_t rank = Find(symbols[at].id, symbols[next].id).rank;
    if (rank == kNoRank) return false;
    heap.push_back({rank, at});
    return true;
  };
  for (int32_t i = 0; i < count; ++i) offer(i);
  std::make_heap(heap.begin(), heap.end());
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const Scratch::Candidate candidate = heap.back();
    heap.pop_back();
    Scratch::Symbol& left = symbols[candidate.at];
    // It may be gone, or another pair by now.
    if (left.id < 0 || left.next < 0) continue;
    Scratch::Symbol& right = symbols[left.next];
    const Entry& entry = Find(left.id, right.id);
    if (entry.rank != candidate.rank) continue;
    left.id = entry.merged;
    right.id = -1;
    left.next = right.next;
    if (left.next >= 0) symbols[left.next].previous = candidate.at;
    if (offer(left.previous)) std::push_heap(heap.begin(), heap.end());
    if (offer(candidate.at)) std::push_heap(heap.begin(), heap.end());
  }
  for (int32_t at = 0; at >= 0; at = symbols[at].next) ids.push_back(symbols[at].id);
}

}  // namespace penstock
