#include "schedule/lower.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/schedule/schedules.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

std::string Text(const Program& program) {
  return absl::StrJoin(Expand(program), " ", [](std::string* out, const Action& action) {
    out->append(ToString(action));
  });
}

std::string LowerText(const Topology& topology, int32_t worker, absl::string_view actions,
                      const LowerOptions& options = {}) {
  Program compute;
  for (const absl::string_view action : absl::StrSplit(actions, ' ')) {
    compute.prologue.push_back(ParseAction(action).value());
  }
  return Text(Lower(compute, topology, WorkerId(worker), options));
}

TEST(Lower, WholeBackward_SendsItsGradientAfterW) {
  EXPECT_EQ(LowerText(StraightPipeline(3), 1, "1F0 1I0 1W0 1UPDATE"),
            "1RECV_F0 1F0 1SEND_F0 1RECV_B0 1I0 1W0 1SEND_B0 1UPDATE FLUSH");
}

TEST(Lower, EarlyOrSplitBackward_SendsItsGradientAfterI) {
  EXPECT_EQ(LowerText(StraightPipeline(2), 1, "1F0 1I0 1W0 1UPDATE", {.send_gradient_early = true}),
            "1RECV_F0 1F0 1I0 1SEND_B0 1W0 1UPDATE FLUSH");
  EXPECT_EQ(LowerText(StraightPipeline(2), 1, "1F0 1F1 1I0 1I1 1W0 1W1 1UPDATE"),
            "1RECV_F0 1F0 1RECV_F1 1F1 1I0 1SEND_B0 1I1 1SEND_B1 1W0 1W1 1UPDATE FLUSH");
}

TEST(Lower, EndsOfThePipeline_HaveNoMessagesOutwards) {
  EXPECT_EQ(LowerText(StraightPipeline(2), 0, "0F0 0I0 0W0 0UPDATE"),
            "0F0 0SEND_F0 0RECV_B0 0I0 0W0 0UPDATE FLUSH");
  EXPECT_EQ(LowerText(StraightPipeline(1), 0, "0F0 0I0 0W0 0UPDATE"), "0F0 0I0 0W0 0UPDATE FLUSH");
}

TEST(Lower, NeighboursOnOneWorker_ExchangeNoMessages) {
  const Topology topology = PipelineOn({WorkerId(0), WorkerId(0), WorkerId(1)});
  EXPECT_EQ(LowerText(topology, 0, "0F0 1F0 1I0 1W0 0I0 0W0 0UPDATE 1UPDATE"),
            "0F0 1F0 1SEND_F0 1RECV_B0 1I0 1W0 0I0 0W0 0UPDATE 1UPDATE FLUSH");
}

TEST(Lower, Groups_AreReducedOnceInAscendingOrderBeforeNormAndSteps) {
  Topology topology = PipelineOn({WorkerId(0), WorkerId(1), WorkerId(0)});
  topology.groups = {
      {.stages = {StageId(1), StageId(2)}},
      {.stages = {StageId(0), StageId(2)}},
      {.stages = {StageId(0), StageId(1)}, .quantity = ReduceGroup::Quantity::kWeight}};
  EXPECT_EQ(LowerText(topology, 0, "2UPDATE 0UPDATE 2UPDATE", {.global_norm = true}),
            "0REDUCE 1REDUCE NORM 2UPDATE 0UPDATE 2UPDATE FLUSH");
  EXPECT_EQ(LowerText(topology, 1, "1UPDATE"), "0REDUCE 1UPDATE FLUSH");
}

