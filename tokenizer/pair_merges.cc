#include "tokenizer/pair_merges.h"

#include <algorithm>
#include <bit>

namespace penstock {

PairMerges::PairMerges(const std::vector<Merge>& merges) {
  const size_t slots = std::bit_ceil(std::max<size_t>(16, merges.size() * 2));
  entries_.resize(slots);
  mask_ = slots - 1;
  shift_ = 64 - std::countr_zero(slots);
  for (const auto& merge : merges) {
    const uint64_t pair = PairOf(merge.left, merge.right);
    size_t at = Home(pair);
    while (entries_[at].pair != pair && entries_[at].pair != kNoPair) at = (at + 1) & mask_;
    entries_[at] = {pair, {merge.rank, merge.merged}};
  }
}

size_t PairMerges::ApplyShort(size_t size, int32_t* symbols, Result* results) const {
  auto count = static_cast<int>(size);
  while (count > 1) {
    int best = 0;
    for (int i = 1; i + 1 < count; ++i) {
      if (results[i].rank < results[best].rank) best = i;
    }
    if (results[best].rank == kNoRank) break;
    symbols[best] = results[best].merged;
    for (int i = best + 1; i + 1 < count; ++i) symbols[i] = symbols[i + 1];
    for (int i = best + 1; i + 2 < count; ++i) results[i] = results[i + 1];
    --count;
    if (best > 0) results[best - 1] = Find(symbols[best - 1], symbols[best]);
    if (best + 1 < count) results[best] = Find(symbols[best], symbols[best + 1]);
  }
  return static_cast<size_t>(count);
}

void PairMerges::Apply(std::vector<int32_t>& symbols, std::vector<Result>& results,
                       Scratch& scratch, std::vector<int32_t>& ids) const {
  if (symbols.size() > kShortMax) return ApplyLong(symbols, results, scratch, ids);
  const size_t count = ApplyShort(symbols.size(), symbols.data(), results.data());
  ids.insert(ids.end(), symbols.data(), symbols.data() + count);
}

void PairMerges::ApplyLong(const std::vector<int32_t>& row, const std::vector<Result>& results,
                           Scratch& scratch, std::vector<int32_t>& ids) const {
  std::vector<Scratch::Symbol>& symbols = scratch.symbols;
  std::vector<Scratch::Candidate>& heap = scratch.heap;
  const auto count = static_cast<int32_t>(row.size());
  symbols.clear();
  heap.clear();
  for (int32_t i = 0; i < count; ++i) {
    symbols.push_back({row[i], i - 1, i + 1 < count ? i + 1 : -1});
  }
  const auto offer = [&](int32_t at) {
    const int32_t next = at < 0 ? -1 : symbols[at].next;
    if (next < 0) return false;
    const uint32_t rank = Find(symbols[at].id, symbols[next].id).rank;
    if (rank == kNoRank) return false;
    heap.push_back({rank, at});
    return true;
  };
  for (int32_t i = 0; i + 1 < count; ++i) {
    if (results[i].rank != kNoRank) heap.push_back({results[i].rank, i});
  }
  std::make_heap(heap.begin(), heap.end());
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const Scratch::Candidate candidate = heap.back();
    heap.pop_back();
    Scratch::Symbol& left = symbols[candidate.at];
    // It may be gone, or another pair by now.
    if (left.id < 0 || left.next < 0) continue;
    Scratch::Symbol& right = symbols[left.next];
    const Result result = Find(left.id, right.id);
    if (result.rank != candidate.rank) continue;
    left.id = result.merged;
    right.id = -1;
    left.next = right.next;
    if (left.next >= 0) symbols[left.next].previous = candidate.at;
    if (offer(left.previous)) std::push_heap(heap.begin(), heap.end());
    if (offer(candidate.at)) std::push_heap(heap.begin(), heap.end());
  }
  for (int32_t at = 0; at >= 0; at = symbols[at].next) ids.push_back(symbols[at].id);
}

}  // namespace penstock
