#include "schedule/machine.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "schedule/block_draws.h"
#include "tests/schedule/allocation_count.h"
#include "tests/schedule/schedules.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

// One machine and the text of what is done to it.
class MachineTest : public ::testing::Test {
 protected:
  void Make(Topology topology, int32_t worker, WeightPolicy policy = kSingleVersion) {
    topology_ = std::move(topology);
    machine_.emplace(topology_, WorkerId(worker), policy);
  }
  absl::StatusOr<Effect> Apply(absl::string_view action) {
    return machine_->Apply(ParseAction(action).value());
  }
  Effect Do(absl::string_view actions) {
    Effect effect;
    for (const absl::string_view action : absl::StrSplit(actions, ' ')) {
      const absl::StatusOr<Effect> result = Apply(action);
      EXPECT_THAT(result, IsOk()) << action;
      if (result.ok()) effect = *result;
    }
    return effect;
  }
  void ExpectRefused(absl::string_view action, absl::string_view reason) {
    const std::vector<int64_t> before = State();
    EXPECT_THAT(Apply(action), StatusIs(absl::StatusCode::kFailedPrecondition,
                                        HasSubstr(absl::StrCat(action, ": ", reason))));
    EXPECT_EQ(State(), before) << "a refused action must change nothing";
  }
  std::vector<int64_t> State(int64_t origin = 0) const {
    std::vector<int64_t> state;
    machine_->AppendRelativeState(origin, state);
    return state;
  }
  const StageCounts& counts(int32_t stage) const { return machine_->counts(StageId(stage)); }

  Topology topology_;
  std::optional<Machine> machine_;
};

TEST_F(MachineTest, MiddleStage_NeedsWhatTheTableSays) {
  Make(StraightPipeline(3), 1);
  ExpectRefused("1F0", "no input");
  ExpectRefused("1SEND_F0", "no output");
  Do("1RECV_F0");
  ExpectRefused("1RECV_F0", "the stage already holds its input");
  Do("1F0 1SEND_F0");
  ExpectRefused("1SEND_F0", "no output");
  ExpectRefused("1I0", "no output gradient");
  Do("1RECV_B0");
  ExpectRefused("1W0", "no weight stash");
  ExpectRefused("1SEND_B0", "no input gradient");
  Do("1I0");
  ExpectRefused("1I0", "no stash");
  ExpectRefused("1UPDATE", "no accumulated gradient");
  Do("1SEND_B0 1W0");
  ExpectRefused("FLUSH", "stage 1 has accumulated gradients without an UPDATE");
  Do("1UPDATE FLUSH");
}

TEST_F(MachineTest, Error_NamesWorkerActionAndReason) {
  Make(StraightPipeline(3), 1);
  Do("1RECV_F0 1F0");
  EXPECT_EQ(Apply("1I0").status().message(), "worker 1: 1I0: no output gradient");
}

TEST_F(MachineTest, EndsOfThePipeline_HaveNoMessagesOutwards) {
  Make(StraightPipeline(2), 0);
  Do("0F0");
  ExpectRefused("0RECV_F0", "there is no stage on that side");
  ExpectRefused("0SEND_B0", "there is no stage on that side");
  Make(StraightPipeline(2), 1);
  Do("1RECV_F0 1F0");
  ExpectRefused("1SEND_F0", "there is no stage on that side");
  Do("1I0 1W0 1SEND_B0 1UPDATE FLUSH");
}

TEST_F(MachineTest, UnknownStageGroupOrMicrobatch_IsRefused) {
  Make(StraightPipeline(2), 0);
  ExpectRefused("1F0", "the stage is not on this worker");
  ExpectRefused("7UPDATE", "the stage is not on this worker");
  ExpectRefused("0REDUCE", "no stage of that group is on this worker");
  EXPECT_THAT(machine_->Apply({ActionKind::kForward, 0, -1}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("negative")));
  EXPECT_THAT(machine_->Apply({ActionKind::kForward, -1, 0}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("not on this worker")));
}