TEST(Lower, LastWOfAReplica_IsAnnouncedBeforeTheBackwardThatItEnds) {
  const Topology topology = ReplicatedStages({2, 1}, ReduceGroup::Operation::kSum);
  EXPECT_EQ(LowerText(topology, 1, "1F1 1I1 1W1 1F3 1I3 1W3 1UPDATE"),
            "1F1 1SEND_F1 1RECV_B1 1I1 1W1 1F3 1SEND_F3 0BEGIN_REDUCE 1RECV_B3 1I3 1W3 0REDUCE "
            "1UPDATE FLUSH");
  EXPECT_EQ(LowerText(topology, 0, "0F0 0F2 0I0 0I2 0W0 0W2 0UPDATE"),
            "0F0 0SEND_F0 0F2 0SEND_F2 0RECV_B0 0I0 0RECV_B2 0I2 0W0 0BEGIN_REDUCE 0W2 0REDUCE "
            "0UPDATE FLUSH");
  EXPECT_EQ(LowerText(topology, 2, "2F0 2I0 2W0 2UPDATE"),
            "2RECV_F0 2F0 2I0 2W0 2SEND_B0 2UPDATE FLUSH")
      << "it has no replicas";
  EXPECT_EQ(LowerText(topology, 0, "0F0 0I0 0W0 0UPDATE 0F2 0I2 0W2 0UPDATE"),
            "0F0 0SEND_F0 0BEGIN_REDUCE 0RECV_B0 0I0 0W0 0REDUCE 0UPDATE 0F2 0SEND_F2 "
            "0BEGIN_REDUCE 0RECV_B2 0I2 0W2 0REDUCE 0UPDATE FLUSH");
  EXPECT_EQ(LowerText(topology, 0, "0UPDATE"), "0REDUCE 0UPDATE FLUSH")
      << "a list that ends an update which another began";
  EXPECT_EQ(LowerText(topology, 0, "0F0 0SEND_F0 0RECV_B0 0I0 0W0 0UPDATE", {.has_messages = true}),
            "0F0 0SEND_F0 0RECV_B0 0BEGIN_REDUCE 0I0 0W0 0REDUCE 0UPDATE FLUSH");
}

// The later stage's backward comes first, and so does its reduction, beside the other one's backward.
TEST(Lower, SeveralReplicasOnAWorker_AreReducedInTheOrderOfTheirLastW) {
  const Topology topology =
      PlaceReplicas(**FindMethod("looped-bfs"), {2, 2}, /*stages_per_worker=*/2).value();
  const std::vector<StageId> stages = topology.StagesOf(WorkerId(0));
  ASSERT_EQ(stages.size(), 2u);
  const std::string a = absl::StrCat(stages[0].value), b = absl::StrCat(stages[1].value);
  EXPECT_EQ(LowerText(topology, 0,
                      absl::StrCat(a, "F0 ", b, "F0 ", b, "I0 ", b, "W0 ", a, "I0 ", a, "W0 ", a,
                                   "UPDATE ", b, "UPDATE"),
                      {.global_norm = true}),
            absl::StrCat(a, "F0 ", b, "F0 1BEGIN_REDUCE ", b, "I0 ", b, "W0 0BEGIN_REDUCE ", a,
                         "I0 ", a, "W0 1REDUCE 0REDUCE NORM ", a, "UPDATE ", b, "UPDATE FLUSH"));
}

TEST(Lower, PrologueAndPeriod_AreLoweredByThemselves) {
  const Schedule schedule = CatalogSchedule("pipedream", 2, 1, {0, 3});
  EXPECT_EQ(schedule.programs[0].period.size(), 6u);
  EXPECT_EQ(schedule.programs[0].repeats, 2);
  EXPECT_EQ(
      Text(schedule.programs[0]),
      "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0I0 0W0 0UPDATE 0F2 0SEND_F2 0RECV_B1 0I1 0W1 0UPDATE "
      "0RECV_B2 0I2 0W2 0UPDATE FLUSH");
}

Topology Recomputing(int32_t stages, const std::vector<StageId>& recomputes) {
  Topology topology = StraightPipeline(stages);
  topology.Recompute(recomputes);
  return topology;
}

