// A microbatch in the steady state allocates nothing: executor, stage, transport and machine together.
// The transport is the one in memory: over gRPC every chunk costs what gRPC itself allocates for a slice
// and a frame, and nothing of ours (services/transport/gather.h).
#include <gtest/gtest.h>

#include "job/defaults.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/counting_allocator.h"
#include "tests/worker/test_cluster.h"
#include "tests/worker/test_job.h"

namespace penstock {
namespace {

constexpr int64_t kWarmUpSteps = 6;
constexpr int64_t kCountedSteps = 8;

class Allocations : public ::testing::Test {
 protected:
  Allocations() { AddTestText(files_); }

  struct Kind {
    std::string method;
    const char* recompute = "none";
    const char* order = "static";
  };
  // Allocations of all workers during kCountedSteps of `microbatches` microbatches each.
  int64_t CountWith(const Kind& kind, int64_t microbatches) {
    v1::JobSpec spec = SmallJob(kind.method);
    spec.mutable_pipeline()->set_recompute(kind.recompute);
    spec.mutable_pipeline()->set_order(kind.order);
    spec.mutable_training()->set_steps(kWarmUpSteps + kCountedSteps + 2);
    spec.mutable_training()->set_batch(2 * microbatches);
    spec.mutable_training()->set_microbatches(microbatches);
    if (kind.method == "1f1b") {
      spec.mutable_training()->mutable_clip()->set_global_norm(0.5);
      spec.mutable_model()->mutable_gpt()->set_tied_head(true);
    }
    if (kind.method == "spectrain") {
      spec.mutable_training()->mutable_optimizer()->mutable_muon()->set_learning_rate(0.001);
      FillDefaults(spec);
    }
    ClusterOptions options = {.spec = spec, .layers = EvenSplit(kLayers, 3)};
    options.on_event = [](int, const v1::RunEvent& event) {
      if (!event.has_step_done()) return;
      if (event.step_done().step() == kWarmUpSteps) StartCountingAllocations();
      if (event.step_done().step() == kWarmUpSteps + kCountedSteps) StopCountingAllocations();
    };
    EXPECT_THAT(TrainCluster(options, files_), IsOk());
    return CountedAllocations();
  }

  MemoryFiles files_;
};

TEST_F(Allocations, PerMicrobatch_InTheSteadyState_AreNone) {
  if (!CountsAllocations()) GTEST_SKIP() << "a sanitizer owns malloc";
  for (const Kind& kind : {Kind{"1f1b"},
                           {"gpipe"},
                           {"pipedream"},
                           {"spectrain"},
                           {"pipemare"},
                           {"1f1b", "all"},
                           {"pipedream", "0,1"},
                           {"1f1b", "none", "recorded"},
                           {"1f1b", "all", "recorded"},
                           {"pipedream", "none", "recorded"}}) {
    // A step allocates for the event that reports it; that must not grow with its microbatches.
    const int64_t few = CountWith(kind, 4);
    const int64_t many = CountWith(kind, 64);
    EXPECT_GT(few, 0) << "the counter does not count";
    const double per_microbatch =
        static_cast<double>(many - few) / static_cast<double>(kCountedSteps * (64 - 4));
    // How many buffers wait at once depends on timing, so a few may still be taken from the system late.
    EXPECT_LT(per_microbatch, 0.05) << kind.method << ", " << kind.recompute << ", " << kind.order
                                    << ": " << few << " and " << many << " allocations";
  }
}

}  // namespace
}  // namespace penstock
