#include "worker/order_replay.h"

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Two stages on two workers, four microbatches from 8 on.
absl::StatusOr<OrderReplay> Replay(const std::string& first, const std::string& second,
                                   const OrderReplay::Rules& rules = {}) {
  const auto order = ParseRecordedOrder(
      absl::StrCat("penstock-order 1\nmethod m\nmicrobatches 4\nstage 0 worker 0 layers 0+1\n"
                   "stage 1 worker 1 layers 1+1\nrange 8+4\nworker 0\n",
                   first, "\nworker 1\n", second, "\nend\n"));
  if (!order.ok()) return order.status();
  return OrderReplay::Make(*order, rules);
}

std::vector<int64_t> UpdatesOf(const OrderReplay& replay, size_t stage) {
  std::vector<int64_t> updates;
  for (int64_t m = 8; m < 12; ++m) updates.push_back(replay.UpdatesBeforeForward(stage, m));
  return updates;
}

constexpr char kInTurn[] = "1F 1B 1F 1B 1F 1B 1F 1B";

TEST(OrderReplay, UpdatesBeforeEachForward_AreItsBackwardsByThen) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const OrderReplay replay, Replay("0F*2 0B 0F 0B*2 0F 0B", kInTurn));
  EXPECT_THAT(UpdatesOf(replay, 0), ::testing::ElementsAre(0, 0, 1, 3));
  EXPECT_THAT(UpdatesOf(replay, 1), ::testing::ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(replay.LateMax(0), 1);
  EXPECT_EQ(replay.LateMax(1), 0);
}

TEST(OrderReplay, UpdatesOfSeveralMicrobatches_CountWholeOnes) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const OrderReplay replay, Replay("0F*2 0B 0F 0B*2 0F 0B", kInTurn,
                                                                 {.microbatches_per_update = 2}));
  EXPECT_THAT(UpdatesOf(replay, 0), ::testing::ElementsAre(0, 0, 0, 1));
  EXPECT_EQ(replay.LateMax(0), 1);
}

// Two replicas before one stage, four microbatches from 8 on.
absl::StatusOr<OrderReplay> ReplayReplicas(const std::string& first, const std::string& second,
                                           const std::string& third) {
  const auto order = ParseRecordedOrder(absl::StrCat(
      "penstock-order 1\nmethod m\nmicrobatches 4\nstage 0 worker 0 layers 0+1\n"
      "stage 1 worker 1 layers 0+1\nstage 2 worker 2 layers 1+1\nrange 8+4\nworker 0\n",
      first, "\nworker 1\n", second, "\nworker 2\n", third, "\nend\n"));
  if (!order.ok()) return order.status();
  return OrderReplay::Make(*order, {});
}

constexpr char kThirdInTurn[] = "2F 2B 2F 2B 2F 2B 2F 2B";

// Each replica has two of the microbatches, and finds the updates that both have made.
TEST(OrderReplay, Replicas_FindWhatTheirOwnLogsSay) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const OrderReplay replay,
                                ReplayReplicas("0F 0B 0F 0B", "1F*2 1B*2", kThirdInTurn));
  EXPECT_THAT(UpdatesOf(replay, 0), ::testing::ElementsAre(0, 0, 1, 0));
  EXPECT_THAT(UpdatesOf(replay, 1), ::testing::ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(replay.FewestFrom(0, 10), 0);
  EXPECT_EQ(replay.FewestFrom(1, 10), 2);
  EXPECT_EQ(replay.LateMax(0), 1);
}

TEST(OrderReplay, ReplicaThatWouldNotHaveWaited_IsRefused) {
  EXPECT_THAT(ReplayReplicas("0F 0B 0F 0B", "1F 1B 1F 1B", kThirdInTurn), IsOk());
  EXPECT_THAT(ReplayReplicas("0F 0B 0F 0B", "1F 1B 1F 1B", "2F 2B 2F*2 2B*2 2F 2B"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("worker 0, block 2 (0F)"),
                             HasSubstr("stage 1 has not done its part of update 1"))));
}

TEST(OrderReplay, WhatCannotHaveHappened_IsRefusedWithWorkerAndBlock) {
  const auto refused = [](const std::string& first, const std::string& second,
                          const OrderReplay::Rules& rules = {}) {
    const auto replay = Replay(first, second, rules);
    EXPECT_THAT(replay, StatusIs(absl::StatusCode::kInvalidArgument,
                                 HasSubstr("microbatches 8 to 11, worker ")));
    return std::string(replay.status().message());
  };
  EXPECT_THAT(refused("0B 0F*4 0B*3", kInTurn), AllOf(HasSubstr("worker 0, block 0 (0B)"),
                                                      HasSubstr("its forward has not been run")));
  // Five forwards, three backwards.
  EXPECT_THAT(refused("0F*4 0B*3 0F", kInTurn),
              AllOf(HasSubstr("worker 0, block 7 (0F)"), HasSubstr("no more microbatches")));
  // Each waits for the other.
  EXPECT_THAT(refused("0F 0B 0F 0B 0F*2 0B*2", "1F*2 1B*2 1F*2 1B*2"),
              AllOf(HasSubstr("worker 0, block 1 (0B)"),
                    HasSubstr("stage 1 has not run the backward of microbatch 8")));
  EXPECT_THAT(refused("0F*3 0B*3 0F 0B", kInTurn, {.microbatches_per_update = 2, .drains = true}),
              AllOf(HasSubstr("worker 0, block 2 (0F)"), HasSubstr("the step before")));
  EXPECT_THAT(refused("0F*4 0B*4", kInTurn, {.lag = 2}),
              AllOf(HasSubstr("block 3 (0F)"), HasSubstr("weight version 1 of the range")));
  EXPECT_THAT(Replay("0F*3 0B*3 0F 0B", kInTurn, {.lag = 2}), IsOk());
}

}  // namespace
}  // namespace penstock