TEST(Lower, StageThatRecomputes_DoesSoBeforeItWaitsForTheGradient) {
  const Topology topology = Recomputing(3, {StageId(1), StageId(2)});
  EXPECT_EQ(LowerText(topology, 0, "0F0 0I0 0W0 0UPDATE"),
            "0F0 0SEND_F0 0RECV_B0 0I0 0W0 0UPDATE FLUSH");
  EXPECT_EQ(LowerText(topology, 1, "1F0 1I0 1W0 1UPDATE"),
            "1RECV_F0 1F0 1SEND_F0 1R0 1RECV_B0 1I0 1W0 1SEND_B0 1UPDATE FLUSH");
  EXPECT_EQ(LowerText(topology, 2, "2F0 2F1 2I0 2I1 2W0 2W1 2UPDATE"),
            "2RECV_F0 2F0 2RECV_F1 2F1 2R0 2I0 2SEND_B0 2R1 2I1 2SEND_B1 2W0 2W1 2UPDATE FLUSH");
}

TEST(Lower, ListWithItsMessages_GetsRBeforeThoseOfTheBackward) {
  const Topology topology = Recomputing(2, {StageId(0), StageId(1)});
  const LowerOptions has_messages = {.has_messages = true};
  EXPECT_EQ(LowerText(topology, 0, "0F0 0SEND_F0 0RECV_B0 0I0 0W0 0UPDATE", has_messages),
            "0F0 0SEND_F0 0R0 0RECV_B0 0I0 0W0 0UPDATE FLUSH");
  EXPECT_EQ(LowerText(topology, 1, "1RECV_F0 1F0 1I0 1SEND_B0 1W0 1UPDATE", has_messages),
            "1RECV_F0 1F0 1R0 1I0 1SEND_B0 1W0 1UPDATE FLUSH");
  // The gradient of a neighbour on the same worker comes without a message.
  Topology local = PipelineOn({WorkerId(0), WorkerId(0)});
  local.Recompute({StageId(0)});
  EXPECT_EQ(LowerText(local, 0, "0F0 1F0 1I0 1W0 0I0 0W0 0UPDATE 1UPDATE", has_messages),
            "0F0 1F0 1I0 1W0 0R0 0I0 0W0 0UPDATE 1UPDATE FLUSH");
}

TEST(Lower, ListThatSaysWhereRIs_KeepsItThere) {
  const Topology topology = Recomputing(2, {StageId(0)});
  EXPECT_EQ(LowerText(topology, 0, "0F0 0R0 0F1 0R1 0I0 0W0 0I1 0W1 0UPDATE"),
            "0F0 0SEND_F0 0R0 0F1 0SEND_F1 0R1 0RECV_B0 0I0 0W0 0RECV_B1 0I1 0W1 0UPDATE FLUSH");
  EXPECT_EQ(
      LowerText(topology, 0, "0F0 0SEND_F0 0RECV_B0 0R0 0I0 0W0 0UPDATE", {.has_messages = true}),
      "0F0 0SEND_F0 0RECV_B0 0R0 0I0 0W0 0UPDATE FLUSH");
}

TEST(CompleteSchedule, ListsWithoutStep_GetOneForEachStage) {
  const Schedule schedule = ScheduleFromText("0F0,,1F0,1B0,0B0\n");
  EXPECT_EQ(Text(schedule.programs[0]), "0F0 1F0 1I0 1W0 0I0 0W0 0UPDATE 1UPDATE FLUSH");
  EXPECT_FALSE(IsComputeOnly(schedule));
}

TEST(CompleteSchedule, WrongActions_AreNamed) {
  const Schedule foreign =
      ParseSchedule("# penstock schedule 1 stages=0,1\n0F0,1F0\n1F0\n").value();
  EXPECT_THAT(CompleteSchedule(foreign, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("worker 0: 1F0")));
  const Schedule complete = CatalogSchedule("1f1b", 2, 2, {0, 2});
  EXPECT_THAT(CompleteSchedule(complete, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("worker 0: FLUSH")));
}

}  // namespace
}  // namespace penstock