TEST_F(MachineTest, Flush_NamesTheOldestRemainder) {
  Make(StraightPipeline(2), 0);
  Do("0F5 0F4 0SEND_F4");
  ExpectRefused("FLUSH", "stage 0 still holds the stash of microbatch 4");
}

TEST_F(MachineTest, Gradients_AreAccumulatedInAscendingOrder) {
  Make(StraightPipeline(1), 0);
  Do("0F0 0F1 0F2 0I0 0I1 0I2 0W1");
  ExpectRefused("0W0", "gradients must be accumulated in the order of the microbatches");
  const Effect step = Do("0W2 0UPDATE");
  EXPECT_EQ(step.microbatches, (MicrobatchRange{1, 2}));
  EXPECT_EQ(step.version, 1);
  Do("0W0 0UPDATE FLUSH");
}

TEST_F(MachineTest, NeighboursOnOneWorker_HandOverWithoutMessages) {
  Make(PipelineOn({WorkerId(0), WorkerId(0), WorkerId(1)}), 0);
  ExpectRefused("1F0", "no input");
  Do("0F0");
  ExpectRefused("0SEND_F0", "the neighbour is on the same worker, there is no message");
  ExpectRefused("1RECV_F0", "the neighbour is on the same worker, there is no message");
  Do("1F0 1SEND_F0");
  ExpectRefused("0I0", "no output gradient");
  Do("1RECV_B0 1I0 0I0 1W0 0W0 0UPDATE 1UPDATE FLUSH");
}

TEST_F(MachineTest, HandingOverTwice_IsRefused) {
  Make(PipelineOn({WorkerId(0), WorkerId(0)}), 0);
  Do("0F0 1F0 1I0 0I0 0W0 0UPDATE 0F0");
  ExpectRefused("0F0", "the stage already holds its stash");
  Do("1W0 1UPDATE");
}

TEST_F(MachineTest, Evaluation_AllowsForwardAndItsMessagesOnly) {
  Make(StraightPipeline(2), 0);
  machine_->BeginRange(Completeness::kEvaluate);
  EXPECT_EQ(Do("0F0").version, 0);
  Do("0SEND_F0 FLUSH");
  for (const char* action : {"0RECV_B0", "0R0", "0I0", "0W0", "0OFFLOAD0", "0UPDATE", "NORM"}) {
    EXPECT_THAT(Apply(action), StatusIs(absl::StatusCode::kFailedPrecondition, testing::_));
  }
  EXPECT_EQ(counts(0).activations_peak, 0);
  machine_->BeginRange(Completeness::kTrain);
  Do("0F0 0SEND_F0 0RECV_B0 0I0 0W0 0UPDATE FLUSH");
}

TEST_F(MachineTest, StageThatRecomputes_NeedsRBetweenFAndI) {
  Topology topology = StraightPipeline(3);
  topology.Recompute({StageId(1)});
  Make(topology, 1);
  Do("1RECV_F0");
  ExpectRefused("1R0", "no checkpoint");
  Do("1F0 1SEND_F0");
  ExpectRefused("FLUSH", "stage 1 still holds the checkpoint of microbatch 0");
  Do("1RECV_B0");
  ExpectRefused("1I0", "no stash, the stage recomputes: R must come before it");
  Do("1R0");
  ExpectRefused("1R0", "no checkpoint");
  ExpectRefused("1W0", "no weight stash");
  Do("1RECV_F1 1F1");
  EXPECT_EQ(counts(1).activations_live, 2) << "a checkpoint counts as a microbatch in flight";
  Do("1I0 1SEND_B0 1W0");
  ExpectRefused("1I1", "no stash");
  Do("1R1 1SEND_F1 1RECV_B1 1I1 1W1 1SEND_B1 1UPDATE FLUSH");
  // Its neighbours do not.
  Make(topology, 0);
  Do("0F0");
  ExpectRefused("0R0", "the stage does not recompute");
}

