#include "studies/theory/ticks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "schedule/catalog/catalog.h"
#include "schedule/simulate.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using Key = std::tuple<bool, int32_t, int64_t>;  // backward or not, stage, microbatch

std::map<Key, int64_t> TicksOf(const TickSequence& sequence) {
  std::map<Key, int64_t> ticks;
  for (const TickEvent& event : sequence.events) {
    const bool fresh =
        ticks.emplace(Key{event.is_backward, event.stage, event.microbatch}, event.tick).second;
    EXPECT_TRUE(fresh) << "twice";
  }
  return ticks;
}

// Everything once, a stage does one thing at a time, and nothing before what it needs.
void ExpectIsAPipeline(const TickSequence& sequence) {
  const std::map<Key, int64_t> ticks = TicksOf(sequence);
  ASSERT_EQ(static_cast<int64_t>(ticks.size()), 2 * sequence.updates());
  std::map<std::pair<int32_t, int64_t>, int> busy;
  for (const TickEvent& event : sequence.events) {
    EXPECT_EQ((++busy[{event.stage, event.tick}]), 1);
  }
  const int32_t last = sequence.stages - 1;
  for (int64_t m = 0; m < sequence.microbatches; ++m) {
    for (int32_t stage = 0; stage <= last; ++stage) {
      const int64_t forward = ticks.at({false, stage, m});
      const int64_t backward = ticks.at({true, stage, m});
      EXPECT_LT(forward, backward);
      if (stage > 0) {
        EXPECT_LT(ticks.at({false, stage - 1, m}), forward);
      }
      if (stage < last) {
        EXPECT_LT(ticks.at({true, stage + 1, m}), backward);
      }
    }
  }
}

TEST(PipeDreamSequenceTest, AnySize_IsAPipelineOfTheKnownLength) {
  for (const int32_t stages : {1, 2, 3, 8}) {
    for (const int64_t microbatches : {1, 5, 40}) {
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const TickSequence sequence,
                                    PipeDreamSequence(stages, microbatches));
      ExpectIsAPipeline(sequence);
      EXPECT_EQ(sequence.ticks, 2 * microbatches + 2 * (stages - 1));
    }
  }
}

TEST(PipeDreamSequenceTest, PaperSizes_HaveThePaperLengths) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const TickSequence small, PipeDreamSequence(8, 300));
  EXPECT_EQ(small.ticks, 614);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const TickSequence large, PipeDreamSequence(16, 1024));
  EXPECT_EQ(large.ticks, 2078);
  EXPECT_EQ(large.updates(), 16384);
}

// By forward: how many updates of its stage it has seen.
std::map<Key, int64_t> VersionsOf(const TickSequence& sequence) {
  std::map<Key, int64_t> versions;
  for (const TickEvent& forward : sequence.events) {
    if (forward.is_backward) continue;
    versions[{false, forward.stage, forward.microbatch}] =
        std::count_if(sequence.events.begin(), sequence.events.end(), [&](const TickEvent& event) {
          return event.is_backward && event.stage == forward.stage && event.tick < forward.tick;
        });
  }
  return versions;
}

TEST(EagerPipeDreamSequenceTest, AnySize_ReadsOtherVersionsWhileThePipelineFillsAlone) {
  for (const int32_t stages : {1, 2, 3, 4, 7, 8}) {
    constexpr int64_t kMicrobatches = 24;
    const TickSequence eager = EagerPipeDreamSequence(stages, kMicrobatches);
    ExpectIsAPipeline(eager);
    EXPECT_EQ(eager.ticks, 2 * kMicrobatches + 2 * (stages - 1));
    int64_t others = 0;
    for (const auto& [forward, version] : VersionsOf(eager)) {
      const auto [is_backward, stage, microbatch] = forward;
      // PipeDream's static order reads the version max(0, m - (S - 1 - s)).
      const int64_t by_rule = std::max<int64_t>(0, microbatch - (stages - 1 - stage));
      EXPECT_LE(version, by_rule);
      others += version != by_rule ? 1 : 0;
      if (microbatch >= stages) {
        EXPECT_EQ(version, by_rule) << stage << " " << microbatch;
      }
    }
    EXPECT_EQ(others, (stages - 1) * (stages - 2) / 2);
  }
}

