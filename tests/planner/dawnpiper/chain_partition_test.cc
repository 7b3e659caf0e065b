#include "planner/dawnpiper/chain_partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "planner/graph/limits.h"
#include "tests/planner/dawnpiper/random_chain.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

double AllCutsTried(const StageMemory& memory, int first, int place) {
  if (place + 1 == memory.stages()) return memory.Choose(first, memory.nodes(), place).seconds;
  double best = kInfinity;
  for (int cut = first + 1; cut < memory.nodes(); ++cut) {
    if (!memory.MayCut(cut)) continue;
    best =
        std::min(best, std::max({memory.Choose(first, cut, place).seconds, memory.LinkS(cut, place),
                                 AllCutsTried(memory, cut, place + 1)}));
  }
  return best;
}

TEST(ChainPartition, KnownChain) {
  const NodeChain chain(8, {.forward_s = 1, .backward_s = 2, .saved_bytes = 1});
  const StageMemory memory(chain, {.places = PlacesOf1F1B(4, {}, kInfinity)});
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ChainPartition halves, PartitionByHalves(memory));
  EXPECT_THAT(halves.ends, ElementsAre(2, 4, 6, 8));
  EXPECT_EQ(halves.period_s, 6);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ChainPartition best, BestPartition(memory));
  EXPECT_THAT(best.ends, ElementsAre(2, 4, 6, 8));
}

TEST(ChainPartition, AnyNumberOfStages) {
  const NodeChain chain(7, {.forward_s = 1, .backward_s = 2, .saved_bytes = 1});
  for (int stages = 1; stages <= 7; ++stages) {
    const StageMemory memory(chain, {.places = PlacesOf1F1B(stages, {}, kInfinity)});
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const ChainPartition halves, PartitionByHalves(memory));
    EXPECT_EQ(static_cast<int>(halves.ends.size()), stages);
    EXPECT_TRUE(std::is_sorted(halves.ends.begin(), halves.ends.end()));
    EXPECT_EQ(halves.ends.back(), 7);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const ChainPartition best, BestPartition(memory));
    EXPECT_EQ(best.period_s, 3 * ((7 + stages - 1) / stages)) << stages;
  }
}

TEST(ChainPartition, RefusesWhatCannotBe) {
  NodeChain chain(4, {.forward_s = 1, .weight_bytes = 5});
  const StageMemory five(chain, {.places = PlacesOf1F1B(5, {}, kInfinity)});
  EXPECT_THAT(PartitionByHalves(five).status(), StatusIs(kInvalid, HasSubstr("from 1 to 4")));
  EXPECT_THAT(BestPartition(five).status(), StatusIs(kInvalid, HasSubstr("from 1 to 4")));
  chain[0].may_end_stage = false;
  const StageMemory four(chain, {.places = PlacesOf1F1B(4, {}, kInfinity)});
  EXPECT_THAT(BestPartition(four).status(), StatusIs(kInvalid, HasSubstr("from 1 to 3")));
  const StageMemory full(chain, {.places = PlacesOf1F1B(2, {}, 4)});
  EXPECT_THAT(PartitionByHalves(full).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("fits")));
  EXPECT_THAT(BestPartition(full).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("2 stages")));
}

TEST(BestPartition, RandomChains_EqualsBruteForce) {
  RandomStream random(17, 1);
  int fit = 0;
  for (int round = 0; round < 600; ++round) {
    const int stages = 1 + static_cast<int>(random.Below(4));
    NodeChain chain = RandomNodes(random, stages + static_cast<int>(random.Below(6)));
    MemoryModel model = RandomModel(random, chain, stages, random.Uniform());
    model.choice = static_cast<TensorChoice>(random.Below(3));
    for (StagePlace& place : model.places) place.speed = 1 + random.Uniform();
    if (round % 3 == 0) model.link_bytes_per_second.assign(stages - 1, 0.2);
    for (ChainNode& node : chain) node.may_end_stage = random.Below(8) > 0;
    const StageMemory memory(chain, model);
    const double all_s = AllCutsTried(memory, 0, 0);
    const absl::StatusOr<ChainPartition> best = BestPartition(memory);
    ASSERT_EQ(best.ok(), all_s < kInfinity) << round << best.status();
    const absl::StatusOr<ChainPartition> halves = PartitionByHalves(memory);
    if (!best.ok()) {
      EXPECT_FALSE(halves.ok()) << round;
      continue;
    }
    ++fit;
    EXPECT_EQ(best->period_s, all_s) << round;
    if (halves.ok()) {
      EXPECT_GE(halves->period_s, all_s) << round;
    }
  }
  EXPECT_GT(fit, 100);
}

// How far halves are from the best cuts of four stages.
TEST(PartitionByHalves, AgainstBestCuts) {
  RandomStream random(19, 1);
  int fit = 0;
  int equal = 0;
  int lost = 0;
  double worst = 1;
  double sum = 0;
  for (int round = 0; round < 500; ++round) {
    const NodeChain chain = RandomNodes(random, 8 + static_cast<int>(random.Below(16)));
    const MemoryModel model = RandomModel(random, chain, 4, random.Uniform());
    const StageMemory memory(chain, model);
    const absl::StatusOr<ChainPartition> best = BestPartition(memory);
    if (!best.ok()) continue;
    ++fit;
    const absl::StatusOr<ChainPartition> halves = PartitionByHalves(memory);
    if (!halves.ok()) {
      ++lost;
      continue;
    }
    const double ratio = halves->period_s / best->period_s;
    if (ratio <= 1 + kMargin) ++equal;
    worst = std::max(worst, ratio);
    sum += ratio;
  }
  EXPECT_GT(fit, 300);
  EXPECT_GT(equal, fit * 3 / 4);
  EXPECT_LT(lost, fit / 10);
  EXPECT_LT(worst, 1.7);
  EXPECT_LT(sum / (fit - lost), 1.03);
}

}  // namespace
}  // namespace penstock
