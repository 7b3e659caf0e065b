#include "compute/weight_versions.h"

#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

constexpr auto kPrecondition = absl::StatusCode::kFailedPrecondition;

class WeightVersionsTest : public ::testing::Test {
 protected:
  WeightVersions Make(int64_t versions_max, bool with_mirror = false) {
    return *WeightVersions::Create(pool_, 100, with_mirror, versions_max);
  }
  BufferPool pool_{HostMemory()};
};

TEST_F(WeightVersionsTest, InPlace_KeepsOneArray) {
  WeightVersions versions = Make(1);
  const float* const array = versions.current().weights();
  for (int64_t number = 1; number <= 5; ++number) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto step, versions.Advance(number, false, number));
    EXPECT_EQ(step.from, step.to);
    EXPECT_EQ(step.to->number, number);
    EXPECT_EQ(step.to->weights(), array);
    EXPECT_EQ(versions.Find(number - 1), nullptr);
  }
  EXPECT_EQ(versions.allocated(), 1);
}

TEST_F(WeightVersionsTest, KeptVersions_AreFoundUntilTheyDieAndTheirArraysReused) {
  WeightVersions versions = Make(3);
  // PipeDream's pattern: three live versions, the oldest dies at each step.
  for (int64_t number = 1; number <= 20; ++number) {
    const int64_t oldest = std::max<int64_t>(0, number - 2);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto step, versions.Advance(number, true, oldest));
    EXPECT_EQ(step.from->number, number - 1);
    EXPECT_EQ(step.to->number, number);
    EXPECT_NE(step.from->weights(), step.to->weights());
    for (int64_t live = oldest; live <= number; ++live) {
      ASSERT_NE(versions.Find(live), nullptr) << live;
      EXPECT_EQ(versions.Find(live)->number, live);
    }
    EXPECT_EQ(versions.Find(oldest - 1), nullptr);
  }
  EXPECT_EQ(versions.allocated(), 3);
  EXPECT_EQ(pool_.stats().allocations, 3);
}

// RPD's pattern: most versions are the weights of the one before, and share its array as long as any is live.
TEST_F(WeightVersionsTest, RepeatedVersions_ShareOneArrayUntilTheLastDies) {
  WeightVersions versions = Make(3);
  ASSERT_THAT(versions.Repeat(1, 0), IsOk());
  ASSERT_THAT(versions.Repeat(2, 0), IsOk());
  const float* const first = versions.current().weights();
  for (int64_t number = 0; number <= 2; ++number) {
    EXPECT_EQ(versions.Find(number)->weights(), first);
  }
  EXPECT_EQ(versions.live(), 1);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto step, versions.Advance(3, true, 0));
  EXPECT_EQ(step.from->weights(), first);
  EXPECT_NE(step.to->weights(), first);
  ASSERT_THAT(versions.Repeat(4, 2), IsOk()) << "version 2 is live, and so is the array";
  EXPECT_EQ(versions.Find(2)->weights(), first);
  EXPECT_EQ(versions.Find(4), versions.Find(3));
  EXPECT_EQ(versions.live(), 2);
  ASSERT_THAT(versions.Repeat(5, 3), IsOk());
  EXPECT_EQ(versions.Find(2), nullptr);
  EXPECT_EQ(versions.live(), 1);
  EXPECT_EQ(versions.allocated(), 2);
  EXPECT_THAT(versions.Repeat(7, 3), StatusIs(kPrecondition, HasSubstr("the current one is 5")));
  // In place: the weights that all these numbers meant are no more.
  ASSERT_THAT(versions.Advance(6, false, 6), IsOk());
  EXPECT_EQ(versions.Find(5), nullptr);
  EXPECT_EQ(versions.Find(6), &versions.current());
}

TEST_F(WeightVersionsTest, Reserve_TakesAllMemoryAtOnce) {
  WeightVersions versions = Make(3);
  ASSERT_THAT(versions.Reserve(), IsOk());
  EXPECT_EQ(versions.allocated(), 3);
  ASSERT_THAT(versions.Advance(1, true, 0), IsOk());
  ASSERT_THAT(versions.Advance(2, true, 0), IsOk());
  EXPECT_EQ(pool_.stats().allocations, 3);
  EXPECT_THAT(versions.Advance(3, true, 0), StatusIs(kPrecondition, HasSubstr("at most 3")));
}

TEST_F(WeightVersionsTest, Advance_OverTheLimit_IsRefusedAndChangesNothing) {
  WeightVersions versions = Make(2);
  ASSERT_THAT(versions.Advance(1, true, 0), IsOk());
  EXPECT_THAT(versions.Advance(2, true, 0), StatusIs(kPrecondition, HasSubstr("at most 2")));
  EXPECT_EQ(versions.current().number, 1);
  EXPECT_NE(versions.Find(0), nullptr);
}

TEST_F(WeightVersionsTest, Advance_WrongNumber_IsRefused) {
  WeightVersions versions = Make(2);
  EXPECT_THAT(versions.Advance(0, false, 0), StatusIs(kPrecondition, HasSubstr("version 0")));
  EXPECT_THAT(versions.Advance(2, false, 0), StatusIs(kPrecondition, HasSubstr("version 2")));
}

TEST_F(WeightVersionsTest, Mirror_IsAllocatedWhenAskedFor) {
  EXPECT_EQ(Make(1, false).current().mirror(), nullptr);
  EXPECT_NE(Make(1, true).current().mirror(), nullptr);
}

TEST_F(WeightVersionsTest, Renumber_GivesTheCurrentVersionAnotherNumber) {
  WeightVersions versions = Make(2);
  versions.Renumber(50);
  EXPECT_EQ(versions.current().number, 50);
  EXPECT_THAT(versions.Advance(51, true, 50), IsOk());
}

TEST_F(WeightVersionsTest, BorrowedArrays_AreThereUntilTheyAreDropped) {
  for (const bool with_mirror : {false, true}) {
    WeightVersions versions =
        *WeightVersions::Create(pool_, 100, with_mirror, 1, /*with_arrays=*/false);
    EXPECT_FALSE(versions.has_arrays());
    EXPECT_EQ(versions.current().weights(), nullptr);
    EXPECT_EQ(pool_.stats().bytes_in_use, 0);
    for (const int64_t number : {4, 5, 9}) {
      Buffer f32 = pool_.Acquire(100 * sizeof(float));
      const void* const array = f32.data();
      ASSERT_THAT(versions.PutArrays(number, std::move(f32)), IsOk());
      EXPECT_EQ(versions.current().weights(), array);
      EXPECT_EQ(versions.current().mirror() != nullptr, with_mirror);
      EXPECT_EQ(versions.Find(number), &versions.current());
      EXPECT_EQ(versions.Find(number - 1), nullptr);
      versions.DropArrays();
      EXPECT_EQ(pool_.stats().bytes_in_use, 0);
    }
  }
}

class NoMemory : public MemorySource {
 public:
  void* Allocate(int64_t) override { return nullptr; }
  void Free(void*, int64_t) override {}
};

TEST(WeightVersions, Create_WithoutMemory_SaysWhatToDo) {
  NoMemory memory;
  BufferPool pool(memory);
  EXPECT_THAT(WeightVersions::Create(pool, 100, false, 1),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("use more stages")));
}

}  // namespace
}  // namespace penstock
