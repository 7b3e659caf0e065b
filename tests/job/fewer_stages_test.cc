#include "job/fewer_stages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/job/jobs.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<v1::JobSpec> Fewer(const v1::JobSpec& spec, int64_t workers, int64_t stages_min) {
  const absl::StatusOr<ResolvedJob> job = ResolveJob(spec);
  if (!job.ok()) return job.status();
  return WithFewerStages(spec, *job, workers, stages_min);
}

TEST(FewerStages, AreAsManyAsTheWorkersHold) {
  v1::JobSpec spec = SmallJob(10, 4);
  for (const int layers : {1, 2, 2, 2}) spec.mutable_pipeline()->add_stage_layers(layers);
  spec.mutable_prediction()->set_step_seconds(1);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::JobSpec fewer, Fewer(spec, 2, 1));
  EXPECT_EQ(fewer.pipeline().stages(), 2);
  EXPECT_EQ(fewer.pipeline().stage_layers_size(), 0) << "they are split again";
  EXPECT_FALSE(fewer.has_prediction());
  EXPECT_THAT(Fewer(spec, 2, 3), StatusIs(absl::StatusCode::kFailedPrecondition,
                                          HasSubstr("needs workers for at least 3 stages")));
  EXPECT_THAT(Fewer(spec, 0, 1),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("0 are free")));
}

TEST(FewerStages, OfSeveralOnAWorker_AreWholeWorkers) {
  v1::JobSpec spec = SmallJob(10, 6);
  spec.mutable_pipeline()->set_method("zb-v");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::JobSpec fewer, Fewer(spec, 2, 1));
  EXPECT_EQ(fewer.pipeline().stages(), 4);
}

TEST(FewerStages, TrainToOtherWeights_AreRefused) {
  v1::JobSpec spec = SmallJob(10, 3);
  spec.mutable_model()->mutable_gpt()->set_tied_head(false);
  spec.mutable_pipeline()->set_method("pipedream");
  EXPECT_THAT(Fewer(spec, 2, 1),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("with pipedream")));
}

}  // namespace
}  // namespace penstock
