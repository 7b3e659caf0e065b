#include "planner/graph/partition.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "base/random.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Quality {
  double largest = 0;
  double squares = 0;
};

Quality QualityOf(const std::vector<double>& costs, const std::vector<int>& first_layers) {
  Quality quality;
  for (size_t stage = 0; stage < first_layers.size(); ++stage) {
    const int end =
        stage + 1 < first_layers.size() ? first_layers[stage + 1] : static_cast<int>(costs.size());
    const double cost =
        std::accumulate(costs.begin() + first_layers[stage], costs.begin() + end, 0.0);
    quality.largest = std::max(quality.largest, cost);
    quality.squares += cost * cost;
  }
  return quality;
}

// All ways to cut, the earlier cuts first; the first of the best ones wins.
std::vector<int> BruteForce(const std::vector<double>& costs, int stages) {
  std::vector<int> best;
  Quality best_quality;
  std::vector<int> cuts = {0};
  const std::function<void()> extend = [&] {
    if (static_cast<int>(cuts.size()) == stages) {
      const Quality quality = QualityOf(costs, cuts);
      if (best.empty() || std::pair(quality.largest, quality.squares) <
                              std::pair(best_quality.largest, best_quality.squares)) {
        best = cuts;
        best_quality = quality;
      }
      return;
    }
    for (int next = cuts.back() + 1; next < static_cast<int>(costs.size()); ++next) {
      cuts.push_back(next);
      extend();
      cuts.pop_back();
    }
  };
  extend();
  return best;
}

TEST(PartitionChain, RandomChains_EqualsBruteForce) {
  RandomStream random(1, 0);
  for (int round = 0; round < 3000; ++round) {
    std::vector<double> costs(1 + random.Below(10));
    // Small whole numbers: exact sums and many ties.
    for (double& cost : costs) cost = static_cast<double>(random.Below(round % 2 == 0 ? 4 : 50));
    const int stages = static_cast<int>(1 + random.Below(costs.size()));
    SCOPED_TRACE(testing::Message() << testing::PrintToString(costs) << " into " << stages);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::vector<int> cuts, PartitionChain(costs, stages));
    EXPECT_EQ(cuts, BruteForce(costs, stages));
  }
}

// The bottleneck is the largest cost of a stage over its speed.
TEST(PartitionChain, StagesOfUnequalSpeed_EqualBruteForce) {
  RandomStream random(/*seed=*/5, /*purpose=*/0);
  for (int round = 0; round < 200; ++round) {
    const int stages = 1 + static_cast<int>(random.Below(3));
    std::vector<double> costs(stages + random.Below(6));
    for (double& cost : costs) cost = 1.0 + static_cast<double>(random.Below(9));
    std::vector<double> speeds(stages);
    for (double& speed : speeds) speed = 0.5 * static_cast<double>(1 + random.Below(6));
    const auto bottleneck = [&](const std::vector<int>& first) {
      double largest = 0.0;
      for (int s = 0; s < stages; ++s) {
        const int end = s + 1 < stages ? first[s + 1] : static_cast<int>(costs.size());
        double sum = 0.0;
        for (int layer = first[s]; layer < end; ++layer) sum += costs[layer];
        largest = std::max(largest, sum / speeds[s]);
      }
      return largest;
    };
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::vector<int> cuts, PartitionChain(costs, speeds));
    double best = bottleneck(cuts);
    std::vector<int> other(stages);
    const std::function<void(int)> place = [&](int stage) {
      if (stage == stages) {
        EXPECT_LE(best, bottleneck(other) + 1e-12);
        return;
      }
      const int left = stages - 1 - stage;
      for (int first = other[stage - 1] + 1; first < static_cast<int>(costs.size()) - left;
           ++first) {
        other[stage] = first;
        place(stage + 1);
      }
    };
    place(1);
  }
}

TEST(PartitionChain, EqualBottlenecks_SpreadsTheRestEvenly) {
  const std::vector<double> costs = {6, 1, 1, 1, 1};
  EXPECT_THAT(PartitionChain(costs, 3), IsOkAndHolds(ElementsAre(0, 1, 3)));
}

TEST(PartitionChain, EqualLayers_CutsEqually) {
  const std::vector<double> costs(12, 0.1);
  EXPECT_THAT(PartitionChain(costs, 4), IsOkAndHolds(ElementsAre(0, 3, 6, 9)));
}

TEST(PartitionChain, AsManyStagesAsLayers_GivesEachItsOwn) {
  EXPECT_THAT(PartitionChain({0.0, 0.0, 0.0}, 3), IsOkAndHolds(ElementsAre(0, 1, 2)));
}

TEST(PartitionChain, LayersThatStayTogether_AreNeverCutApart) {
  const std::vector<double> costs = {1, 1, 1, 1, 1, 1};
  const std::vector<double> speeds = {1, 1};
  EXPECT_THAT(*PartitionChain(costs, speeds, {true, true, true, true, true, true}),
              ElementsAre(0, 3));
  EXPECT_THAT(*PartitionChain(costs, speeds, {true, true, false, false, true, true}),
              ElementsAre(0, 4));
  EXPECT_THAT(PartitionChain(costs, {1, 1, 1}, {true, false, false, true, false, false}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("3")));
}

TEST(PartitionChain, BadArguments_AreNamed) {
  EXPECT_THAT(PartitionChain({1.0, 2.0}, 3),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("2 layers cannot be cut into 3 stages")));
  EXPECT_THAT(PartitionChain({1.0}, 0),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at least 1 stage")));
  EXPECT_THAT(PartitionChain({1.0, std::numeric_limits<double>::quiet_NaN()}, 1),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("layer 1")));
  EXPECT_THAT(PartitionChain({-1.0}, 1),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("layer 0")));
}

}  // namespace
}  // namespace penstock
