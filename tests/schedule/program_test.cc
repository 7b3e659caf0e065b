#include "schedule/program.h"

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

ActionList RandomList(RandomStream& random) {
  ActionList list;
  for (uint64_t i = random.Below(4); i > 0; --i) {
    const ActionKind kind = static_cast<ActionKind>(random.Below(kActionKinds));
    list.push_back({kind, 0, HasMicrobatch(kind) ? static_cast<int64_t>(random.Below(9)) : 0});
  }
  return list;
}

// What the header says a program means, written down plainly.
ActionList ExpandPlainly(const Program& program) {
  ActionList result = program.prologue;
  for (int64_t copy = 0; copy < program.repeats; ++copy) {
    for (Action action : program.period) {
      if (HasMicrobatch(action.kind)) action.microbatch += copy * program.shift;
      result.push_back(action);
    }
  }
  result.insert(result.end(), program.epilogue.begin(), program.epilogue.end());
  return result;
}

TEST(Program, AnyShape_CursorSizeAndAtAgreeWithItsMeaning) {
  RandomStream random(2, 0);
  for (int round = 0; round < 5000; ++round) {
    const Program program{.prologue = RandomList(random),
                          .period = RandomList(random),
                          .repeats = static_cast<int64_t>(random.Below(4)),
                          .shift = static_cast<int64_t>(random.Below(3)),
                          .epilogue = RandomList(random)};
    const ActionList expected = ExpandPlainly(program);
    ASSERT_EQ(Expand(program), expected);
    ASSERT_EQ(program.size(), static_cast<int64_t>(expected.size()));
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(program.At(static_cast<int64_t>(i)), expected[i]);
    }
  }
}

TEST(ProgramCursor, Periods_AreCountedWhenTheirLastActionIsPassed) {
  const Action forward{ActionKind::kForward};
  const Program program{.prologue = {forward},
                        .period = {forward, forward},
                        .repeats = 3,
                        .shift = 1,
                        .epilogue = {{ActionKind::kFlush}}};
  ProgramCursor cursor(program);
  for (const int64_t expected : {0, 0, 0, 1, 1, 2, 2, 3}) {
    EXPECT_EQ(cursor.periods_done(), expected) << cursor.position();
    cursor.Advance();
  }
  EXPECT_TRUE(cursor.Done());
  EXPECT_EQ(cursor.position(), program.size());
}

// Steps of three microbatches whose first `before` ones, and last `after` ones, are unlike the others.
TEST(ProgramOfSteps, AnyNumberOfSteps_IsTheListOfThem) {
  for (const int64_t before : {0, 1, 2}) {
    for (const int64_t after : {0, 1, 2}) {
      const auto list_of = [&](int64_t steps) {
        ActionList list;
        for (int64_t step = 0; step < steps; ++step) {
          list.push_back({ActionKind::kForward, 0, 5 + 3 * step});
          if (step < before) list.push_back({ActionKind::kForward, 1, 5 + 3 * step});
          if (step >= steps - after) list.push_back({ActionKind::kForward, 2, 5 + 3 * step});
          list.push_back({ActionKind::kUpdate, 0});
        }
        return list;
      };
      for (const int64_t steps : {1, 2, 3, 4, 5, 6, 9, 40}) {
        SCOPED_TRACE(absl::StrCat(steps, " steps, ", before, " and ", after, " unlike the others"));
        const Program program = ProgramOfSteps(steps, 3, list_of);
        EXPECT_EQ(Expand(program), list_of(steps));
        EXPECT_LE(program.prologue.size() + program.period.size() + program.epilogue.size(), 20u);
        EXPECT_GE(program.repeats, steps - 8);
      }
    }
  }
}

}  // namespace
}  // namespace penstock