TEST_F(MachineTest, Stash_GoesToTheHostAndBackBetweenFAndI) {
  Make(StraightPipeline(2), 0);
  ExpectRefused("0OFFLOAD0", "no stash");
  Do("0F0 0SEND_F0");
  ExpectRefused("0EVICT0", "no stash that is being offloaded");
  ExpectRefused("0PREFETCH0", "no offloaded stash");
  Do("0OFFLOAD0 0RECV_B0");
  EXPECT_EQ(counts(0).resident_live, 1) << "until EVICT it is still there";
  EXPECT_EQ(counts(0).offloaded_live, 1);
  ExpectRefused("0OFFLOAD0",
                "no stash, it is being offloaded: EVICT and PREFETCH must come before it");
  ExpectRefused("0I0", "no stash, it is being offloaded: EVICT and PREFETCH must come before it");
  ExpectRefused("0PREFETCH0",
                "no offloaded stash, it is still being offloaded: EVICT must come before it");
  ExpectRefused("FLUSH", "stage 0 still holds the output gradient of microbatch 0");
  Do("0EVICT0");
  EXPECT_EQ(counts(0).resident_live, 0);
  EXPECT_EQ(counts(0).activations_live, 1);
  ExpectRefused("0I0", "no stash, it is offloaded: PREFETCH must come before it");
  ExpectRefused("0EVICT0", "no stash that is being offloaded");
  const std::vector<int64_t> away = State();
  Do("0PREFETCH0");
  EXPECT_NE(State(), away);
  EXPECT_EQ(counts(0).offloaded_live, 0);
  Do("0I0");
  ExpectRefused("0OFFLOAD0", "no stash");
  Do("0W0 0UPDATE 0F1 0SEND_F1 0OFFLOAD1 0EVICT1");
  ExpectRefused("FLUSH", "stage 0 still holds the offloaded stash of microbatch 1");
  EXPECT_EQ(counts(0).resident_peak, 1);
  EXPECT_EQ(counts(0).offloaded_peak, 1);
}

TEST_F(MachineTest, Recompute_ReadsWhatTheBackwardWillRead) {
  Topology topology = StraightPipeline(2);
  topology.Recompute({StageId(0)});
  Make(topology, 0, kStashedVersions);
  Do("0F0 0SEND_F0 0F1 0SEND_F1 0R0 0RECV_B0 0I0 0W0 0UPDATE");
  EXPECT_EQ(Do("0F2").version, 1);
  EXPECT_EQ(Do("0R1").version, 0) << "the version that F read";
  EXPECT_EQ(Do("0RECV_B1 0I1").version, 0);
  EXPECT_EQ(counts(0).version_drift.max, 0);
}

TEST_F(MachineTest, RecomputeWithTheCurrentWeights_IsOfNoUseAfterAStep) {
  Topology topology = StraightPipeline(2);
  topology.Recompute({StageId(0)});
  Make(topology, 0);
  Do("0F0 0SEND_F0 0F1 0SEND_F1 0R0 0R1 0RECV_B0 0I0 0W0");
  const std::vector<int64_t> before = State();
  Do("0UPDATE 0RECV_B1");
  ExpectRefused(
      "0I1", "the weights have changed since its R, which read version 0; put R after the UPDATE");
  EXPECT_NE(State(), before);
  Make(topology, 0);
  Do("0F0 0SEND_F0 0F1 0SEND_F1 0R0 0RECV_B0 0I0 0W0 0UPDATE");
  EXPECT_EQ(Do("0R1").version, 1);
  EXPECT_EQ(Do("0RECV_B1 0I1").version, 1);
  Do("0W1 0UPDATE FLUSH");
  EXPECT_EQ(counts(0).version_drift, (StalenessCount{2, 1, 1, 2})) << "counted from F";
}

TEST_F(MachineTest, SinglePolicy_ReadsTheCurrentVersionAndCountsDrift) {
  Make(StraightPipeline(2), 0);
  Do("0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0I0 0W0");
  const Effect step = Do("0UPDATE");
  EXPECT_FALSE(step.keeps_replaced);
  EXPECT_EQ(Do("0RECV_B1 0I1").version, 1);
  EXPECT_EQ(Do("0W1").version, 1);
  Do("0UPDATE");
  EXPECT_EQ(counts(0).version_drift, (StalenessCount{2, 1, 1, 2}));
  EXPECT_EQ(counts(0).staleness, (StalenessCount{2, 1, 1, 2}));
  EXPECT_EQ(counts(0).versions_peak, 1);
}

