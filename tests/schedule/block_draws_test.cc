#include "schedule/block_draws.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace penstock {
namespace {

TEST(PipelineDelay, OneToEightStages_IsWhatPipeDreamShows) {
  const std::vector<int64_t> expected = {0, 3, 7, 14, 22, 33, 45, 60};
  for (size_t s = 0; s < expected.size(); ++s) {
    EXPECT_EQ(PipelineDelay(static_cast<int64_t>(s) + 1), expected[s]);
  }
}

// The numbers are from a program of its own, in another language: Philox4x32-10 with the seed as
// key and the counter {microbatch, microbatch >> 32, 0 or stage + 1, 0x64525044}; its first two
// words as a fraction of the range.
TEST(BlockDraws, KnownAnswers) {
  struct Case {
    uint64_t seed;
    int64_t first;
    std::vector<int32_t> stages;               // of the first 16 microbatches
    std::vector<std::vector<int64_t>> delays;  // of the first 6
    std::vector<int64_t> later;                // of number 1000
  };
  const Case cases[] = {
      {1,
       0,
       {1, 0, 2, 0, 2, 3, 1, 0, 1, 0, 2, 2, 3, 2, 0, 2},
       {{0, 0, 0, 0}, {1, 1, 1, 0}, {2, 2, 1, 2}, {3, 3, 2, 0}, {3, 4, 3, 2}, {3, 4, 3, 4}},
       {8, 10, 14, 14}},
      {7,
       (int64_t{1} << 33) + 5,
       {2, 0, 0, 3, 3, 1, 0, 0, 0, 1, 2, 3, 3, 0, 3, 1},
       {{0, 0, 0, 0}, {1, 1, 1, 0}, {2, 2, 1, 1}, {3, 2, 2, 0}, {3, 4, 4, 2}, {3, 2, 4, 5}},
       {10, 14, 10, 14}}};
  for (const Case& known : cases) {
    const BlockDraws draws(known.seed, /*delta=*/14, /*stages=*/4);
    for (int64_t k = 0; k < 16; ++k) {
      EXPECT_EQ(draws.StageOf(known.first + k), known.stages[k]) << k;
    }
    for (int32_t stage = 0; stage < 4; ++stage) {
      for (int64_t k = 0; k < 6; ++k) {
        EXPECT_EQ(draws.DelayOf(known.first + k, stage, k), known.delays[k][stage]) << k;
      }
      EXPECT_EQ(draws.DelayOf(known.first + 1000, stage, 1000), known.later[stage]);
    }
  }
}

// The assumption of the theorem (B.2), and what a pipeline can do: nothing newer than its own order shows it.
TEST(BlockDraws, AnySize_DelaysNeverLeaveTheirRange) {
  for (int32_t stages = 1; stages <= 17; ++stages) {
    for (const int64_t delta : {int64_t{stages} - 1, PipelineDelay(stages), int64_t{420}}) {
      const BlockDraws draws(/*seed=*/stages, delta, stages);
      for (int64_t k = 0; k < 500; ++k) {
        EXPECT_GE(draws.StageOf(k), 0);
        EXPECT_LT(draws.StageOf(k), stages);
        for (int32_t stage = 0; stage < stages; ++stage) {
          const int64_t delay = draws.DelayOf(/*microbatch=*/90 + k, stage, k);
          EXPECT_GE(delay, std::min<int64_t>(stages - 1 - stage, k));
          EXPECT_LE(delay, std::min(delta, k));
        }
      }
    }
  }
}

// Chi-square against equal shares, four deviations above its mean.
void ExpectUniform(const std::vector<int64_t>& counts) {
  double draws = 0.0;
  for (const int64_t count : counts) draws += static_cast<double>(count);
  const auto cells = static_cast<double>(counts.size());
  double statistic = 0.0;
  for (const int64_t count : counts) {
    const double distance = static_cast<double>(count) - draws / cells;
    statistic += distance * distance / (draws / cells);
  }
  EXPECT_LT(statistic, cells - 1 + 4 * std::sqrt(2 * (cells - 1)));
}

TEST(BlockDraws, ManyMicrobatches_StagesAndDelaysAreUniformAndIndependent) {
  constexpr int32_t kStages = 4;
  constexpr int64_t kDelta = 14;
  const BlockDraws draws(/*seed=*/5, kDelta, kStages);
  std::vector<int64_t> drawn(kStages);
  for (int32_t stage = 0; stage < kStages; ++stage) {
    const int64_t least = kStages - 1 - stage;
    std::vector<int64_t> delays(kDelta + 1 - least);
    // A delay beside the stage that is drawn, and beside the delay of the next stage.
    std::vector<int64_t> with_stage(delays.size() * kStages);
    std::vector<int64_t> with_next(delays.size() * (kDelta + 1));
    for (int64_t k = kDelta; k < 200'000; ++k) {
      const int64_t delay = draws.DelayOf(k, stage, k) - least;
      ++delays[delay];
      ++with_stage[delay * kStages + draws.StageOf(k)];
      if (stage + 1 < kStages) {
        const int64_t next_least = least - 1;
        const int64_t next = draws.DelayOf(k, stage + 1, k) - next_least;
        ++with_next[delay * (kDelta + 1 - next_least) + next];
      }
      if (stage == 0) ++drawn[draws.StageOf(k)];
    }
    ExpectUniform(delays);
    ExpectUniform(with_stage);
    if (stage + 1 < kStages) {
      with_next.resize(delays.size() * (kDelta + 2 - least));
      ExpectUniform(with_next);
    }
  }
  ExpectUniform(drawn);
}

TEST(BlockDraws, OtherSeed_DrawsOtherwise) {
  const BlockDraws one(1, 14, 4);
  const BlockDraws two(2, 14, 4);
  int same_stages = 0;
  int same_delays = 0;
  for (int64_t k = 14; k < 1014; ++k) {
    same_stages += one.StageOf(k) == two.StageOf(k);
    same_delays += one.DelayOf(k, 3, k) == two.DelayOf(k, 3, k);
  }
  EXPECT_NEAR(same_stages, 1000.0 / 4, 60);
  EXPECT_NEAR(same_delays, 1000.0 / 15, 40);
}

}  // namespace
}  // namespace penstock
