#include "worker/paused_reference.h"

#include <fstream>

#include "job/yaml/yaml.h"
#include "tests/support/status_matchers.h"
#include "worker/open_data.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

constexpr char kRacedJob[] = R"(
name: raced
model: {gpt: {layers: 1, width: 16, heads: 2, context: 8, tied_head: false}}
data: {text: {path: raced.txt, tokenizer: bytes}}
training:
  steps: 9
  batch: 4
  microbatches: 2
  optimizer: {adamw: {learning_rate: 1.0e-2}}
validation: {every_steps: 2, batches: 1}
pipeline: {method: pipedream, stages: 2}
)";

class PausedReferenceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ofstream text(root_ + "/raced.txt");
    for (int line = 0; line < 400; ++line) text << "the quick brown fox " << line << "\n";
    text.close();
    PENSTOCK_ASSERT_OK_AND_ASSIGN(spec_, ParseJobYaml(kRacedJob, "job.yaml"));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(spec_));
    ASSERT_THAT(CheckJobData(RealFiles(), root_, job, spec_), IsOk());
  }
  PausedReference Make(std::function<absl::Status()> may_go_on = absl::OkStatus) {
    return PausedReference({.spec = spec_, .stages = {{0, 3}, {3, 2}}, .data_root = root_},
                           std::move(may_go_on));
  }

  const std::string root_ = ::testing::TempDir();
  v1::JobSpec spec_;
};

TEST_F(PausedReferenceTest, Pauses_ChangeNothing) {
  PausedReference whole = Make();
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::vector<double> at_once, whole.TrainTo(9));
  ASSERT_EQ(at_once.size(), 9u);
  PausedReference halting = Make();
  for (const int64_t steps : {1, 4, 5, 9}) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::vector<double> losses, halting.TrainTo(steps));
    ASSERT_EQ(losses.size(), static_cast<size_t>(steps));
    EXPECT_TRUE(std::equal(losses.begin(), losses.end(), at_once.begin()));
  }
}

TEST_F(PausedReferenceTest, MoreStepsThanTheJobHas_AreNotTrained) {
  PausedReference contestant = Make();
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::vector<double> losses, contestant.TrainTo(100));
  EXPECT_EQ(losses.size(), 9u);
}

TEST_F(PausedReferenceTest, LeftInTheMiddle_Ends) {
  PausedReference contestant = Make();
  EXPECT_THAT(contestant.TrainTo(2), IsOk());
}

TEST_F(PausedReferenceTest, WhatStopsIt_IsTold) {
  spec_.mutable_data()->mutable_text()->set_path("none.txt");
  PausedReference lost = Make();
  EXPECT_THAT(lost.TrainTo(2).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none.txt")));
  spec_.mutable_data()->mutable_text()->set_path("raced.txt");
  spec_.mutable_training()->set_steps(1'000'000);
  PausedReference stopped = Make([] { return absl::CancelledError("enough"); });
  EXPECT_THAT(stopped.TrainTo(1'000'000).status(),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("enough")));
}

}  // namespace
}  // namespace penstock
