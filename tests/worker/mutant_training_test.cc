// Steps with mistakes in them, as files that a job trains by: what is accepted trains to the end with the
// weights of the serial reference; the rest is refused before anything starts.
#include <gtest/gtest.h>

#include "base/random.h"
#include "schedule/text.h"
#include "tests/schedule/mutants.h"
#include "tests/schedule/schedules.h"
#include "tests/support/environment.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/test_cluster.h"
#include "tests/worker/test_job.h"

namespace penstock {
namespace {

std::vector<Schedule> Steps() {
  std::vector<Schedule> steps;
  for (const Method& method : Methods()) {
    if (!method.synchronous) continue;
    for (const int32_t workers : {2, 3}) {
      std::vector<Schedule> variants = {CatalogSteps(method, workers, 4, 0, 1)};
      // Stashes that wait on the host for a while.
      if (method.placement != Placement::kRoundTrip) {
        variants.push_back(OffloadingSteps(method, {.all = 2}, workers, 4, 0, 1));
      }
      for (Schedule& step : variants) {
        if (step.range.count != 4 || step.topology.stages() > kLayers) continue;
        for (Program& program : step.programs) program = {.prologue = Expand(program)};
        steps.push_back(std::move(step));
      }
    }
  }
  return steps;
}

// TRAINED_MUTANTS=100000 for longer.
TEST(MutantTraining, AcceptedSteps_TrainToTheSerialWeights) {
  MemoryFiles files;
  AddTestText(files);
  v1::JobSpec spec = SmallJob(std::string(ListedMethod().name));
  spec.mutable_training()->set_steps(2);
  spec.mutable_pipeline()->set_schedule_file("step.csv");
  const std::vector<Schedule> steps = Steps();
  spec.mutable_pipeline()->set_schedule(PrintSchedule(steps.front()));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const Trained serial,
      TrainSerially(spec, EvenSplit(kLayers, steps.front().topology.stages()), {}, files));

  RandomStream random(23, 0);
  const int mutants = EnvironmentNumber("TRAINED_MUTANTS", 1000);
  int trained = 0;
  for (int round = 0; round < mutants; ++round) {
    Schedule step = steps[random.Below(steps.size())];
    for (uint64_t mutations = 1 + random.Below(2); mutations > 0; --mutations) {
      Mutate(random, step);
    }
    const std::string text = PrintSchedule(step);
    spec.mutable_pipeline()->set_schedule(text);
    const absl::StatusOr<ResolvedJob> job = ResolveJob(spec);
    if (!job.ok()) {
      EXPECT_TRUE(absl::IsInvalidArgument(job.status())) << job.status() << "\n" << text;
      continue;
    }
    const auto stages = static_cast<int>(job->StagesOn(1));
    const absl::StatusOr<Trained> cluster = TrainCluster(
        {.spec = spec, .layers = EvenSplit(kLayers, stages), .delay_seed = random.Next()}, files);
    // The form alone was looked at when the job was read; a stage that is never trained shows here.
    ASSERT_TRUE(cluster.ok()) << cluster.status() << "\n" << text;
    SCOPED_TRACE(text);
    ExpectSameTraining(*cluster, serial);
    ++trained;
  }
  EXPECT_GT(trained, mutants / 20);
  EXPECT_LT(trained, mutants);
}

}  // namespace
}  // namespace penstock