TEST(PipeDreamMicrobatchesTest, PaperBudget_GivesThePaperCounts) {
  const std::map<int32_t, int64_t> counts = {{2, 1841},  {4, 1839},  {8, 1835},  {16, 1827},
                                             {32, 1811}, {64, 1779}, {128, 1715}};
  for (const auto& [stages, microbatches] : counts) {
    EXPECT_EQ(PipeDreamMicrobatches(stages, 3684), microbatches);
  }
}

TEST(LocalSgdSequenceTest, AsManyReplicasAsStages_RoundsHaveTheClosedLength) {
  for (int32_t stages = 1; stages <= 16; ++stages) {
    for (const int64_t steps : {1, 2, 5, 30}) {
      const LocalSgdShape shape{stages, stages, steps};
      for (const int64_t rounds : {1, 3}) {
        EXPECT_EQ(LocalSgdSequence(shape, rounds * shape.round()).ticks,
                  rounds * (2 * stages * steps + 2 * (stages - 1)))
            << stages << " stages, " << steps << " steps";
      }
    }
  }
}

TEST(LocalSgdSequenceTest, OtherNumbersOfReplicas_HaveTheKnownLengths) {
  EXPECT_EQ(LocalSgdSequence({4, 2, 1}, 2).ticks, 10);
  EXPECT_EQ(LocalSgdSequence({4, 2, 3}, 6).ticks, 26);
  EXPECT_EQ(LocalSgdSequence({4, 3, 2}, 6).ticks, 20);
  EXPECT_EQ(LocalSgdSequence({4, 6, 2}, 12).ticks, 30);
  EXPECT_EQ(LocalSgdSequence({8, 4, 4}, 16).ticks, 70);
  EXPECT_EQ(LocalSgdSequence({8, 16, 2}, 32).ticks, 78);
}

// The study finds its order tick by tick, the method lists its own by a formula and keeps fewer microbatches in
// flight; both take equally long.
TEST(LocalSgdSequenceTest, AnySize_TakesTheTicksOfTheMethod) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Method* const method, FindMethod("local-sgd"));
  for (const int32_t stages : {1, 2, 3, 4, 7, 16}) {
    for (const int32_t replicas : {1, 2, 3, 4, 7, 16, 20}) {
      for (const int32_t local_steps : {1, 2, 5}) {
        SCOPED_TRACE(testing::Message() << stages << " stages, " << replicas << " replicas, "
                                        << local_steps << " local steps");
        const int64_t round = replicas * local_steps;
        PENSTOCK_ASSERT_OK_AND_ASSIGN(Topology topology,
                                      Place(method->placement, stages, stages, 1, replicas));
        PENSTOCK_ASSERT_OK_AND_ASSIGN(
            const Schedule schedule,
            BuildSchedule(*method, {std::move(topology), round}, {0, 2 * round}));
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationResult simulated, Simulate(schedule, {}));
        const TickSequence sequence = LocalSgdSequence({stages, replicas, local_steps}, 2 * round);
        EXPECT_DOUBLE_EQ(simulated.makespan_s, static_cast<double>(sequence.ticks));
      }
    }
  }
}

TEST(LocalSgdSequenceTest, PaperSize_Takes874MicrobatchesIn2078Ticks) {
  EXPECT_EQ(LocalSgdMicrobatches({16, 16, 5}, 2078), 874);
}

TEST(LocalSgdSequenceTest, Forward_WaitsForItsReplicaAndItsRound) {
  for (const LocalSgdShape& shape :
       {LocalSgdShape{4, 4, 3}, LocalSgdShape{3, 5, 2}, LocalSgdShape{5, 2, 4}}) {
    const TickSequence sequence = LocalSgdSequence(shape, 3 * shape.round() + 1);
    ExpectIsAPipeline(sequence);
    const std::map<Key, int64_t> ticks = TicksOf(sequence);
    for (int64_t m = 0; m < sequence.microbatches; ++m) {
      const int64_t round = m / shape.round();
      const bool first_step = m % shape.round() < shape.replicas;
      for (int32_t stage = 0; stage < shape.stages; ++stage) {
        const int64_t forward = ticks.at({false, stage, m});
        if (!first_step) {
          EXPECT_GT(forward, ticks.at({true, stage, m - shape.replicas}));
        }
        if (round > 0) {
          EXPECT_GT(forward, ticks.at({true, 0, round * shape.round() - 1}));
        }
      }
    }
  }
}

}  // namespace
}  // namespace penstock
