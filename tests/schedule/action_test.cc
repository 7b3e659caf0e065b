#include "schedule/action.h"

#include <string>

#include "base/random.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

TEST(Action, EveryOperation_PrintsAndParses) {
  for (int kind = 0; kind < kActionKinds; ++kind) {
    Action action{static_cast<ActionKind>(kind)};
    if (HasIndex(action.kind)) action.index = 12;
    if (HasMicrobatch(action.kind)) action.microbatch = 3'456'789'012;
    EXPECT_THAT(ParseAction(ToString(action)), IsOkAndHolds(action)) << ToString(action);
  }
}

TEST(Action, KnownTexts_Print) {
  EXPECT_EQ(ToString({ActionKind::kForward, 1, 3}), "1F3");
  EXPECT_EQ(ToString({ActionKind::kSendActivation, 0, 3}), "0SEND_F3");
  EXPECT_EQ(ToString({ActionKind::kRecvGradient, 2, 0}), "2RECV_B0");
  EXPECT_EQ(ToString({ActionKind::kRecompute, 2, 0}), "2R0");
  EXPECT_EQ(ToString({ActionKind::kOffload, 2, 7}), "2OFFLOAD7");
  EXPECT_EQ(ToString({ActionKind::kEvict, 2, 7}), "2EVICT7");
  EXPECT_EQ(ToString({ActionKind::kPrefetch, 2, 7}), "2PREFETCH7");
  EXPECT_EQ(ToString({ActionKind::kBackwardInput, 2, 0}), "2I0");
  EXPECT_EQ(ToString({ActionKind::kReduce, 4}), "4REDUCE");
  EXPECT_EQ(ToString({ActionKind::kBeginReduce, 4}), "4BEGIN_REDUCE");
  EXPECT_EQ(ToString({ActionKind::kLoadWeights, 5, 8}), "5LOAD8");
  EXPECT_EQ(ToString({ActionKind::kUpdate, 1}), "1UPDATE");
  EXPECT_EQ(ToString({ActionKind::kNorm}), "NORM");
  EXPECT_EQ(ToString({ActionKind::kNorm, 2}), "2NORM");
  EXPECT_THAT(ParseAction("2NORM"), IsOkAndHolds(Action{ActionKind::kNorm, 2}));
  EXPECT_EQ(ToString({ActionKind::kFlush}), "FLUSH");
}

TEST(ParseAction, NameOfTheVersionBefore_IsTheUpdate) {
  EXPECT_THAT(ParseAction("1STEP"), IsOkAndHolds(Action{ActionKind::kUpdate, 1}));
}

struct BadText {
  absl::string_view text, expected;
};

TEST(ParseAction, BadText_SaysWhatWasExpected) {
  for (const BadText& bad : {BadText{"", "operation"},
                             {"1X3", "operation"},
                             {"1f3", "operation"},
                             {"F3", "the stage in front of F"},
                             {"REDUCE", "the group in front of REDUCE"},
                             {"BEGIN_REDUCE", "the group in front of BEGIN_REDUCE"},
                             {"1BEGIN_REDUCE2", "nothing after BEGIN_REDUCE"},
                             {"1F", "the microbatch after F"},
                             {"1F-3", "the microbatch after F"},
                             {"1F3x", "the microbatch after F"},
                             {"1F99999999999999999999", "the microbatch after F"},
                             {"99999999999F1", "the stage in front of F"},
                             {"1UPDATE2", "nothing after UPDATE"},
                             {"0FLUSH", "FLUSH without a stage"},
                             {"1F 3", "the microbatch after F"}}) {
    EXPECT_THAT(ParseAction(bad.text),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(std::string(bad.expected))))
        << bad.text;
  }
}

TEST(ParseAction, RandomText_NeverCrashesAndRoundTrips) {
  constexpr absl::string_view kAlphabet = "0123456789FIWSENDRCVB_TPLUHOM ,-";
  RandomStream random(1, 0);
  for (int round = 0; round < 200'000; ++round) {
    std::string text;
    for (uint64_t i = random.Below(9); i > 0; --i) {
      text += kAlphabet[random.Below(kAlphabet.size())];
    }
    const absl::StatusOr<Action> action = ParseAction(text);
    if (!action.ok()) continue;
    EXPECT_THAT(ParseAction(ToString(*action)), IsOkAndHolds(*action)) << text;
  }
}

}  // namespace
}  // namespace penstock
