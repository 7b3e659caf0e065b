#include "schedule/program.h"

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

}  // namespace
}  // namespace penstock
