#include "schedule/gradient_ledger.h"

#include <algorithm>

namespace penstock {

GradientLedger GradientLedger::Of(MicrobatchRange range, int64_t version) {
  return {.count = range.count,
          .microbatches = range,
          .forward_version_min = version,
          .forward_version_sum = version * range.count};
}

absl::string_view GradientLedger::ObstacleTo(int64_t microbatch, int64_t stride,
                                             int64_t step) const {
  if (reductions > 0) return "the gradient is already reduced, an UPDATE must come first";
  if (normed) return "the gradient is already normed, an UPDATE must come first";
  if (leaving == Leaving::kComplete) {
    return "the W that BEGIN_REDUCE announced as the last has come, an UPDATE must come first";
  }
  if (count == 0 && microbatch % step != 0) {
    return "the sum of the microbatches before it is not there";
  }
  if (count > 0 && microbatch != microbatches.end() - 1 + stride) {
    return "gradients must be accumulated in the order of the microbatches";
  }
  return "";
}

void GradientLedger::Add(int64_t microbatch, int64_t forward_version, int64_t drift) {
  if (count++ == 0) {
    microbatches.first = microbatch;
    forward_version_min = forward_version;
  }
  microbatches.count = microbatch + 1 - microbatches.first;
  forward_version_min = std::min(forward_version_min, forward_version);
  forward_version_sum += forward_version;
  drift_max = std::max(drift_max, drift);
  drift_sum += drift;
}

void GradientLedger::CountUpdate(int64_t replaced, StageCounts& counts) const {
  counts.staleness.Add({.updates = 1,
                        .max = replaced - forward_version_min,
                        .sum = replaced * count - forward_version_sum,
                        .microbatches = count});
  counts.version_drift.Add(
      {.updates = 1, .max = drift_max, .sum = drift_sum, .microbatches = count});
}

void GradientLedger::AppendRelativeState(int64_t origin, int64_t version, bool draws,
                                         std::vector<int64_t>& state) const {
  state.push_back(count);
  state.push_back(static_cast<int64_t>(leaving));
  if (count == 0) return;
  state.insert(state.end(),
               {microbatches.first - origin, drift_max, drift_sum, reductions, normed, stored});
  if (draws) return;
  state.insert(state.end(), {version - forward_version_min, version * count - forward_version_sum});
}

}  // namespace penstock
