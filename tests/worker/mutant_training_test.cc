// Steps with mistakes in them, as files that a job trains by: what is accepted trains to the end with the
// weights of the serial reference; the rest is refused before anything starts.
#include <gtest/gtest.h>

#include <map>
#include <tuple>
#include <vector>

#include "base/random.h"
#include "schedule/placements.h"
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
  const auto add = [&steps](Schedule step) {
    if (step.range.count != 4 || step.topology.parts() > kLayers) return;
    for (Program& program : step.programs) program = {.prologue = Expand(program)};
    steps.push_back(std::move(step));
  };
  for (const Method& method : Methods()) {
    if (!method.synchronous) continue;
    for (const int32_t workers : {2, 3}) {
      add(CatalogSteps(method, workers, 4, 0, 1));
      // Stashes that wait on the host for a while.
      if (method.placement != Placement::kRoundTrip) {
        add(OffloadingSteps(method, {.all = 2}, workers, 4, 0, 1));
      }
    }
  }
  // Stages whose sums of gradients leave beside the last backward (BEGIN_REDUCE).
  for (const absl::string_view name : {"gpipe", "1f1b", "zb-h1"}) {
    const Method& method = **FindMethod(name);
    for (const std::vector<int32_t>& replicas :
         std::vector<std::vector<int32_t>>{{2}, {2, 1}, {1, 2}, {2, 2}, {4, 1, 2}}) {
      const ScheduleOptions options{.topology = PlaceReplicas(method, replicas).value(),
                                    .microbatches_per_step = 4};
      add(BuildSchedule(method, options, {0, 4}).value());
    }
  }
  // There and back with weights that are streamed, from memory and from files, in rounds of two microbatches.
  const Method& round_pipe = **FindMethod("roundpipe");
  for (const auto& [parts, per_forward] : {std::tuple(2, 1), std::tuple(3, 1), std::tuple(3, 2)}) {
    const Topology round_trip = RoundTripPipelines(parts, 2, 4, per_forward);
    for (const bool in_file : {false, true}) {
      const ScheduleOptions options{.topology = StreamWeights(round_trip, in_file).value(),
                                    .microbatches_per_step = 4};
      add(BuildSchedule(round_pipe, options, {0, 4}).value());
    }
  }
  return steps;
}

// Steps that are alike in this train the same weights: with one sum of gradients over all microbatches, whatever the stages,
// or with the sums of these replicas.
std::vector<int32_t> SumsOf(const Topology& topology) {
  return topology.form == Topology::Form::kReplicas ? ReplicasOf(topology) : std::vector<int32_t>();
}

// TRAINED_MUTANTS=100000 for longer.
TEST(MutantTraining, AcceptedSteps_TrainToTheSerialWeights) {
  MemoryFiles files;
  AddTestText(files);
  v1::JobSpec spec = SmallJob(std::string(ListedMethod().name));
  spec.mutable_training()->set_steps(2);
  spec.mutable_pipeline()->set_schedule_file("step.csv");
  const std::vector<Schedule> steps = Steps();
  std::map<std::vector<int32_t>, Trained> serial;
  for (const Schedule& step : steps) {
    const std::vector<int32_t> sums = SumsOf(step.topology);
    if (serial.contains(sums)) continue;
    spec.mutable_pipeline()->set_schedule(PrintSchedule(step));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        serial[sums], TrainSerially(spec, EvenSplit(kLayers, step.topology.parts()), {}, files));
  }

  RandomStream random(23, 0);
  const int mutants = EnvironmentNumber("TRAINED_MUTANTS", 1000);
  int trained = 0;
  int streamed = 0;  // of these
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
    const int stages = job->listed->topology.parts();
    const absl::StatusOr<Trained> cluster = TrainCluster(
        {.spec = spec, .layers = EvenSplit(kLayers, stages), .delay_seed = random.Next()}, files);
    // The form alone was looked at when the job was read; a stage that is never trained shows here.
    ASSERT_TRUE(cluster.ok()) << cluster.status() << "\n" << text;
    SCOPED_TRACE(text);
    ExpectSameTraining(*cluster, serial.at(SumsOf(step.topology)));
    ++trained;
    if (step.topology.streams_weights) ++streamed;
  }
  EXPECT_GT(trained, mutants / 20);
  EXPECT_GT(streamed, mutants / 200);
  EXPECT_LT(trained, mutants);
}

}  // namespace
}  // namespace penstock
