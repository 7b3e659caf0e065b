#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/random.h"
#include "job/resolve.h"

namespace penstock {

void PrintTo(const Cut& cut, std::ostream* out) {
  *out << cut.step << (cut.validate ? "v" : "") << (cut.checkpoint ? "c" : "");
}

namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

v1::JobSpec Job(int64_t steps, int64_t validate_every, int64_t checkpoint_every) {
  v1::JobSpec spec;
  spec.mutable_training()->set_steps(steps);
  spec.mutable_validation()->set_every_steps(validate_every);
  spec.mutable_checkpoint()->set_every_steps(checkpoint_every);
  return spec;
}

TEST(CutsOf, NoValidationOrCheckpoint_IsTheEndAlone) {
  EXPECT_THAT(CutsOf(Job(50, 0, 0), 0, {}), ElementsAre(Cut{50}));
}

TEST(CutsOf, Both_MergeWhereTheyMeet) {
  EXPECT_THAT(CutsOf(Job(40, 10, 20), 0, {}),
              ElementsAre(Cut{10, true, false}, Cut{20, true, true}, Cut{30, true, false},
                          Cut{40, true, true}));
}

TEST(CutsOf, EndIsNoMultiple_StillValidatesAndSaves) {
  EXPECT_THAT(CutsOf(Job(25, 10, 20), 0, {}),
              ElementsAre(Cut{10, true, false}, Cut{20, true, true}, Cut{25, true, true}));
}

TEST(CutsOf, DirectoryAlone_SavesAtTheEndWithoutAnotherCut) {
  v1::JobSpec spec = Job(25, 10, 0);
  spec.mutable_checkpoint()->set_directory("checkpoints/");
  EXPECT_THAT(CutsOf(spec, 0, {}),
              ElementsAre(Cut{10, true, false}, Cut{20, true, false}, Cut{25, true, true}));
}

TEST(CutsOf, Resumed_LeavesOutWhatIsDone) {
  EXPECT_THAT(CutsOf(Job(40, 10, 20), 20, {}),
              ElementsAre(Cut{30, true, false}, Cut{40, true, true}));
  EXPECT_THAT(CutsOf(Job(40, 10, 20), 19, {}),
              ElementsAre(Cut{20, true, true}, Cut{30, true, false}, Cut{40, true, true}));
  EXPECT_THAT(CutsOf(Job(40, 10, 20), 40, {}), IsEmpty());
}

TEST(CutsOf, ExtraCuts_DrainOnly) {
  EXPECT_THAT(CutsOf(Job(40, 20, 0), 0, {33, 7, 20, 40, 99}),
              ElementsAre(Cut{7}, Cut{20, true, false}, Cut{33}, Cut{40, true, false}));
  EXPECT_THAT(CutsOf(Job(40, 20, 0), 7, {7, 33}),
              ElementsAre(Cut{20, true, false}, Cut{33}, Cut{40, true, false}));
}

// What remains after a cut is what a job resumed there sees: resuming changes no later cut.
TEST(CutsOf, AnyJob_ResumedAtACutHasTheRestOfTheCuts) {
  RandomStream random(7, 1);
  for (int trial = 0; trial < 300; ++trial) {
    const int64_t steps = 1 + static_cast<int64_t>(random.Below(60));
    const v1::JobSpec job =
        Job(steps, static_cast<int64_t>(random.Below(9)), static_cast<int64_t>(random.Below(9)));
    const std::vector<int64_t> extra = {static_cast<int64_t>(random.Below(70)),
                                        static_cast<int64_t>(random.Below(70))};
    const std::vector<Cut> all = CutsOf(job, 0, extra);
    ASSERT_FALSE(all.empty());
    EXPECT_EQ(all.back().step, steps);
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_TRUE(i == 0 || all[i - 1].step < all[i].step);
      EXPECT_EQ(CutsOf(job, all[i].step, extra),
                std::vector<Cut>(all.begin() + static_cast<int64_t>(i) + 1, all.end()));
    }
  }
}

// A checkpoint after every step, and validations between.
TEST(CutsOf, EveryStep_AreInOrderAndKeepTheirKinds) {
  constexpr int64_t kSteps = 1'000'000;
  const std::vector<Cut> cuts = CutsOf(Job(kSteps, 3, 1), 10, {});
  ASSERT_EQ(cuts.size(), static_cast<size_t>(kSteps - 10));
  for (size_t i = 0; i < cuts.size(); ++i) {
    const int64_t step = 11 + static_cast<int64_t>(i);
    ASSERT_EQ(cuts[i], (Cut{step, step % 3 == 0 || step == kSteps, true})) << step;
  }
}

}  // namespace
}  // namespace penstock
