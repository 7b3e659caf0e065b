// BlockDraws: what randomized pipeline descent (RPD) leaves to chance, the rule written once.
//
// RPD is the algorithm that arXiv 2606.03498 proves things about (algorithm 1): update k reads a
// model put together from old blocks, the block of each stage up to delta updates old; then a stage
// is sampled, and only its block moves. In a pipeline a microbatch is an update of the model, and
// version n of a stage is its block after n microbatches, whether or not the stage was sampled for
// the last of them. On 1F1B the forward of microbatch k on a stage with d stages after it finds
// version k - d and no newer one, so delays are uniform in [min(d, k), min(delta, k)], k counted
// from the cut before. The theorem allows any delays up to delta that are chosen before the stage
// is.
//
// Delays and stages are functions of (seed, microbatch, stage): they do not depend on timing, on what was sampled
// before, or on where a run begins.
//
// A value; pure functions.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/random.h"

namespace penstock {

// The most block updates of the model between forward and update in PipeDream on `stages` stages:
// floor(S^2 - S/2), proposition 4.1.
constexpr int64_t PipelineDelay(int64_t stages) { return stages * stages - (stages + 1) / 2; }

class BlockDraws {
 public:
  BlockDraws() = default;
  // REQUIRES: stages >= 1, delta >= stages - 1.
  BlockDraws(uint64_t seed, int64_t delta, int32_t stages)
      : seed_(seed), delta_(delta), stages_(stages) {}

  int64_t delta() const { return delta_; }

  // The stage whose block the update of `microbatch` moves; all are equally likely.
  int32_t StageOf(int64_t microbatch) const {
    return static_cast<int32_t>(Below(stages_, microbatch, 0));
  }

  // The least delay on a stage: that of the newest version which microbatch `k` after the cut can find.
  int64_t DelayMin(int32_t stage, int64_t k) const {
    return std::min<int64_t>(stages_ - 1 - stage, k);
  }
  int64_t DelayMax(int64_t k) const { return std::min(delta_, k); }
  // Returns the age, in updates, of the block of `stage` in the model that `microbatch` reads, number `k`
  // after the cut.
  int64_t DelayOf(int64_t microbatch, int32_t stage, int64_t k) const {
    const int64_t least = DelayMin(stage, k);
    return least + Below(DelayMax(k) - least + 1, microbatch, static_cast<uint32_t>(stage) + 1);
  }

 private:
  // Uniform in [0, bound), to a bias below 2^-32. `what`: 0 the stage, s + 1 the delay of stage s.
  int64_t Below(int64_t bound, int64_t microbatch, uint32_t what) const {
    constexpr uint32_t kPurpose = 0x64'52'50'44;  // "dRPD"
    const auto counter = static_cast<uint64_t>(microbatch);
    const std::array<uint32_t, 4> words = Philox(
        seed_,
        {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), what, kPurpose});
    const uint64_t word = uint64_t{words[0]} << 32 | words[1];
    return static_cast<int64_t>(
        (static_cast<unsigned __int128>(word) * static_cast<uint64_t>(bound)) >> 64);
  }

  uint64_t seed_ = 0;
  int64_t delta_ = 0;
  int32_t stages_ = 1;
};

}  // namespace penstock
