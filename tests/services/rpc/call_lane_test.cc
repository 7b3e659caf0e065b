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
  CallLane lane("test", {.threads = 1, .calls_max = 2});
  absl::StatusOr<CallLane::Place> first = lane.Admit();
  const absl::StatusOr<CallLane::Place> second = lane.Admit();
  ASSERT_THAT(first, IsOk());
  ASSERT_THAT(second, IsOk());
  EXPECT_THAT(lane.Admit().status(),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("2 calls"), HasSubstr("try again later"))));
  first->GiveBack();
  first->GiveBack();  // counts once
  EXPECT_THAT(lane.Admit(), IsOk()) << "and this place goes at once";
  EXPECT_THAT(lane.Admit(), IsOk());
}

TEST(CallLane, TasksOfAllPlaces_HaveRoomWhileTheThreadIsBusy) {
  constexpr int kCalls = 8;
  std::promise<void> gate;
  std::promise<void> ran;
  std::vector<CallLane::Place> places;
  CallLane lane("test", {.threads = 1, .calls_max = kCalls});
  for (int i = 0; i < kCalls; ++i) {
    absl::StatusOr<CallLane::Place> place = lane.Admit();
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
