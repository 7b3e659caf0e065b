#include "studies/theory/delays.h"

#include <algorithm>
#include <vector>

#include "schedule/block_draws.h"

namespace penstock {
namespace {

// A place in the history, by several clocks.
struct Place {
  int64_t in_order = -1;   // updates before, those of the same tick and lower places included
  int64_t tick_start = 0;  // updates before the tick
  int64_t tick_end = 0;    // updates up to its end
  int64_t own = 0;         // updates of the own stage before
};

int64_t DelayBetween(const Place& read, const Place& write, DelayConvention convention) {
  switch (convention) {
    case DelayConvention::kReplay:
    case DelayConvention::kReplayDescending:
    case DelayConvention::kOwnBlock:
      return write.in_order - read.in_order;
    case DelayConvention::kReadAtStart:
      return write.in_order - read.tick_start;
    case DelayConvention::kReadAtEnd:
      return write.in_order - read.tick_end;
    case DelayConvention::kTickToTick:
      return write.tick_start - read.tick_start;
    case DelayConvention::kLocal:
      return write.own - read.own;
  }
  return 0;
}

class Counter {
 public:
  Counter(const TickSequence& sequence, DelayConvention convention)
      : sequence_(sequence),
        convention_(convention),
        first_(sequence.microbatches / 2),
        end_(sequence.microbatches - 2 * sequence.stages),
        own_(sequence.stages),
        reads_(sequence.updates()) {}

  Delays Count() {
    const std::vector<TickEvent>& events = sequence_.events;
    for (size_t begin = 0; begin < events.size();) {
      size_t end = begin;
      while (end < events.size() && events[end].tick == events[begin].tick) ++end;
      CountTick(begin, end);
      begin = end;
    }
    if (delays_.count > 0) {
      delays_.mean = static_cast<double>(sum_) / static_cast<double>(delays_.count);
    }
    return delays_;
  }

 private:
  void CountTick(size_t begin, size_t end) {
    const auto first = sequence_.events.begin() + static_cast<int64_t>(begin);
    std::vector<TickEvent> tick(first, first + static_cast<int64_t>(end - begin));
    if (convention_ == DelayConvention::kReplayDescending) std::reverse(tick.begin(), tick.end());
    Place place{.tick_start = history_};
    place.tick_end = history_ + std::count_if(tick.begin(), tick.end(), [](const TickEvent& event) {
                       return event.is_backward;
                     });
    for (const TickEvent& event : tick) {
      place.in_order = history_;
      place.own = own_[event.stage];
      if (event.is_backward) {
        Write(event, place);
        ++history_;
        ++own_[event.stage];
      } else {
        ReadOf(event.microbatch, event.stage) = place;
      }
    }
  }

  Place& ReadOf(int64_t microbatch, int32_t stage) {
    return reads_[microbatch * sequence_.stages + stage];
  }

  void Write(const TickEvent& event, const Place& place) {
    if (event.microbatch < first_ || event.microbatch >= end_) return;
    const bool own_alone =
        convention_ == DelayConvention::kOwnBlock || convention_ == DelayConvention::kLocal;
    for (int32_t stage = 0; stage < sequence_.stages; ++stage) {
      if (own_alone && stage != event.stage) continue;
      const int64_t delay = DelayBetween(ReadOf(event.microbatch, stage), place, convention_);
      delays_.max = std::max(delays_.max, delay);
      sum_ += delay;
      ++delays_.count;
    }
  }

  const TickSequence& sequence_;
  const DelayConvention convention_;
  const int64_t first_;  // microbatches that count: [first_, end_)
  const int64_t end_;
  int64_t history_ = 0;
  std::vector<int64_t> own_;  // updates by stage
  std::vector<Place> reads_;  // by microbatch and stage
  int64_t sum_ = 0;
  Delays delays_;
};

}  // namespace

absl::string_view ConventionLetter(DelayConvention convention) {
  constexpr absl::string_view kLetters[] = {"A", "A'", "B", "C", "D", "E", "F"};
  return kLetters[static_cast<int>(convention)];
}

absl::string_view ConventionMeaning(DelayConvention convention) {
  constexpr absl::string_view kMeanings[] = {"replay, ascending stages",
                                             "replay, descending stages",
                                             "read at tick start",
                                             "read at tick end",
                                             "tick to tick",
                                             "replay, own block alone",
                                             "own stage's updates alone"};
  return kMeanings[static_cast<int>(convention)];
}

Delays CountDelays(const TickSequence& sequence, DelayConvention convention) {
  return Counter(sequence, convention).Count();
}

int64_t SteadyMicrobatches(int32_t stages) { return 8 * int64_t{stages} + 2; }

Delays PipeDreamDelays(int32_t stages, DelayConvention convention) {
  if (stages == 1) return {};
  const int64_t squared = int64_t{stages} * stages;
  const auto s = static_cast<double>(stages);
  const bool odd = stages % 2 != 0;
  // Mean place of an update among those of its tick, and mean updates in the tick of a forward.
  const double place_in_tick = odd ? (s - 1) * (s - 1) / (4 * s) : (s - 2) / 4;
  const double beside_forward = odd ? (s * s - 1) / (2 * s) : s / 2;
  const double tick_to_tick = odd ? s * s / 2 - 1 / (2 * s) : s * s / 2;
  const int64_t most = PipelineDelay(stages);
  switch (convention) {
    case DelayConvention::kReplay:
    case DelayConvention::kOwnBlock:
      return {.max = most, .mean = (s * s - 1) / 2};
    case DelayConvention::kReplayDescending:
      return {.max = odd ? most : most - 1, .mean = (s * s - 1) / 2};
    case DelayConvention::kReadAtStart:
      return {.max = most, .mean = tick_to_tick + place_in_tick};
    case DelayConvention::kReadAtEnd:
      return {.max = squared - stages, .mean = tick_to_tick + place_in_tick - beside_forward};
    case DelayConvention::kTickToTick:
      return {.max = most, .mean = tick_to_tick};
    case DelayConvention::kLocal:
      return {.max = stages - 1, .mean = (s - 1) / 2};
  }
  return {};
}

}  // namespace penstock
