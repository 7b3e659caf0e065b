// BlockDelayCounter: the block delays (block_delay.h) in a history of forwards and updates, event after event.
//
// Thread-compatible.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "schedule/block_delay.h"
#include "schedule/timeline.h"

namespace penstock {

// A forward, or a microbatch that an update takes in. An update of several microbatches is as many events in a row.
struct BlockEvent {
  int64_t time = 0;
  int32_t stage = 0;
  bool is_update = false;
  int64_t microbatch = 0;   // for an update, that of the W that led to it
  bool ends_update = true;  // no more microbatches of the same update follow

  // A stage does one thing after the other: what starts when an update ends comes after it.
  std::tuple<int64_t, int32_t, bool> Order() const { return {time, stage, !is_update}; }
};

// By time.
void SortEvents(std::vector<BlockEvent>& events);

// True if a span is a forward, a backward for the weights or an update of one of `stages` stages.
bool MakesBlockEvents(const Span& span, int32_t stages);

// Finds the events in such spans: forwards at their start, updates at their end.
class BlockEventReader {
 public:
  explicit BlockEventReader(int32_t stages) : gathered_(stages) {}

  // Appends the events of `span`, of the order in which its stage began them.
  void Add(const Span& span, std::vector<BlockEvent>& events);
  // Spans are missing: the update that comes next is of unknown microbatches.
  void Forget();

 private:
  std::vector<std::vector<int64_t>> gathered_;  // microbatches since the last update, by stage
};

class BlockDelayCounter {
 public:
  // `stages`: of all pipelines, each of `depth`.
  BlockDelayCounter(int32_t stages, int32_t depth);

  // Events in their order; each pipeline has a history of its own. `counts`: whether delays of the microbatch do, once
  // all its stages have updated. Where clocks err by more than a microbatch takes, an update may seem to come before a
  // forward; that microbatch does not count.
  void Add(const BlockEvent& event, bool counts);
  // A delay that was sampled, of the forward on stage `place` of a pipeline.
  void AddSampled(int32_t place, int64_t updates);
  // Events are missing: the microbatches under way do not count.
  void Forget() { under_way_.clear(); }

  // Zero where no update was stale.
  BlockDelay delay() const;

 private:
  // The updates that came before the forward of a microbatch on one stage.
  struct Seen {
    int64_t history = -1;  // block updates; -1 before the forward
    int64_t own = 0;       // of them, updates of this stage
  };
  struct UnderWay {
    std::vector<Seen> forwards;    // by stage of its pipeline
    int32_t taken_in = 0;          // the number of stages whose updates took it in
    std::vector<int64_t> updates;  // the history before those that came after all forwards
  };

  void AddDelay(int32_t place, int64_t updates);

  const int32_t depth_;
  std::map<int64_t, UnderWay> under_way_;  // by microbatch
  std::vector<int64_t> histories_;         // updates, by pipeline
  std::vector<int64_t> own_;               // updates, by stage
  std::vector<std::vector<int64_t>> pairs_;
  int64_t count_ = 0;
  int64_t sum_ = 0;
  bool stale_ = false;
};

}  // namespace penstock
