#include "studies/experiments/language_model.h"

#include <gmock/gmock.h>

#include "job/resolve.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr LanguageModelMethod kPipeDream = {};
constexpr LanguageModelMethod LocalSgd(int64_t local_steps) { return {local_steps}; }

TEST(LanguageModelTest, Default_HasThePapersParameters) {
  const LanguageModelStudy study = {.text_path = "text"};
  const v1::JobSpec spec = JobOf(study, kPipeDream, 0.125);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(spec));
  EXPECT_EQ(job.model.parameter_count(), 11'123'200);
}

// The text has other characters than the paper's.
TEST(LanguageModelTest, OtherVocabulary_ChangesTableAndHead) {
  const v1::JobSpec spec = JobOf({.text_path = "text", .vocabulary = 66}, kPipeDream, 0.125);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(spec));
  EXPECT_EQ(job.model.parameter_count(), 11'123'200 + 2 * 256);
}

TEST(LanguageModelTest, Stages_AreEmbeddingBlocksAndHead) {
  const std::vector<LayerRange> stages = StagesOf({});
  ASSERT_EQ(stages.size(), 16u);
  EXPECT_EQ(stages.front(), (LayerRange{0, 1}));
  EXPECT_EQ(stages[1], (LayerRange{1, 2}));
  EXPECT_EQ(stages[14], (LayerRange{27, 2}));
  EXPECT_EQ(stages.back(), (LayerRange{29, 2}));
}

TEST(LanguageModelTest, PaperBudget_HasTheKnownTicksAndMicrobatches) {
  const LanguageModelStudy study;
  EXPECT_EQ(study.ticks(), 2078);
  EXPECT_EQ(MicrobatchesOf(study, kPipeDream), 1024);
  // Rounds of 2 * 16 H + 30 ticks.
  EXPECT_EQ(MicrobatchesOf(study, LocalSgd(1)), 33 * 16);
  EXPECT_EQ(MicrobatchesOf(study, LocalSgd(4)), 13 * 64);
  EXPECT_EQ(MicrobatchesOf(study, LocalSgd(8)), 7 * 128);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const TickSequence pipedream, SequenceOf(study, kPipeDream));
  EXPECT_EQ(pipedream.ticks, 2078);
}

TEST(LanguageModelTest, Rounds_FillTheBudgetAndNoneMoreFits) {
  for (const int64_t blocks : {1, 2, 6}) {
    for (const int64_t microbatches : {40, 41, 97}) {
      for (const int64_t local_steps : {1, 3, 5}) {
        const LanguageModelStudy study = {.blocks = blocks, .microbatches = microbatches};
        const int64_t trained = MicrobatchesOf(study, LocalSgd(local_steps));
        const LocalSgdShape shape = {study.stages(), study.stages(), local_steps};
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const TickSequence sequence,
                                      SequenceOf(study, LocalSgd(local_steps)));
        EXPECT_EQ(sequence.microbatches, trained);
        EXPECT_EQ(trained % shape.round(), 0);
        EXPECT_LE(sequence.ticks, study.ticks());
        EXPECT_GT(LocalSgdSequence(shape, trained + shape.round()).ticks, study.ticks());
      }
    }
  }
}

TEST(LanguageModelTest, Jobs_TrainTheSameMicrobatches) {
  const LanguageModelStudy study = {.text_path = "text"};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob pipedream,
                                ResolveJob(JobOf(study, kPipeDream, 0.5)));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob local,
                                ResolveJob(JobOf(study, LocalSgd(4), 0.5)));
  EXPECT_EQ(pipedream.model, local.model);
  EXPECT_EQ(pipedream.microbatch_samples, 32);
  EXPECT_EQ(local.microbatch_samples, 32);
  EXPECT_EQ(pipedream.model.targets_per_sample(), 128);
  EXPECT_EQ(pipedream.seed, local.seed);
  EXPECT_EQ(pipedream.steps * pipedream.microbatches, 1024);
  EXPECT_EQ(local.steps * local.microbatches, 13 * 64);
  EXPECT_EQ(local.PipelinesOf(study.stages()), 16);
}

TEST(LanguageModelTest, Grid_IsThePapers) {
  EXPECT_THAT(LanguageModelGrid(), ElementsAre(0.0625, 0.125, 0.25, 0.5, 1.0, 2.0));
}

TEST(LanguageModelTest, BadParameters_AreRefusedWithWhatWouldDo) {
  const auto expect = [](LanguageModelStudy study, const std::string& message) {
    study.text_path = "text";
    EXPECT_THAT(CheckLanguageModel(study),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  };
  expect({.microbatches = 0}, "microbatches: is 0; expected a whole number from 1 to 100000");
  expect({.microbatches = 100'001}, "microbatches: is 100001");
  expect({.microbatches = 63},
         "microbatches: is 63, which PipeDream trains in 156 ticks, but a round of LocalSGD H = 4 "
         "takes 158; give at least 64");
  expect({.local_steps = {}}, "local steps: there are none");
  expect({.local_steps = {1, -1}}, "local steps: is -1; expected at least 1");
  expect({.learning_rates = {}}, "learning rates: there is none");
  expect({.learning_rates = {0.1, -0.5}}, "training.optimizer.sgd.learning_rate: is -0.5");
  expect({.heads = 7}, "model.gpt.heads: is 7, which does not divide width (256)");
  expect({.blocks = 70, .microbatches = 300, .local_steps = {1}}, "pipeline.replicas: is 72");
  EXPECT_THAT(CheckLanguageModel({.text_path = "text", .microbatches = 64}), IsOk());
}

}  // namespace
}  // namespace penstock
