// GradientLedger: the gradient that a stage has accumulated since its last UPDATE, told by its
// microbatches.
//
// Plain values.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "schedule/schedule.h"
#include "schedule/stage_counts.h"

namespace penstock {

struct GradientLedger {
  // How far its reduction over the replicas of its stage is, from BEGIN_REDUCE on.
  enum class Leaving : uint8_t {
    kNot,
    kAwaitsLast,  // the next W is the last
    kComplete,    // that has come
  };
  int64_t count = 0;             // microbatches
  MicrobatchRange microbatches;  // from the first to the last
  int64_t forward_version_min = 0;
  int64_t forward_version_sum = 0;
  int64_t drift_max = 0;
  int64_t drift_sum = 0;
  int32_t reductions = 0;  // groups it has been reduced over
  bool normed = false;
  Leaving leaving = Leaving::kNot;
  bool stored = false;  // waits in a file

  // The sum of `range`, all of which read weight version `version`, that another stage has
  // accumulated.
  static GradientLedger Of(MicrobatchRange range, int64_t version);

  // Why W of `microbatch` cannot be added, or empty. Its own microbatches are `stride` apart, and
  // sums begin with steps of `step` microbatches.
  absl::string_view ObstacleTo(int64_t microbatch, int64_t stride, int64_t step) const;
  void Add(int64_t microbatch, int64_t forward_version, int64_t drift);
  bool IsWhole(int64_t step) const { return microbatches.end() % step == 0; }
  // Counts the update that it makes of version `replaced`.
  void CountUpdate(int64_t replaced, StageCounts& counts) const;
  // Machine::AppendRelativeState. `draws`: the versions that were read are not part of it.
  void AppendRelativeState(int64_t origin, int64_t version, bool draws,
                           std::vector<int64_t>& state) const;
};

}  // namespace penstock