TEST_F(MachineTest, DrawnPolicy_ReadsAndMovesWhatIsDrawn) {
  const WeightPolicy policy = {.weights = &Weights::kDrawn, .lag = 3, .seed = 1};
  const BlockDraws draws(1, 3, 2);
  Make(StraightPipeline(2), 0, policy);
  machine_->SetVersion(StageId(0), 100);
  EXPECT_EQ(Do("0F0").version, 100);
  Do("0SEND_F0");
  for (int64_t m = 1; m < 40; ++m) {
    const int64_t read = 100 + m - draws.DelayOf(m, 0, m);
    EXPECT_EQ(Do(absl::StrCat("0F", m)).version, read);
    Do(absl::StrCat("0SEND_F", m, " 0RECV_B", m - 1));
    const int64_t read_before = 100 + m - 1 - draws.DelayOf(m - 1, 0, m - 1);
    EXPECT_EQ(Do(absl::StrCat("0I", m - 1)).version, read_before);
    Do(absl::StrCat("0W", m - 1));
    const Effect step = Do("0UPDATE");
    EXPECT_EQ(step.version, 100 + m);
    EXPECT_EQ(step.read_version, read_before);
    EXPECT_EQ(step.moves, draws.StageOf(m - 1) == 0);
    EXPECT_EQ(step.keeps_replaced, step.moves) << "it may still be drawn";
    EXPECT_EQ(step.oldest_live_version, 100 + std::max<int64_t>(0, m - 3));
    // What the last three microbatches made, and what was before them.
    int64_t weights = 1;
    for (int64_t made = std::max<int64_t>(0, m - 3); made < m; ++made) {
      weights += draws.StageOf(made) == 0;
    }
    EXPECT_EQ(counts(0).versions_live, weights);
  }
  EXPECT_EQ(counts(0).staleness.updates, 39);
  EXPECT_EQ(counts(0).version_drift.max, 0);
}

TEST_F(MachineTest, DrawnPolicy_RefusesWhatDrawsCannotBeMadeFor) {
  const WeightPolicy policy = {.weights = &Weights::kDrawn, .lag = 3, .seed = 1};
  Make(StraightPipeline(2), 0, policy);
  Do("0F5 0SEND_F5");
  ExpectRefused("0F7", "where weights are sampled, forwards come in the order of microbatches");
  Do("0F6 0SEND_F6");
  // Whatever is drawn: with one stage after this one, it may be the version before microbatch 6's own.
  ExpectRefused("0F7", "it reads weight version 1, which is not made yet");
  Do("0RECV_B5 0I5 0W5 0RECV_B6 0I6 0W6");
  ExpectRefused("0UPDATE", "where weights are sampled, every W has an UPDATE of its own");
}

TEST_F(MachineTest, StashPolicy_BackwardReadsTheForwardVersion) {
  Make(StraightPipeline(2), 0, kStashedVersions);
  machine_->SetVersion(StageId(0), 100);
  EXPECT_EQ(Do("0F0").version, 100);
  Do("0SEND_F0");
  EXPECT_EQ(Do("0F1 0SEND_F1 0RECV_B0 0I0").version, 100);
  EXPECT_EQ(Do("0W0").oldest_live_version, 100);
  const Effect step = Do("0UPDATE");
  EXPECT_TRUE(step.keeps_replaced) << "microbatch 1 still reads version 100";
  EXPECT_EQ(step.version, 101);
  EXPECT_EQ(step.oldest_live_version, 100);
  EXPECT_EQ(counts(0).versions_live, 2);
  EXPECT_EQ(Do("0F2").version, 101);
  Do("0SEND_F2");
  EXPECT_EQ(Do("0RECV_B1 0I1").version, 100);
  EXPECT_EQ(Do("0W1").oldest_live_version, 101);
  EXPECT_EQ(counts(0).versions_live, 1);
  EXPECT_TRUE(Do("0UPDATE").keeps_replaced);
  EXPECT_FALSE(Do("0RECV_B2 0I2 0W2 0UPDATE FLUSH").keeps_replaced);
  EXPECT_EQ(machine_->version(StageId(0)), 103);
  EXPECT_EQ(counts(0).versions_peak, 2);
  EXPECT_EQ(counts(0).staleness, (StalenessCount{3, 1, 2, 3}));
  EXPECT_EQ(counts(0).version_drift, (StalenessCount{3, 0, 0, 3}));
  const StageDelays& delays = machine_->delays(StageId(0));
  EXPECT_EQ(delays.staleness.microbatches[0], 1);
  EXPECT_EQ(delays.staleness.microbatches[1], 2);
  EXPECT_EQ(delays.version_drift.microbatches[0], 3);
}

