// BlockDelayWatch: what the workers of a run are to tell of what they computed, and the block delay that their answers
// show (schedule/block_delay_meter.h).
//
// Only a run whose updates may be stale asks its workers for it. A run that samples weights need not ask.
//
// A state machine without clock or I/O; thread-compatible.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "coordinator/effects.h"
#include "job/resolve.h"
#include "penstock/v1/cluster.pb.h"
#include "schedule/block_delay_meter.h"

namespace penstock {

// Delays are counted one by one up to this; a distribution has a row for each and for each stage.
inline constexpr int64_t kBlockDelaysExact = 255;

// Writes a block delay into the messages of a job's result. `longest`: the greatest delay that is counted by itself.
void WriteBlockDelay(const BlockDelay& delay, int64_t longest, v1::Statistic& statistic,
                     google::protobuf::RepeatedPtrField<v1::DelayCounts>& counts);

class BlockDelayWatch {
 public:
  // The time from an answer to the next question.
  static constexpr int64_t kIntervalNs = 2'000'000'000;

  // Watches no run.
  BlockDelayWatch() = default;
  // Watches a run of `job` after `first_step` with cuts after the steps `cuts`.
  BlockDelayWatch(const ResolvedJob& job, const Topology& topology, int64_t first_step,
                  absl::Span<const int64_t> cuts);

  // Returns whether the workers are to be asked.
  bool Asks() const { return meter_ != nullptr && !samples_.has_value(); }
  // Returns how much of the timeline to ask for now; 0: nothing.
  int64_t LastNs(Now now) const;
  // Takes what the workers answered, or what was gathered at the end.
  void OnGathered(const Timeline& passes);
  void OnStep(int64_t step);

  // Adds what is known to a result that has the stages' reports.
  void WriteTo(v1::JobResult& result) const;

 private:
  std::unique_ptr<BlockDelayMeter>
      meter_;  // null: no update is stale, or replicas make a microbatch's own stages
  std::optional<WeightPolicy> samples_;  // of a method that samples weights
  int64_t microbatches_of_step_ = 0;
  int64_t longest_ = 0;
};

}  // namespace penstock
