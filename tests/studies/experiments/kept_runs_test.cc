#include "studies/experiments/kept_runs.h"

#include <gmock/gmock.h>

#include <limits>

#include "tests/support/memory_files.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kPath[] = "runs/a.json";

class KeptRunsTest : public ::testing::Test {
 protected:
  KeptRunsTest() : kept_(files_, "runs") {
    EXPECT_THAT(files_.CreateDirectories("runs"), IsOk());
    wanted_.mutable_job()->mutable_training()->set_steps(2);
    wanted_.mutable_job()->mutable_training()->set_microbatches(3);
    wanted_.mutable_job()->mutable_training()->set_seed(7);
    wanted_.add_stage_layers(4);
    wanted_.add_stage_layers(3);
  }

  v1::TrainedRun Trained(int losses) const {
    v1::TrainedRun run = wanted_;
    for (int i = 0; i < losses; ++i) run.add_losses(5.5 / (i + 1));
    return run;
  }

  MemoryFiles files_;
  KeptRuns kept_;
  v1::TrainedRun wanted_;
};

TEST_F(KeptRunsTest, FinishedRun_ComesBackBitForBit) {
  v1::TrainedRun run = Trained(5);
  run.add_losses(std::numeric_limits<double>::min());
  ASSERT_THAT(kept_.Keep("a", run), IsOk());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto found, kept_.Find("a", wanted_));
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->SerializeAsString(), run.SerializeAsString());
  EXPECT_FALSE(files_.Exists("runs/a.json.part"));
}

TEST_F(KeptRunsTest, DivergedRun_IsWhole) {
  v1::TrainedRun run = Trained(2);
  run.set_diverged(true);
  ASSERT_THAT(kept_.Keep("a", run), IsOk());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto found, kept_.Find("a", wanted_));
  ASSERT_TRUE(found.has_value());
  EXPECT_TRUE(found->diverged());
}

TEST_F(KeptRunsTest, RunOfAJobThatValidates_IsWholeWithItsLastValidation) {
  wanted_.mutable_job()->mutable_validation()->set_every_steps(1);
  v1::TrainedRun run = wanted_;
  for (const int64_t step : {1, 2}) {
    v1::TrainedRun::Validation& validation = *run.add_validations();
    validation.set_step(step);
    validation.set_loss(5.5 / static_cast<double>(step));
    ASSERT_THAT(kept_.Keep("a", run), IsOk());
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto found, kept_.Find("a", wanted_));
    EXPECT_EQ(found.has_value(), step == 2);
  }
}

TEST_F(KeptRunsTest, WhatIsNotWhole_IsNotFound) {
  const auto expect_none = [&](const std::string& what) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto found, kept_.Find("a", wanted_));
    EXPECT_FALSE(found.has_value()) << what;
  };
  expect_none("nothing");
  ASSERT_THAT(kept_.Keep("a", Trained(5)), IsOk());
  expect_none("a loss too few");
  ASSERT_THAT(files_.WriteDurably(kPath, {"{\"losses\": [1.0, "}), IsOk());
  expect_none("half a file");
  ASSERT_THAT(files_.WriteDurably(kPath, {"\xff\xfe no JSON"}), IsOk());
  expect_none("another file");
}

TEST_F(KeptRunsTest, DiskThatFailsMidway_LeavesTheOldFile) {
  ASSERT_THAT(kept_.Keep("a", Trained(6)), IsOk());
  for (int64_t change = 0; change < 2; ++change) {
    files_.FailFrom(change, absl::ResourceExhaustedError("disk full"), /*tears_writes=*/true);
    EXPECT_THAT(kept_.Keep("a", Trained(5)),
                StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("disk full")));
    files_.Heal();
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto found, kept_.Find("a", wanted_));
    EXPECT_TRUE(found.has_value());
  }
}

TEST_F(KeptRunsTest, OtherParameters_AreRefusedAndNamed) {
  ASSERT_THAT(kept_.Keep("a", Trained(6)), IsOk());
  wanted_.mutable_job()->mutable_training()->set_seed(8);
  wanted_.set_stage_layers(1, 5);
  EXPECT_THAT(kept_.Find("a", wanted_),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("runs/a.json: is a run with other parameters"),
                             HasSubstr("job.training.seed: 7 -> 8"),
                             HasSubstr("stage_layers[1]: 3 -> 5"), HasSubstr("--output"))));
}

}  // namespace
}  // namespace penstock