TEST(DelayCounts, LongDelays_AreCountedTogether) {
  DelayCounts counts;
  counts.Add(DelayCounts::kExact - 1, 1);
  counts.Add(DelayCounts::kExact, 2);
  counts.Add(1'000'000, 3);
  EXPECT_EQ(counts.microbatches[DelayCounts::kExact - 1], 1);
  EXPECT_EQ(counts.microbatches[DelayCounts::kExact], 5);
}

TEST_F(MachineTest, StashPolicy_ReleasesVersionsInTheOrderTheyWereMade) {
  Make(StraightPipeline(1), 0, kStashedVersions);
  Do("0F0 0F1 0I0 0W0 0UPDATE 0F2 0F3 0I2 0W2 0UPDATE");
  EXPECT_EQ(counts(0).versions_live, 3) << "versions 0 (of 1), 1 (of 3), 2";
  Do("0I3 0W3 0UPDATE");
  EXPECT_EQ(counts(0).versions_live, 3) << "version 1 stays until version 0 goes";
  EXPECT_EQ(Do("0I1 0W1").oldest_live_version, 3);
  EXPECT_EQ(counts(0).versions_live, 1);
}

TEST_F(MachineTest, GroupOfStages_MustReduceBeforeItsSteps) {
  Make(TiedOptions(2, 1).topology, 0);
  Do("0F0 0SEND_F0 0RECV_B0 0I0");
  ExpectRefused("0REDUCE", "stage 0 has accumulated no gradient");
  Do("0W0");
  ExpectRefused("0UPDATE", "the gradient is not reduced over its groups");
  ExpectRefused("NORM", "the gradient of stage 0 is not reduced over its groups");
  Do("0REDUCE");
  ExpectRefused("0REDUCE", "stage 0 is already reduced");
  Do("0F1 0SEND_F1 0RECV_B1 0I1");
  ExpectRefused("0W1", "the gradient is already reduced, an UPDATE must come first");
  Do("NORM");
  ExpectRefused("NORM", "the gradient of stage 0 is already normed");
  Do("0UPDATE 0W1 0REDUCE 0UPDATE FLUSH");
}

// Replica 1 of two, whose gradient has an update for two microbatches.
TEST_F(MachineTest, ReductionThatHasBegun_TakesOneMoreWAndNothingAfterIt) {
  Make(ReplicatedStages({2}, ReduceGroup::Operation::kSum), 1);
  ExpectRefused("1BEGIN_REDUCE", "no stage of that group is on this worker");
  Do("1F1 1I1 1W1 1F3 1I3 1F5 1I5");
  Do("0BEGIN_REDUCE");
  ExpectRefused("0BEGIN_REDUCE", "stage 1's reduction has already begun");
  ExpectRefused("0REDUCE", "stage 1 has made no W since its BEGIN_REDUCE");
  ExpectRefused("1UPDATE", "the gradient is not reduced over its groups");
  const Effect last = Do("1W3");
  EXPECT_EQ(last.completes, GroupId(0));
  EXPECT_EQ(last.microbatches, (MicrobatchRange{0, 4}));
  ExpectRefused("1W5", "the W that BEGIN_REDUCE announced as the last has come");
  ExpectRefused("1UPDATE", "the gradient is not reduced over its groups");
  EXPECT_EQ(Do("0REDUCE").microbatches, (MicrobatchRange{0, 4}));
  ExpectRefused("0BEGIN_REDUCE", "stage 1's reduction has already begun");
  ExpectRefused("1W5", "the gradient is already reduced");
  Do("1UPDATE");
  // Without the announcement it is reduced as before.
  EXPECT_EQ(Do("1W5").completes, GroupId(-1));
  Do("0REDUCE");
  ExpectRefused("0BEGIN_REDUCE", "stage 1 is already reduced");
  Do("1UPDATE FLUSH");
}

