#include "services/rpc/call_lane.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <vector>

#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(CallLane, AllPlacesTaken_SaysWhichLimitAndTakesCallsAgainWhenOneIsGivenBack) {
  CallLane lane("test", {.threads = 1, .calls_max = 2, .calls_per_peer_max = 2});
  absl::StatusOr<CallLane::Place> first = lane.Admit("a");
  const absl::StatusOr<CallLane::Place> second = lane.Admit("a");
  ASSERT_THAT(first, IsOk());
  ASSERT_THAT(second, IsOk());
  EXPECT_THAT(lane.Admit("a").status(),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("2 calls"), HasSubstr("try again later"))));
  first->GiveBack();
  first->GiveBack();  // counts once
  EXPECT_THAT(lane.Admit("a"), IsOk()) << "and this place goes at once";
  EXPECT_THAT(lane.Admit("a"), IsOk());
}

TEST(CallLane, OnePeerWithItsShare_IsToldSoAndOthersHaveRoom) {
  CallLane lane("test", {.threads = 1, .calls_max = 3, .calls_per_peer_max = 2});
  absl::StatusOr<CallLane::Place> first = lane.Admit("ann");
  const absl::StatusOr<CallLane::Place> second = lane.Admit("ann");
  ASSERT_THAT(second, IsOk());
  EXPECT_THAT(lane.Admit("ann").status(),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("ann has 2 calls"), HasSubstr("one peer (3 for all)"),
                             HasSubstr("make fewer at a time"))));
  EXPECT_THAT(lane.Admit("bob"), IsOk());
  first->GiveBack();
  EXPECT_THAT(lane.Admit("ann"), IsOk());
}

TEST(CallLane, TasksOfAllPlaces_HaveRoomWhileTheThreadIsBusy) {
  constexpr int kCalls = 8;
  std::promise<void> gate;
  std::promise<void> ran;
  std::vector<CallLane::Place> places;
  CallLane lane("test", {.threads = 1, .calls_max = kCalls, .calls_per_peer_max = kCalls});
  for (int i = 0; i < kCalls; ++i) {
    absl::StatusOr<CallLane::Place> place = lane.Admit("a");
    ASSERT_THAT(place, IsOk());
    places.push_back(*std::move(place));
    lane.Run([&, i] {
      if (i == 0) gate.get_future().wait();
      if (i == kCalls - 1) ran.set_value();
    });
  }
  gate.set_value();
  ran.get_future().wait();
  places.clear();
}

}  // namespace
}  // namespace penstock
