#include "job/defaults.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <limits>

#include "job/keys/key_options.h"
#include "job/yaml/yaml_message.h"
#include "tests/job/jobs.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

// The least a user must write.
v1::JobSpec MinimalJob() {
  v1::JobSpec spec;
  YamlPositions positions;
  EXPECT_THAT(ReadYamlMessage("name: small\n"
                              "model: {gpt: {layers: 2, width: 8, heads: 2, context: 16}}\n"
                              "data: {text: {path: a.txt}}\n"
                              "training: {steps: 10, batch: 4, microbatches: 2, "
                              "optimizer: {adamw: {learning_rate: 0.01}}}\n",
                              "minimal.yaml", spec, positions),
              IsOk());
  return spec;
}

TEST(FillDefaults, MinimalJob_GetsTheDocumentedDefaults) {
  v1::JobSpec spec = MinimalJob();
  FillDefaults(spec);
  EXPECT_EQ(spec.model().gpt().vocabulary(), 256);
  EXPECT_EQ(spec.model().gpt().dropout(), 0.0);
  EXPECT_TRUE(spec.model().gpt().tied_head());
  EXPECT_EQ(spec.data().text().tokenizer(), "bytes");
  EXPECT_EQ(spec.data().text().validation_fraction(), 0.1);
  EXPECT_EQ(spec.training().optimizer().adamw().beta1(), 0.9);
  EXPECT_EQ(spec.training().optimizer().adamw().beta2(), 0.95);
  EXPECT_EQ(spec.training().optimizer().adamw().epsilon(), 1e-8);
  EXPECT_EQ(spec.training().optimizer().adamw().weight_decay(), 0.1);
  EXPECT_EQ(spec.training().learning_rate().warmup_steps(), 0);
  EXPECT_EQ(spec.training().learning_rate().decay(), "constant");
  EXPECT_EQ(spec.training().learning_rate().final_fraction(), 0.1);
  EXPECT_EQ(spec.training().precision(), "f32");
  EXPECT_EQ(spec.training().rounding(), "nearest");
  EXPECT_EQ(spec.training().stash(), "device");
  EXPECT_TRUE(spec.training().deterministic());
  EXPECT_EQ(spec.training().threads(), 1);
  EXPECT_EQ(spec.validation().every_steps(), 0);
  EXPECT_EQ(spec.validation().batches(), 8);
  EXPECT_EQ(spec.pipeline().method(), "1f1b");
  EXPECT_FALSE(spec.pipeline().has_stages());
  EXPECT_EQ(spec.checkpoint().keep(), 2);
  EXPECT_THAT(ValidateJob(spec), IsOk());
}

TEST(FillDefaults, ExplicitZeroAndFalse_AreKept) {
  v1::JobSpec spec = MinimalJob();
  spec.mutable_model()->mutable_gpt()->set_tied_head(false);
  spec.mutable_training()->set_deterministic(false);
  spec.mutable_training()->mutable_optimizer()->mutable_adamw()->set_weight_decay(0.0);
  spec.mutable_data()->mutable_text()->set_validation_fraction(0.0);
  FillDefaults(spec);
  EXPECT_FALSE(spec.model().gpt().tied_head());
  EXPECT_FALSE(spec.training().deterministic());
  EXPECT_EQ(spec.training().optimizer().adamw().weight_decay(), 0.0);
  EXPECT_EQ(spec.data().text().validation_fraction(), 0.0);
}

TEST(FillDefaults, FileThatWasPut_HasItsDigest) {
  const std::string digest(64, '7');
  v1::JobSpec spec = MinimalJob();
  spec.mutable_data()->mutable_text()->set_path("sha256:" + digest);
  FillDefaults(spec);
  EXPECT_EQ(spec.data().text().sha256(), digest);
  EXPECT_THAT(ValidateJob(spec), IsOk());
  spec.mutable_data()->mutable_text()->set_sha256(std::string(64, '8'));
  EXPECT_THAT(ValidateJob(spec),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("data.text.sha256: is " + std::string(64, '8'))));
  for (const char* const bad : {"sha256:", "sha256:12", "sha256:../../etc/passwd"}) {
    v1::JobSpec wrong = MinimalJob();
    wrong.mutable_data()->mutable_text()->set_path(bad);
    FillDefaults(wrong);
    EXPECT_THAT(ValidateJob(wrong),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("data.text.path: is \"")))
        << bad;
  }
}

// Its digest is known to the coordinator, which has the list.
TEST(FillDefaults, DirectoryThatWasPut_IsTakenAndAFileInItsPlaceIsNot) {
  const std::string file = "sha256:" + std::string(64, '7');
  v1::JobSpec spec = MinimalJob();
  for (const char* const behind : {"/", "/text.txt"}) {
    spec.mutable_data()->mutable_text()->set_path(file + behind);
    FillDefaults(spec);
    EXPECT_EQ(spec.data().text().sha256(), "");
    EXPECT_THAT(ValidateJob(spec), IsOk());
  }
  spec.mutable_data()->mutable_text()->set_path(file + "/../passwd");
  EXPECT_THAT(ValidateJob(spec), StatusIs(absl::StatusCode::kInvalidArgument,
                                          HasSubstr("data.text.path: names \"../passwd\"")));
  spec.mutable_data()->mutable_records()->set_path(file);
  FillDefaults(spec);
  EXPECT_EQ(spec.data().records().sha256(), "");
  EXPECT_THAT(ValidateJob(spec), StatusIs(absl::StatusCode::kInvalidArgument,
                                          HasSubstr("data.records.path: names the file " + file)));
}

TEST(FillDefaults, Twice_ChangesNothing) {
  v1::JobSpec once = MinimalJob();
  FillDefaults(once);
  v1::JobSpec twice = once;
  FillDefaults(twice);
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(once, twice));
}

TEST(FillDefaults, EmptyJob_IsRefusedNotCrashed) {
  v1::JobSpec spec;
  FillDefaults(spec);
  EXPECT_THAT(ValidateJob(spec),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "name: is missing; expected 1 to 64 characters of a-z, 0-9 and -"));
}

TEST(FillDefaults, OfRecords_KeepsALastPartUnlessThereIsADirectoryForValidation) {
  v1::JobSpec spec = SmallJob(4, 2);
  spec.mutable_data()->mutable_records()->set_path("train");
  FillDefaults(spec);
  EXPECT_EQ(spec.data().records().order(), "shuffled");
  EXPECT_EQ(spec.data().records().validation_fraction(), 0.1);
  EXPECT_FALSE(spec.data().records().augment().flip());

  spec.mutable_data()->mutable_records()->clear_validation_fraction();
  spec.mutable_data()->mutable_records()->set_validation("test");
  FillDefaults(spec);
  EXPECT_EQ(spec.data().records().validation_fraction(), 0.0);
}

// A client may send any number, and defaults are filled in before they are checked.
TEST(FillDefaults, NumbersBeyondAllRanges_AreNoReasonToOverflow) {
  for (const int64_t warmup :
       {std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()}) {
    v1::JobSpec spec = MinimalJob();
    spec.mutable_pipeline()->set_method("pipemare");
    spec.mutable_training()->mutable_learning_rate()->set_warmup_steps(warmup);
    FillDefaults(spec);
    const int64_t rescheduled = spec.training().staleness().rescheduled_steps();
    EXPECT_GE(rescheduled, 1);
    EXPECT_LE(rescheduled, MaxOfJobKey("training.staleness.rescheduled_steps"));
  }
}

}  // namespace
}  // namespace penstock