TEST_F(MachineTest, ReductionThatHasBegun_IsNotLeftAtAFlush) {
  Make(ReplicatedStages({2}, ReduceGroup::Operation::kMean), 0);
  Do("0BEGIN_REDUCE");
  ExpectRefused("FLUSH", "stage 0 has made no W since its BEGIN_REDUCE");
  Do("0F0 0I0 0W0");
  ExpectRefused("FLUSH", "stage 0 has accumulated gradients without an UPDATE");
  Do("0REDUCE 0UPDATE FLUSH");
}

// Two pipelines of two stages on a worker each. Both groups have the same members, so their messages share the edges.
TEST_F(MachineTest, ReductionsThatHaveBegun_EndInThatOrderBeforeAllOthers) {
  Topology topology =
      PlaceReplicas(**FindMethod("looped-bfs"), {2, 2}, /*stages_per_worker=*/2).value();
  const std::vector<std::vector<int32_t>> ends = {{0, 1}};
  TieParts(topology, ends);
  ASSERT_EQ(topology.groups.size(), 3u);
  Make(topology, 0);
  const std::vector<StageId> stages = topology.StagesOf(WorkerId(0));
  ASSERT_EQ(stages.size(), 2u);
  const std::string first = absl::StrCat(stages[0].value), second = absl::StrCat(stages[1].value);
  Do(absl::StrCat(first, "F0 ", second, "F0 ", second, "I0 ", first, "I0"));
  Do(absl::StrCat("1BEGIN_REDUCE ", second, "W0 0BEGIN_REDUCE ", first, "W0"));
  ExpectRefused("0REDUCE", "the reduction of group 1 has begun before it");
  ExpectRefused("2REDUCE", "the reduction of group 1 has begun before it");
  ExpectRefused("2BEGIN_REDUCE", "the group is not one of replicas of a stage");
  Do("1REDUCE");
  ExpectRefused("2REDUCE", "the reduction of group 0 has begun before it");
  Do("0REDUCE 2REDUCE");
  Do(absl::StrCat(first, "UPDATE ", second, "UPDATE FLUSH"));
}

TEST_F(MachineTest, StagesWithoutReplicas_BeginNoReduction) {
  Topology topology = StraightPipeline(2);
  topology.groups = {{.stages = {StageId(0), StageId(1)}}};
  Make(topology, 0);
  ExpectRefused("0BEGIN_REDUCE", "the group is not one of replicas of a stage");
  machine_->BeginRange(Completeness::kEvaluate);
  ExpectRefused("0BEGIN_REDUCE", "not in an evaluate range");
}

TEST_F(MachineTest, GroupWithinAWorker_ReducesOnceForAllItsStages) {
  Topology topology = PipelineOn({WorkerId(0), WorkerId(1), WorkerId(0)});
  topology.groups = {{.stages = {StageId(0), StageId(2)}}};
  Make(topology, 0);
  Do("0F0 0SEND_F0 2RECV_F0 2F0 2I0 2W0 2SEND_B0");
  ExpectRefused("0REDUCE", "stage 0 has accumulated no gradient");
  Do("0RECV_B0 0I0 0W0 0REDUCE 2UPDATE");
  ExpectRefused("0REDUCE", "stage 0 is already reduced");
  Do("0UPDATE FLUSH");
}

