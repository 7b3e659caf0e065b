#include "job/keys/key_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "compute/optimizer.h"
#include "job/defaults.h"
#include "job/keys/check_keys.h"
#include "job/keys/key_reference.h"
#include "job/yaml/yaml_message.h"
#include "model/families/gpt.h"
#include "tests/job/jobs.h"
#include "tests/support/golden.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// REQUIRES: there is such a key.
JobKey KeyAt(absl::string_view path) {
  for (const JobKey& key : JobKeys()) {
    if (key.path == path) return key;
  }
  ADD_FAILURE() << "there is no key " << path;
  return {};
}

// So that nobody adds a key without saying what it is.
TEST(JobKeys, Each_SaysWhatItMeansAndWhatAbsenceMeans) {
  for (const JobKey& key : JobKeys()) {
    SCOPED_TRACE(key.path);
    const v1::KeyOptions& options = OptionsOf(*key.field);
    EXPECT_THAT(options.help(), AllOf(Not(IsEmpty()), EndsWith(".")));
    EXPECT_TRUE(options.default_().empty() || options.otherwise().empty()) << "one of them";
    const bool is_choice = key.field->real_containing_oneof() != nullptr;
    if (key.field->has_presence() && key.field->message_type() == nullptr && !is_choice) {
      EXPECT_FALSE(options.default_().empty() && options.otherwise().empty())
          << "what does its absence mean?";
    }
    std::vector<std::string> others(options.max_key().begin(), options.max_key().end());
    if (options.has_only_with()) others.push_back(options.only_with().key());
    for (const std::string& other : others) EXPECT_NE(KeyAt(other).field, nullptr);
  }
  for (const google::protobuf::Descriptor* message :
       {v1::JobSpec::descriptor(), v1::TrainingSpec::descriptor(), v1::PipelineSpec::descriptor(),
        v1::GptSpec::descriptor(), v1::AdamWSpec::descriptor(), v1::FeedbackSpec::descriptor()}) {
    for (int i = 0; i < message->field_count(); ++i) {
      EXPECT_TRUE(message->field(i)->options().HasExtension(v1::key))
          << message->field(i)->full_name() << " has no options";
    }
  }
}

TEST(JobKeys, Defaults_AreAllowedValues) {
  // Every optimizer, so that the defaults of each are looked at.
  for (const char* kind : {"sgd", "adamw", "nadamw", "muon"}) {
    v1::JobSpec spec = GoodJob();
    const google::protobuf::FieldDescriptor& field =
        *v1::OptimizerSpec::descriptor()->FindFieldByName(kind);
    v1::OptimizerSpec& optimizer = *spec.mutable_training()->mutable_optimizer();
    google::protobuf::Message& chosen =
        *optimizer.GetReflection()->MutableMessage(&optimizer, &field);
    chosen.Clear();
    ASSERT_THAT(
        SetFromYaml("0.1", *chosen.GetDescriptor()->FindFieldByName("learning_rate"), chosen),
        IsOk());
    FillDefaults(spec);
    EXPECT_THAT(CheckKeys(spec), IsOk());
  }
}

// The numbers that other folders check or compute with by themselves.
TEST(JobKeys, NumbersOfModelsAndOptimizers_AreThoseOfTheirFolders) {
  EXPECT_EQ(MaxOfJobKey("model.gpt.layers"), kGptLayersMax);
  EXPECT_EQ(MaxOfJobKey("model.gpt.width"), kGptWidthMax);
  EXPECT_EQ(MaxOfJobKey("model.gpt.context"), kGptContextMax);
  EXPECT_EQ(MaxOfJobKey("model.gpt.vocabulary"), kGptVocabularyMax);
  v1::JobSpec spec = GoodJob();
  spec.mutable_training()->mutable_optimizer()->mutable_nadamw()->set_learning_rate(0.1);
  FillDefaults(spec);
  const v1::NAdamWSpec& nadamw = spec.training().optimizer().nadamw();
  EXPECT_EQ((NAdamWConfig{nadamw.beta1(), nadamw.beta2(), nadamw.epsilon(), nadamw.weight_decay(),
                          nadamw.momentum_decay()}),
            NAdamWConfig());
  spec.mutable_training()->mutable_optimizer()->mutable_muon()->set_learning_rate(0.1);
  FillDefaults(spec);
  const v1::MuonSpec& muon = spec.training().optimizer().muon();
  EXPECT_EQ((MuonConfig{muon.momentum(),
                        {muon.beta1(), muon.beta2(), muon.epsilon(), muon.weight_decay()}}),
            MuonConfig());
  spec.mutable_training()->mutable_optimizer()->mutable_adamw()->set_learning_rate(0.1);
  FillDefaults(spec);
  const v1::AdamWSpec& adamw = spec.training().optimizer().adamw();
  EXPECT_EQ((AdamWConfig{adamw.beta1(), adamw.beta2(), adamw.epsilon(), adamw.weight_decay()}),
            AdamWConfig());
  EXPECT_EQ(spec.training().staleness().momentum_average_decay(), std::exp(-2.0));
}

