// BlockDelayMeter: the block delay (block_delay.h) of a run, measured while it goes on.
//
// It takes the merged timeline of all workers piece by piece. Forwards count at their start, updates at their end, and
// each once, although the pieces overlap. (docs/adr/0026-measured-block-delay.md says why clocks are needed.)
//
// Only the steady state counts: of each range between two cuts all microbatches but the first and the last 2S, in which
// the pipeline fills and drains. A microbatch counts if the pieces hold all of its forwards and every update since the
// first of them. Where spans are missing between two pieces, the microbatches under way do not count.
//
// Thread-compatible.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "schedule/block_delay_counter.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace penstock {

class BlockDelayMeter {
 public:
  // `stages`: of all `pipelines`, which are equally deep. `ranges`: the microbatches between two cuts each, ascending.
  BlockDelayMeter(int32_t stages, int32_t pipelines, std::vector<MicrobatchRange> ranges);

  // Counts the part of a piece that is new, as far as every worker has told of it. Without effect if a worker has no
  // passes in it. A piece has all that the workers did in its span of time, and other spans are passed over.
  void Add(const Timeline& piece);

  // Where weights are sampled, their delays are what was sampled, whatever the timing. Counts those of the microbatches
  // before `end` that it has not counted yet.
  void AddSampled(const WeightPolicy& policy, int64_t end);

  // Until when the timeline has been counted; none before the first piece.
  std::optional<int64_t> until_ns() const { return until_ns_; }
  BlockDelay delay() const { return counter_.delay(); }

 private:
  // The spans of a worker were taken up to here: `spans_after` of them after a pass, which happens once in a run.
  struct Place {
    std::optional<Action> pass;
    int64_t spans_after = 0;
  };

  // The range of a microbatch; null if it is of none.
  const MicrobatchRange* RangeOf(int64_t microbatch) const;
  bool Counts(int64_t microbatch) const;

  const int32_t stages_;
  const int32_t depth_;
  const std::vector<MicrobatchRange> ranges_;
  BlockDelayCounter counter_;
  BlockEventReader reader_;
  std::vector<Place> places_;  // by worker
  std::optional<int64_t> until_ns_;
  int64_t sampled_end_ = 0;
};

}  // namespace penstock