TEST_F(MachineTest, ReduceOfWeights_ComesWithoutAccumulatedGradients) {
  Topology topology = TiedOptions(2, 1).topology;
  topology.groups[0].quantity = ReduceGroup::Quantity::kWeight;
  Make(topology, 0);
  Do("0F0 0SEND_F0 0RECV_B0 0I0 0W0");
  ExpectRefused("0REDUCE", "stage 0 has accumulated gradients without an UPDATE");
  Do("0UPDATE 0REDUCE FLUSH");
}

TEST_F(MachineTest, Replicas_MustBeAveragedAfterTheirLastSteps) {
  Make(ReplicatedPipelines(1, 2), 0);
  Do("0F0 0I0 0W0 0UPDATE");
  ExpectRefused("FLUSH", "the weights of group 0 are not averaged since the last UPDATE");
  Do("1F1");
  ExpectRefused("0REDUCE", "stage 1 has microbatches between F and W");
  Do("1I1 1W1 1UPDATE 0REDUCE FLUSH 0F2 0I2 0W2 0UPDATE");
  ExpectRefused("FLUSH", "the weights of group 0 are not averaged since the last UPDATE");
  Do("0REDUCE FLUSH");
}

TEST_F(MachineTest, SeveralPipelines_TakeTheirOwnMicrobatchesInOrder) {
  Make(ReplicatedPipelines(2, 3), 1);
  ExpectRefused("1RECV_F1", "the microbatch goes through pipeline 1, the stage is of pipeline 0");
  ExpectRefused("1SEND_F0", "there is no stage on that side");
  ExpectRefused("1RECV_B0", "there is no stage on that side");
  Do("3RECV_F1 3F1 3RECV_F4 3F4 3RECV_F7 3F7 3I1 3I4 3I7 3W1");
  ExpectRefused("3W7", "gradients must be accumulated in the order of the microbatches");
  Do("3W4 3W7");
  const Effect effect = Do("3UPDATE");
  EXPECT_EQ(effect.microbatches, (MicrobatchRange{1, 7}));
  EXPECT_EQ(counts(3).staleness, (StalenessCount{1, 0, 0, 3}));
}

TEST_F(MachineTest, RelativeState_IsTheSameAfterAShiftOfMicrobatchesAndVersions) {
  Make(StraightPipeline(3), 0, kStashedVersions);
  Do("0F0 0SEND_F0 0F1 0SEND_F1");
  const auto period = [](int64_t k) {
    return absl::StrCat("0F", k + 2, " 0SEND_F", k + 2, " 0RECV_B", k, " 0I", k, " 0W", k,
                        " 0UPDATE");
  };
  Do(period(0));
  const std::vector<int64_t> before = State(0);
  Do(period(1));
  const std::vector<int64_t> after = State(1);
  EXPECT_NE(before, after) << "microbatch 1 still reads the initial weights";
  Do(period(2));
  EXPECT_EQ(State(2), after);
}

TEST_F(MachineTest, SteadyState_AllocatesNothing) {
  const Schedule schedule = CatalogSchedule("pipedream", 8, 1, {0, 3000});
  Make(schedule.topology, 0, schedule.weight_policy);
  int64_t allocations_warm = 0;
  for (ProgramCursor cursor(schedule.programs[0]); !cursor.Done(); cursor.Advance()) {
    ASSERT_TRUE(machine_->Apply(cursor.Current()).ok());
    if (cursor.position() == 1000) allocations_warm = AllocationCount();
    if (cursor.position() == 15'000) break;
  }
  EXPECT_EQ(AllocationCount(), allocations_warm);
}

TEST(AddRange, Counts_AddUpAndPeaksStay) {
  StageCounts total{.staleness = {2, 3, 4, 5}, .versions_peak = 3, .activations_peak = 1};
  AddRange({.staleness = {1, 1, 1, 1}, .versions_peak = 2, .activations_peak = 4}, total);
  EXPECT_EQ(total.staleness, (StalenessCount{3, 3, 5, 6}));
  EXPECT_EQ(total.versions_peak, 3);
  EXPECT_EQ(total.activations_peak, 4);
}

}  // namespace
}  // namespace penstock
