// StageCounts: what a stage held and did, counted by its machine.
//
// Plain values.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace penstock {

// The updates of one stage between a read and what it is compared with, over all
// microbatches whose update is done (docs/glossary.md, "staleness" and "version drift").
struct StalenessCount {
  int64_t updates = 0;
  int64_t max = 0;
  int64_t sum = 0;  // over `microbatches`
  int64_t microbatches = 0;
  double mean() const {
    return microbatches == 0 ? 0.0 : static_cast<double>(sum) / static_cast<double>(microbatches);
  }
  void Add(const StalenessCount& more);
  friend bool operator==(const StalenessCount&, const StalenessCount&) = default;
};

// The number of microbatches that met each delay, in updates: exactly up to kExact - 1, the rest together.
struct DelayCounts {
  static constexpr int kExact = 16;
  std::array<int64_t, kExact + 1> microbatches = {};
  void Add(int64_t updates, int64_t count) {
    microbatches[std::min<int64_t>(updates, kExact)] += count;
  }
  friend bool operator==(const DelayCounts&, const DelayCounts&) = default;
};

// The distributions behind StageCounts: a microbatch is here from its W on, there from its UPDATE on.
struct StageDelays {
  DelayCounts staleness;
  DelayCounts version_drift;
  friend bool operator==(const StageDelays&, const StageDelays&) = default;
};

// The things that one stage held and did since the machine was made. Verified before a run, measured in it:
// the two must agree exactly.
struct StageCounts {
  StalenessCount staleness;      // version replaced by the update minus version the forward read
  StalenessCount version_drift;  // version backward read minus version forward read
  int64_t versions_live = 1;     // now: the current version and those still to be read
  int64_t versions_peak = 1;
  int64_t moved_copies = 0;      // predicted weights, beside the versions
  int64_t activations_live = 0;  // microbatches between F and W
  int64_t activations_peak = 0;
  int64_t resident_live =
      0;  // of them those that are on the device, from PREFETCH on and until EVICT
  int64_t resident_peak = 0;
  int64_t offloaded_live = 0;  // those that the host has room for, from OFFLOAD until PREFETCH
  int64_t offloaded_peak = 0;
  // Where weights are streamed: those of other workers that its worker held or had asked for when the stage had
  // just asked for its own, at most.
  int64_t streamed_peak = 0;
  void AddActivation() {
    activations_peak = std::max(activations_peak, ++activations_live);
    AddResident();
  }
  void AddResident() { resident_peak = std::max(resident_peak, ++resident_live); }
  void AddOffloaded() { offloaded_peak = std::max(offloaded_peak, ++offloaded_live); }
  friend bool operator==(const StageCounts&, const StageCounts&) = default;
};

// Adds the counts of one range to those of the ranges before it.
void AddRange(const StageCounts& range, StageCounts& total);

}  // namespace penstock
