// The serial reference's own contract; what it computes is tested by everything that is held against it.
#include "worker/reference.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/memory_files.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/test_cluster.h"
#include "tests/worker/test_job.h"

namespace penstock {
namespace {

class ReferenceTest : public ::testing::TestWithParam<const char*> {
 protected:
  ReferenceTest() : backend_(*MakeCpuBackend(1)) {
    AddTestText(files_);
    options_.spec = SmallJob(GetParam());
    options_.stages = EvenSplit(ChainOf(options_.spec).size(), 2);
  }

  MemoryFiles files_;
  std::unique_ptr<Backend> backend_;
  ReferenceOptions options_;
};

TEST_P(ReferenceTest, OnMicrobatch_HearsWhatTheStepsAreTheMeanOf) {
  std::vector<double> losses;
  options_.on_microbatch = [&](int64_t microbatch, double loss) {
    EXPECT_EQ(microbatch, static_cast<int64_t>(losses.size()));
    losses.push_back(loss);
    return absl::OkStatus();
  };
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ReferenceResult result,
                                TrainReference(options_, files_, *backend_));
  const int64_t microbatches = options_.spec.training().microbatches();
  ASSERT_EQ(losses.size(), result.steps.size() * microbatches);
  for (size_t step = 0; step < result.steps.size(); ++step) {
    double sum = 0.0;
    for (int64_t m = 0; m < microbatches; ++m) sum += losses[step * microbatches + m];
    EXPECT_EQ(sum / static_cast<double>(microbatches), result.steps[step].loss);
  }
}

TEST_P(ReferenceTest, OnMicrobatch_EndsTheRunWithItsError) {
  int64_t heard = 0;
  options_.on_microbatch = [&](int64_t, double) {
    return ++heard < 5 ? absl::OkStatus() : absl::CancelledError("enough");
  };
  EXPECT_THAT(TrainReference(options_, files_, *backend_),
              StatusIs(absl::StatusCode::kCancelled, "enough"));
  EXPECT_EQ(heard, 5);
}

INSTANTIATE_TEST_SUITE_P(Methods, ReferenceTest,
                         ::testing::Values("1f1b", "pipedream", "local-sgd"));

}  // namespace
}  // namespace penstock
