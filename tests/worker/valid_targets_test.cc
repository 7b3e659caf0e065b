// What microbatches weigh where a loss ignores targets.
#include "worker/valid_targets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "job/resolve.h"
#include "job/yaml/yaml.h"
#include "tests/support/status_matchers.h"
#include "worker/evaluation.h"

namespace penstock {
namespace {

using testing::ElementsAre;

// Of two targets a sample; all seven classes are drawn.
constexpr char kModel[] = R"(
  layers:
    - input: {tokens: {i32: [2]}, targets: {i32: [2]}}
    - embedding: {of: tokens, vocabulary: 5, width: 6}
    - linear: {outputs: 6}
    - tanh
    - linear: {outputs: 7}
    - cross_entropy: {targets: targetsIGNORE}
)";

v1::JobSpec JobOf(const std::string& method, int64_t microbatches, int64_t batch,
                  const char* ignore = ", ignore: 1") {
  const std::string model = absl::StrReplaceAll(kModel, {{"IGNORE", ignore}});
  const absl::StatusOr<v1::JobSpec> spec =
      ParseJobYaml(absl::StrCat("name: ignoring\nmodel:", model, R"(
data: {synthetic: {}}
training:
  steps: 3
  batch: )",
                                batch, "\n  microbatches: ", microbatches, R"(
  optimizer: {sgd: {learning_rate: 0.1, momentum: 0.9}}
  seed: 5
validation: {every_steps: 2, batches: 2}
pipeline: {method: )",
                                method, "}\n"),
                   "job.yaml");
  EXPECT_THAT(spec, IsOk());
  return spec.value_or(v1::JobSpec());
}

ResolvedJob Resolved(const v1::JobSpec& spec) {
  absl::StatusOr<ResolvedJob> job = ResolveJob(spec);
  EXPECT_THAT(job, IsOk());
  return *std::move(job);
}

// Targets of which, by microbatch of two samples, as many are valid as the test says.
class GivenTargets : public DataSource {
 public:
  GivenTargets(std::vector<int> training, std::vector<int> validation)
      : valid_({{Split::kTraining, std::move(training)},
                {Split::kValidation, std::move(validation)}}) {}

  absl::Status Read(Split split, int64_t first_sample, int port,
                    absl::Span<std::byte> values) const override {
    ++reads_;
    EXPECT_EQ(port, 1);
    const absl::Span<int32_t> targets(reinterpret_cast<int32_t*>(values.data()),
                                      values.size() / sizeof(int32_t));
    const std::vector<int>& valid = valid_.at(split);
    for (size_t i = 0; i < targets.size(); ++i) {
      const size_t microbatch = static_cast<size_t>(first_sample) / 2;
      targets[i] = static_cast<int>(i) < valid[microbatch % valid.size()] ? 2 : 1;
    }
    return absl::OkStatus();
  }

  int64_t validation_samples() const override { return 4; }

  int reads() const { return reads_; }

 private:
  const std::map<Split, std::vector<int>> valid_;
  mutable int reads_ = 0;
};

std::vector<float> Scales(ValidTargets& targets, int64_t first, int64_t count) {
  std::vector<float> scales;
  for (int64_t m = first; m < first + count; ++m) {
    const absl::StatusOr<float> scale = targets.LossScale(m);
    EXPECT_THAT(scale, IsOk());
    scales.push_back(scale.value_or(-1.0f));
  }
  return scales;
}

TEST(ValidTargets, OfAStep_ScaleMicrobatchesByTheirPartOfThem) {
  const ResolvedJob job = Resolved(JobOf("1f1b", 3, 6));
  const GivenTargets data({3, 0, 1, 0, 0, 0, 4, 4, 4}, {2, 4});
  ValidTargets targets(job, &data);
  EXPECT_THAT(Scales(targets, 0, 3), ElementsAre(0.75f, 0.0f, 0.25f));
  EXPECT_THAT(Scales(targets, 3, 3), ElementsAre(0.0f, 0.0f, 0.0f));  // and never NaN
  EXPECT_THAT(Scales(targets, 6, 3), ElementsAre(1.0f / 3, 1.0f / 3, 1.0f / 3));
  EXPECT_THAT(targets.Weight(Split::kTraining, {3, 3}), IsOkAndHolds(0.0));
  EXPECT_THAT(targets.Weight(Split::kTraining, {6, 3}), IsOkAndHolds(12.0));
  EXPECT_THAT(targets.Weight(Split::kValidation, 0), IsOkAndHolds(2.0));
  EXPECT_THAT(targets.Weight(Split::kValidation, 1), IsOkAndHolds(4.0));
}

TEST(ValidTargets, WhereAMicrobatchIsAnUpdate_ScaleIsOneOrNone) {
  const GivenTargets data({3, 0, 1}, {});
  for (const char* method : {"pipedream", "local-sgd"}) {
    const ResolvedJob job = Resolved(JobOf(method, 3, 6));
    ValidTargets targets(job, &data);
    EXPECT_THAT(Scales(targets, 0, 3), ElementsAre(1.0f, 0.0f, 1.0f)) << method;
    // Of the step, whose loss is reported.
    EXPECT_THAT(targets.Weight(Split::kTraining, {0, 3}), IsOkAndHolds(4.0)) << method;
    // Of the replicas of a stage.
    EXPECT_THAT(targets.Part(2, {0, 3}), IsOkAndHolds(0.25f)) << method;
  }
}

TEST(ValidTargets, AreReadOnceForAStep) {
  const ResolvedJob job = Resolved(JobOf("1f1b", 3, 6));
  const GivenTargets data({3, 0, 1}, {2});
  ValidTargets targets(job, &data);
  for (int64_t step = 0; step < 3; ++step) {
    (void)Scales(targets, 3 * step, 3);
    EXPECT_THAT(targets.Weight(Split::kTraining, {3 * step, 3}), IsOkAndHolds(4.0));
    EXPECT_EQ(data.reads(), 3 * (step + 1));
  }
}

TEST(ValidTargets, WhereAllCount_AreNotReadAndScaleAsBefore) {
  for (int64_t microbatches = 1; microbatches <= 64; ++microbatches) {
    const ResolvedJob job = Resolved(JobOf("1f1b", microbatches, 2 * microbatches, /*ignore=*/""));
    ValidTargets targets(job, nullptr);
    EXPECT_TRUE(targets.all_count());
    EXPECT_THAT(targets.LossScale(0), IsOkAndHolds(1.0f / static_cast<float>(microbatches)));
    EXPECT_THAT(targets.Weight(Split::kTraining, {0, microbatches}),
                IsOkAndHolds(static_cast<double>(microbatches)));
  }
}

TEST(Evaluation, IsTheMeanOverValidTargets) {
  const ModelGraph model = Resolved(JobOf("1f1b", 2, 4)).model;
  EvaluationSums sums = EvaluationSums::Of(2.0, 3.0, {0, 4, -1, 5});
  sums += EvaluationSums::Of(6.0, 1.0, {-1, -1, -1, 0});
  const std::vector<MetricValue> expected = {{"accuracy", 0.5}, {"top5", 0.75}};
  EXPECT_EQ(sums.Result(model), (Evaluation{3.0, expected}));
  EXPECT_EQ(EvaluationSums::FromNumbers(sums.Numbers()).Result(model), sums.Result(model));
}

}  // namespace
}  // namespace penstock