TEST(ExpectedOf, EveryKind_IsSaidAsPeopleRead) {
  const auto expected = [](absl::string_view path) { return ExpectedOf(*KeyAt(path).field); };
  EXPECT_EQ(expected("training.steps"), "a whole number from 1 to 100000000");
  EXPECT_EQ(expected("training.microbatches"), "a whole number from 1 to training.batch");
  EXPECT_EQ(ExpectedOf(*KeyAt("training.microbatches").field, "32 (training.batch)"),
            "a whole number from 1 to 32 (training.batch)");
  EXPECT_EQ(expected("training.seed"), "a whole number");
  EXPECT_EQ(expected("model.gpt.dropout"), "a number of at least 0 and below 1");
  EXPECT_EQ(expected("training.clip.global_norm"), "a number above 0");
  EXPECT_EQ(expected("model.gpt.tied_head"), "true or false");
  EXPECT_EQ(expected("pipeline.order"), "static or recorded");
  EXPECT_EQ(expected("data.text.path"), "text");
}

// Without a value of its own for it, a key that belongs to another's value is no mistake.
TEST(CheckKeys, KeyOfAnothersValue_CountsWhereItSaysSomething) {
  v1::JobSpec spec = GoodJob();
  spec.mutable_training()->set_rounding("nearest");
  EXPECT_THAT(CheckKeys(spec), IsOk());
  spec.mutable_training()->set_rounding("stochastic");
  EXPECT_THAT(CheckKeys(spec),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "training.rounding: is stochastic, which is only for training.precision "
                       "bf16, but that is f32: f32 weights are not rounded; set "
                       "training.precision to bf16, or leave this key out"));
  spec.mutable_training()->set_precision("bf16");
  EXPECT_THAT(CheckKeys(spec), IsOk());
}

TEST(CheckKeys, TooManyEntriesOfAList_AreRefused) {
  v1::JobSpec spec = GoodJob();
  for (int i = 0; i < 257; ++i) spec.mutable_pipeline()->add_stage_layers(1);
  EXPECT_THAT(CheckKeys(spec),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "pipeline.stage_layers: has 257 entries; at most 256 are possible"));
}

TEST(CheckKeys, WordsOfAList_AreCheckedOneByOne) {
  v1::JobSpec spec = GoodJob();
  spec.mutable_step_records()->add_formats("jsonl");
  spec.mutable_step_records()->add_formats("csv");
  EXPECT_THAT(CheckKeys(spec), IsOk());
  spec.mutable_step_records()->set_formats(1, "cvs");
  EXPECT_THAT(CheckKeys(spec),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "step_records.formats: is \"cvs\"; expected jsonl, csv or tensorboard; did "
                       "you mean csv?"));
}

// A coordinator gets messages that nobody has filled in.
TEST(CheckKeys, MessagesThatAreNotThere_AreLookedAtIfTheyAlwaysAre) {
  v1::JobSpec spec = GoodJob();
  spec.clear_validation();
  EXPECT_THAT(CheckKeys(spec),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("validation.batches: is 0")));
  spec = GoodJob();
  spec.clear_training();
  EXPECT_THAT(CheckKeys(spec), StatusIs(absl::StatusCode::kInvalidArgument,
                                        HasSubstr("training.steps: is 0 or missing")));
  spec = GoodJob();
  spec.clear_prediction();
  EXPECT_THAT(CheckKeys(spec), IsOk());
}

TEST(JobReference, IsThePageInDocs) { ExpectEqualsSourceFile("docs/job-file.md", JobReference()); }

}  // namespace
}  // namespace penstock
