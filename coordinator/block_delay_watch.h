// BlockDelayWatch: when the workers of a run are asked what they computed, and the block delay that their answers show
// (schedule/block_delay_meter.h).
//
// Workers are asked only by a run whose updates may be stale. Where weights are sampled nobody need be asked.
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

// Delays are told one by one up to this; a distribution has a row for each and for each stage.
inline constexpr int64_t kBlockDelaysExact = 255;

// What the messages of a job's result say of a block delay. `longest`: the greatest that is told by itself.
void WriteBlockDelay(const BlockDelay& delay, int64_t longest, v1::Statistic& statistic,
                     google::protobuf::RepeatedPtrField<v1::DelayCounts>& counts);

class BlockDelayWatch {
 public:
  // From an answer to the next question.
  static constexpr int64_t kIntervalNs = 2'000'000'000;

  // Of no run.
  BlockDelayWatch() = default;
  // Of a run of `job` after `first_step` with cuts after the steps `cuts`.
  BlockDelayWatch(const ResolvedJob& job, const Topology& topology, int64_t first_step,
                  absl::Span<const int64_t> cuts);

  // The workers have begun to train.
  void Start(Now now) { ask_at_ns_ = now.monotonic_ns + kIntervalNs; }
  // When they are to be asked; none while an answer is on its way, or if they need not be asked.
  std::optional<int64_t> AskAtNs() const;
  // How much of the timeline to ask for if that is now. OnGathered must follow.
  std::optional<int64_t> Ask(Now now);
  // What the workers answered, or what was gathered at the end.
  void OnGathered(const Timeline& passes, Now now);
  void OnStep(int64_t step);

  // Adds what is known to a result that has the stages' reports.
  void WriteTo(v1::JobResult& result) const;

 private:
  std::unique_ptr<BlockDelayMeter>
      meter_;  // null: no update is stale, or replicas make a microbatch's own stages
  std::optional<WeightPolicy> samples_;  // of a method that samples weights
  int64_t microbatches_of_step_ = 0;
  int64_t longest_ = 0;
  std::optional<int64_t> ask_at_ns_;
};

}  // namespace penstock
