#include "schedule/block_delay_counter.h"

#include <algorithm>

namespace penstock {

void SortEvents(std::vector<BlockEvent>& events) {
  std::stable_sort(events.begin(), events.end(),
                   [](const BlockEvent& a, const BlockEvent& b) { return a.Order() < b.Order(); });
}

bool MakesBlockEvents(const Span& span, int32_t stages) {
  const ActionKind kind = span.action.kind;
  return span.lane == Lane::kCompute && span.action.index < stages &&
         (kind == ActionKind::kForward || kind == ActionKind::kBackwardWeight ||
          kind == ActionKind::kUpdate);
}

void BlockEventReader::Add(const Span& span, std::vector<BlockEvent>& events) {
  const int32_t stage = span.action.index;
  std::vector<int64_t>& gathered = gathered_[stage];
  switch (span.action.kind) {
    case ActionKind::kForward:
      events.push_back(
          {.time = span.start_ns, .stage = stage, .microbatch = span.action.microbatch});
      return;
    case ActionKind::kBackwardWeight:
      gathered.push_back(span.action.microbatch);
      return;
    case ActionKind::kUpdate:
      for (const int64_t microbatch : gathered) {
        events.push_back({.time = span.end_ns,
                          .stage = stage,
                          .is_update = true,
                          .microbatch = microbatch,
                          .ends_update = microbatch == gathered.back()});
      }
      gathered.clear();
      return;
    default:
      return;
  }
}

void BlockEventReader::Forget() {
  for (std::vector<int64_t>& gathered : gathered_) gathered.clear();
}

BlockDelayCounter::BlockDelayCounter(int32_t stages, int32_t depth)
    : depth_(depth), histories_(stages / depth), own_(stages), pairs_(depth) {}

void BlockDelayCounter::Add(const BlockEvent& event, bool counts) {
  int64_t& history = histories_[event.stage / depth_];
  int64_t& own = own_[event.stage];
  if (!event.is_update) {
    std::vector<Seen>& forwards = under_way_[event.microbatch].forwards;
    forwards.resize(depth_);
    if (forwards[event.stage % depth_].history < 0) forwards[event.stage % depth_] = {history, own};
    return;
  }
  if (const auto found = under_way_.find(event.microbatch); found != under_way_.end()) {
    const std::vector<Seen>& forwards = found->second.forwards;
    std::vector<int64_t>& updates = found->second.updates;
    const bool complete = std::all_of(forwards.begin(), forwards.end(),
                                      [](const Seen& seen) { return seen.history >= 0; });
    if (complete) {
      stale_ |= forwards[event.stage % depth_].own != own;
      updates.push_back(history);
    }
    if (++found->second.taken_in == depth_) {
      const bool known = static_cast<int32_t>(updates.size()) == depth_;
      for (int32_t place = 0; counts && known && place < depth_; ++place) {
        for (const int64_t before : updates) AddDelay(place, before - forwards[place].history);
      }
      under_way_.erase(found);
    }
  }
  if (!event.ends_update) return;
  ++history;
  ++own;
}

void BlockDelayCounter::AddDelay(int32_t place, int64_t updates) {
  std::vector<int64_t>& pairs = pairs_[place];
  if (static_cast<int64_t>(pairs.size()) <= updates) pairs.resize(updates + 1);
  ++pairs[updates];
  ++count_;
  sum_ += updates;
}

void BlockDelayCounter::AddSampled(int32_t place, int64_t updates) {
  stale_ |= updates > 0;
  AddDelay(place, updates);
}

BlockDelay BlockDelayCounter::delay() const {
  BlockDelay delay = {.count = count_};
  if (!stale_ || count_ == 0) return delay;
  for (const std::vector<int64_t>& pairs : pairs_) {
    delay.max = std::max(delay.max, static_cast<int64_t>(pairs.size()) - 1);
  }
  delay.mean = static_cast<double>(sum_) / static_cast<double>(count_);
  delay.pairs = pairs_;
  return delay;
}

}  // namespace penstock
