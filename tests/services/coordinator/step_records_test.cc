#include "results/step_records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "services/documents/step_record_text.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A job's events, in order.
class StepRecordsTest : public ::testing::Test {
 protected:
  StepRecordsTest() {
    spec_.mutable_training()->set_steps(6);
    spec_.mutable_validation()->set_every_steps(4);
    records_.emplace(spec_);
  }

  std::vector<StepRecord> Plan() {
    v1::JobEvent event;
    event.mutable_planned();
    return Add(std::move(event));
  }
  std::vector<StepRecord> Step(int64_t step, int64_t at_ms) {
    v1::JobEvent event;
    event.mutable_step_done()->set_step(step);
    event.mutable_step_done()->set_loss(0.5 * static_cast<double>(step));
    event.mutable_step_done()->set_samples(8);
    event.mutable_step_done()->set_tokens(256);
    event.mutable_step_done()->set_monotonic_ns(at_ms * 1'000'000);
    return Add(std::move(event));
  }
  std::vector<StepRecord> Validation(int64_t step, double loss) {
    v1::JobEvent event;
    event.mutable_validation_done()->set_step(step);
    event.mutable_validation_done()->set_loss(loss);
    return Add(std::move(event));
  }
  std::vector<StepRecord> End() {
    v1::JobEvent event;
    event.mutable_state_changed()->set_state(v1::JOB_STATE_FAILED);
    return Add(std::move(event));
  }
  std::vector<StepRecord> Add(v1::JobEvent event) {
    event.set_sequence(++sequence_);
    event.set_unix_ms(1000 * sequence_);
    return records_->Add(event);
  }

  v1::JobSpec spec_;
  std::optional<StepRecords> records_;
  int64_t sequence_ = 0;
};

std::vector<int64_t> StepsOf(const std::vector<StepRecord>& records) {
  std::vector<int64_t> steps;
  for (const StepRecord& record : records) steps.push_back(record.step);
  return steps;
}

TEST_F(StepRecordsTest, Rates_AreByTheTimeSinceTheStepBefore) {
  Plan();
  const std::vector<StepRecord> first = Step(1, 100);
  ASSERT_THAT(StepsOf(first), ElementsAre(1));
  EXPECT_FALSE(first[0].seconds.has_value());
  EXPECT_FALSE(first[0].samples_per_second().has_value());
  const std::vector<StepRecord> second = Step(2, 350);
  ASSERT_THAT(StepsOf(second), ElementsAre(2));
  EXPECT_DOUBLE_EQ(*second[0].seconds, 0.25);
  EXPECT_DOUBLE_EQ(*second[0].samples_per_second(), 32);
  EXPECT_DOUBLE_EQ(*second[0].tokens_per_second(), 1024);
  EXPECT_EQ(second[0].unix_ms, 3000);
}

TEST_F(StepRecordsTest, ValidatedStep_WaitsForItsLossAndHoldsUpThoseBehind) {
  Plan();
  for (int64_t step = 1; step <= 3; ++step) Step(step, step);
  EXPECT_THAT(Step(4, 4), IsEmpty());
  EXPECT_THAT(Step(5, 5), IsEmpty());
  const std::vector<StepRecord> both = Validation(4, 1.25);
  ASSERT_THAT(StepsOf(both), ElementsAre(4, 5));
  EXPECT_EQ(both[0].validation_loss, 1.25);
  EXPECT_FALSE(both[1].validation_loss.has_value());
}

TEST_F(StepRecordsTest, LastStep_IsCompleteWhenTheJobHasEnded) {
  Plan();
  EXPECT_THAT(Step(6, 1), IsEmpty()) << "the last step is validated, too";
  EXPECT_FALSE(records_->ended());
  EXPECT_THAT(StepsOf(End()), ElementsAre(6));
  EXPECT_TRUE(records_->ended());
}

TEST_F(StepRecordsTest, NextAttempt_HasItsNumberAndNoTimeFromTheOneBefore) {
  Plan();
  EXPECT_EQ(Step(1, 1000)[0].attempt, 1);
  Plan();
  const std::vector<StepRecord> after = Step(2, 10);
  EXPECT_EQ(after[0].attempt, 2);
  EXPECT_FALSE(after[0].seconds.has_value()) << "the clock may be another worker's";
}

// ------------------------------------------------------------------------------------- as text

StepRecord Example() {
  return {.step = 7,
          .loss = 2.5,
          .learning_rate = 0.125,
          .samples = 8,
          .seconds = 0.5,
          .validation_loss = 2.75,
          .attempt = 2,
          .unix_ms = 2500};
}

TEST(StepRecordText, Json_HasAllKeysInOrder) {
  EXPECT_EQ(
      StepRecordJsonLine(Example()),
      "{\"step\":7,\"loss\":2.5,\"learning_rate\":0.125,\"gradient_norm\":0.0,\"seconds\":0.5,"
      "\"samples_per_second\":16.0,\"tokens_per_second\":null,\"validation_loss\":2.75,"
      "\"attempt\":2,\"unix_ms\":2500}\n");
}

TEST(StepRecordText, Csv_HasAColumnForEachKeyAndLeavesUnknownOnesEmpty) {
  EXPECT_EQ(StepRecordCsvHeader(),
            "step,loss,learning_rate,gradient_norm,seconds,samples_per_second,tokens_per_second,"
            "validation_loss,attempt,unix_ms\n");
  StepRecord record = Example();
  record.loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(StepRecordCsvLine(record), "7,,0.125,0.0,0.5,16.0,,2.75,2,2500\n");
}

// As an encoder of its own makes them of the formats' descriptions; tensorboard's reader takes both.
TEST(StepRecordText, TensorboardEvents_AreTheseBytes) {
  EXPECT_EQ(absl::BytesToHexString(TensorboardHeader(1.5)),
            "1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e4576656e743a322a28646c");
  const StepRecord record = {.step = 7, .loss = 2.5, .learning_rate = 0.125, .unix_ms = 2500};
  EXPECT_EQ(absl::BytesToHexString(TensorboardRecord(record)),
            "4c00000000000000f5d4a2a009000000000000044010072a3f0a110a0a6c6f73732f747261696e15000020"
            "400a140a0d6c6561726e696e675f72617465150000003e0a140a0d6772616469656e745f6e6f726d150000"
            "000037a6449d");
}

}  // namespace
}  // namespace penstock
