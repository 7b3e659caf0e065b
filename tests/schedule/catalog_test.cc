// The closed forms that the catalog's files state, over many sizes.
#include "schedule/catalog/catalog.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "schedule/block_delay.h"
#include "schedule/block_draws.h"
#include "schedule/render_text.h"
#include "schedule/run.h"
#include "schedule/simulate.h"
#include "schedule/verify.h"
#include "tests/schedule/schedules.h"
#include "tests/support/golden.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kStagesMax = 32;
constexpr int64_t kMicrobatches[] = {1, 2, 3, 5, 8, 31, 32, 33, 70};

TEST(Gpipe, AnySize_MatchesItsClosedForms) {
  for (int32_t stages = 1; stages <= kStagesMax; ++stages) {
    for (const int64_t m : kMicrobatches) {
      SCOPED_TRACE(testing::Message() << stages << " stages, " << m << " microbatches");
      const Schedule schedule = CatalogSchedule("gpipe", stages, m, {0, m});
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationResult result,
                                    Simulate(schedule, {}, {.channel_capacity = 1}));
      EXPECT_DOUBLE_EQ(result.makespan_s, 2.0 * double(m + stages - 1));
      for (const WorkerTimes& worker : result.workers) {
        EXPECT_DOUBLE_EQ(worker.bubble_ratio, double(stages - 1) / double(m + stages - 1));
      }
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport report, Verify(schedule));
      EXPECT_EQ(report.channel_capacity_min, 1);
      for (const StageCounts& counts : report.stages) {
        EXPECT_EQ(counts.activations_peak, m);
        EXPECT_EQ(counts.versions_peak, 1);
        EXPECT_EQ(counts.staleness, (StalenessCount{1, 0, 0, m}));
      }
    }
  }
}

TEST(OneFOneB, AnySize_MatchesItsClosedForms) {
  for (int32_t stages = 1; stages <= kStagesMax; ++stages) {
    for (const int64_t m : kMicrobatches) {
      SCOPED_TRACE(testing::Message() << stages << " stages, " << m << " microbatches");
      const Schedule schedule = CatalogSchedule("1f1b", stages, m, {0, m});
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationResult result,
                                    Simulate(schedule, {}, {.channel_capacity = 1}));
      EXPECT_DOUBLE_EQ(result.makespan_s, 2.0 * double(m + stages - 1));
      for (const WorkerTimes& worker : result.workers) {
        EXPECT_DOUBLE_EQ(worker.bubble_ratio, double(stages - 1) / double(m + stages - 1));
      }
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport report, Verify(schedule));
      EXPECT_EQ(report.channel_capacity_min, 1);
      for (int32_t s = 0; s < stages; ++s) {
        EXPECT_EQ(report.stages[s].activations_peak, std::min<int64_t>(m, stages - s));
        EXPECT_EQ(report.stages[s].versions_peak, 1);
        EXPECT_EQ(report.stages[s].staleness, (StalenessCount{1, 0, 0, m}));
      }
    }
  }
}

// The microbatches between F and W on a worker at most, over all its stages.
int64_t WorkerStash(const Program& program) {
  int64_t stash = 0;
  int64_t peak = 0;
  for (const Action& action : Expand(program)) {
    if (action.kind == ActionKind::kForward) peak = std::max(peak, ++stash);
    if (action.kind == ActionKind::kBackwardWeight) --stash;
  }
  return peak;
}

void ExpectSynchronous(const Schedule& schedule, int64_t updates, int64_t step) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport report, Verify(schedule));
  for (const StageCounts& counts : report.stages) {
    EXPECT_EQ(counts.versions_peak, 1);
    EXPECT_EQ(counts.staleness, (StalenessCount{updates, 0, 0, updates * step}));
  }
}

TEST(InterleavedOneFOneB, AnySize_MatchesItsClosedForms) {
  const Method& method = **FindMethod("interleaved-1f1b");
  for (int32_t workers = 1; workers <= kStagesMax; ++workers) {
    for (const int32_t parts : {2, 3, 5}) {
      for (const int64_t rounds : {1, 2, 4}) {
        const int64_t m = rounds * workers;
        SCOPED_TRACE(testing::Message() << workers << " workers of " << parts << ", " << m);
        const ScheduleOptions options{LoopedPipeline(parts * workers, workers), m};
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const Schedule schedule,
                                      BuildSchedule(method, options, {0, m}));
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationResult result,
                                      Simulate(schedule, {}, {.channel_capacity = 2 * workers}));
        EXPECT_NEAR(result.bubble_ratio, double(workers - 1) / double(parts * m + workers - 1),
                    1e-12);
        for (int32_t w = 0; w < workers; ++w) {
          EXPECT_EQ(
              WorkerStash(schedule.programs[w]),
              std::min<int64_t>(parts * m, (parts - 1) * workers + 2 * (workers - 1 - w) + 1));
        }
        ExpectSynchronous(schedule, 1, m);
      }
    }
  }
}

TEST(LoopedBreadthFirst, AnySize_MatchesItsClosedForms) {
  const Method& method = **FindMethod("looped-bfs");
  for (int32_t workers = 1; workers <= kStagesMax; ++workers) {
    for (const int32_t parts : {2, 3}) {
      for (const int64_t m : {int64_t{workers}, int64_t{workers} + 1, int64_t{3} * workers}) {
        SCOPED_TRACE(testing::Message() << workers << " workers of " << parts << ", " << m);
        const ScheduleOptions options{LoopedPipeline(parts * workers, workers), m};
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const Schedule schedule,
                                      BuildSchedule(method, options, {0, m}));
        PENSTOCK_ASSERT_OK_AND_ASSIGN(
            const SimulationResult result,
            Simulate(schedule, {}, {.channel_capacity = static_cast<int32_t>(m)}));
        EXPECT_NEAR(result.bubble_ratio, double(workers - 1) / double(parts * m + workers - 1),
                    1e-12);
        for (const Program& program : schedule.programs) EXPECT_EQ(WorkerStash(program), parts * m);
        ExpectSynchronous(schedule, 1, m);
      }
    }
  }
}

// Seconds from the start of one step to that of the next, beyond the work of a worker, where F, I and W
// take a second each and gradients leave early.
double WaitingOfAStep(const Method& method, const ScheduleOptions& options, int32_t steps = 6) {
  const int64_t m = options.microbatches_per_step;
  const int32_t stages = options.topology.stages();
  const SimulationCosts equal{.stages = std::vector<StageCosts>(stages, {1, 1, 1, 0})};
  const auto makespan_s = [&](int32_t count) {
    return Simulate(*BuildSchedule(method, options, {0, count * m}), equal, {.channel_capacity = 4})
        ->makespan_s;
  };
  const double step_s = (makespan_s(steps) - makespan_s(2)) / (steps - 2);
  return step_s - 3.0 * double(m) * stages / options.topology.workers;
}

ScheduleOptions Early(Topology topology, int64_t microbatches) {
  return {.topology = std::move(topology),
          .microbatches_per_step = microbatches,
          .send_gradient_early = true};
}

TEST(ZeroBubbleH1, AnySize_MatchesItsClosedForms) {
  const Method& method = **FindMethod("zb-h1");
  for (int32_t stages = 1; stages <= kStagesMax; ++stages) {
    for (const int64_t m : {int64_t{stages}, int64_t{stages} + 1, int64_t{2} * stages + 3}) {
      SCOPED_TRACE(testing::Message() << stages << " stages, " << m << " microbatches");
      const ScheduleOptions options = Early(StraightPipeline(stages), m);
      EXPECT_DOUBLE_EQ(WaitingOfAStep(method, options), stages - 1);
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const Schedule schedule,
                                    BuildSchedule(method, options, {0, 2 * m}));
      for (const Program& program : schedule.programs) EXPECT_EQ(WorkerStash(program), stages);
      ExpectSynchronous(schedule, 2, m);
    }
  }
}

TEST(ZeroBubbleH2, AnySize_MatchesItsClosedForms) {
  const Method& method = **FindMethod("zb-h2");
  for (int32_t stages = 1; stages <= kStagesMax; ++stages) {
    for (const int64_t m :
         {int64_t{2} * stages - 1, int64_t{2} * stages, int64_t{3} * stages + 1}) {
      SCOPED_TRACE(testing::Message() << stages << " stages, " << m << " microbatches");
      const ScheduleOptions options = Early(StraightPipeline(stages), m);
      EXPECT_DOUBLE_EQ(WaitingOfAStep(method, options), 0);
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const Schedule schedule,
                                    BuildSchedule(method, options, {0, 2 * m}));
      for (const Program& program : schedule.programs) {
        EXPECT_EQ(WorkerStash(program), 2 * stages - 1);
      }
      ExpectSynchronous(schedule, 2, m);
    }
  }
}

TEST(VPipelines, AnySize_MatchTheirClosedForms) {
  for (int32_t workers = 1; workers <= kStagesMax; ++workers) {
    for (const int64_t m : {int64_t{2} * workers, int64_t{2} * workers + 1, int64_t{4} * workers}) {
      SCOPED_TRACE(testing::Message() << workers << " workers, " << m << " microbatches");
      const ScheduleOptions options = Early(VPipeline(workers), m);
      EXPECT_DOUBLE_EQ(WaitingOfAStep(**FindMethod("zb-v"), options), 0);
      EXPECT_DOUBLE_EQ(WaitingOfAStep(**FindMethod("dualpipe-v"), options), workers - 1);
      for (const char* name : {"zb-v", "dualpipe-v"}) {
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const Schedule schedule,
                                      BuildSchedule(**FindMethod(name), options, {0, 2 * m}));
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport report, Verify(schedule));
        for (int32_t s = 0; s < 2 * workers; ++s) {
          EXPECT_EQ(report.stages[s].activations_peak, 2 * workers - s);
        }
        ExpectSynchronous(schedule, 2, m);
      }
    }
  }
}

TEST(Catalog, FewMicrobatches_AreAccepted) {
  for (const Method& method : Methods()) {
    for (int32_t workers = 1; workers <= 9; ++workers) {
      for (int64_t m = 1; m <= 20; ++m) {
        if (m != StepFor(method, workers, m)) continue;
        EXPECT_THAT(Verify(CatalogSteps(method, workers, m, 0, 2)), IsOk())
            << method.name << " on " << workers << ", " << m;
      }
    }
  }
}

TEST(PipeDream, AnySize_MatchesItsClosedForms) {
  for (int32_t stages = 1; stages <= kStagesMax; ++stages) {
    for (const int64_t n : kMicrobatches) {
      SCOPED_TRACE(testing::Message() << stages << " stages, " << n << " microbatches");
      const Schedule schedule = CatalogSchedule("pipedream", stages, 1, {7, n});
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationResult result,
                                    Simulate(schedule, {}, {.channel_capacity = 1}));
      EXPECT_DOUBLE_EQ(result.makespan_s, 2.0 * double(n) + 2.0 * double(stages - 1));
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport report, Verify(schedule));
      EXPECT_EQ(report.channel_capacity_min, 1);
      for (int32_t s = 0; s < stages; ++s) {
        const int64_t depth = stages - 1 - s;
        const StageCounts& counts = report.stages[s];
        EXPECT_EQ(counts.activations_peak, std::min<int64_t>(n, stages - s));
        // Short ranges read fewer versions: those of the first N - depth updates.
        const int64_t read = n == 1 ? 0 : std::min(std::max<int64_t>(n - depth, 1), depth);
        EXPECT_EQ(counts.versions_peak, read + 1);
        EXPECT_EQ(counts.staleness.max, std::min<int64_t>(n - 1, depth));
        EXPECT_EQ(counts.staleness.updates, n);
        int64_t sum = 0;
        for (int64_t k = 0; k < n; ++k) sum += k - std::max<int64_t>(0, k - depth);
        EXPECT_EQ(counts.staleness.sum, sum);
        EXPECT_EQ(counts.version_drift, (StalenessCount{n, 0, 0, n}));
      }
    }
  }
}

TEST(PipeDream2BW, AnySize_MatchesItsClosedForms) {
  for (int32_t stages = 1; stages <= kStagesMax; ++stages) {
    for (const int64_t m : {int64_t{stages}, int64_t{stages} + 1, int64_t{2} * stages + 3}) {
      for (const int64_t steps : {1, 2, 3, 6}) {
        SCOPED_TRACE(testing::Message()
                     << stages << " stages, " << m << " microbatches, " << steps);
        const int64_t n = steps * m;
        const Schedule schedule = CatalogSchedule("pipedream-2bw", stages, m, {3 * m, n});
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationResult result,
                                      Simulate(schedule, {}, {.channel_capacity = 1}));
        EXPECT_DOUBLE_EQ(result.makespan_s, 2.0 * double(n + stages - 1));
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport report, Verify(schedule));
        for (int32_t s = 0; s < stages; ++s) {
          const StageCounts& counts = report.stages[s];
          EXPECT_EQ(counts.activations_peak, std::min<int64_t>(n, stages - s));
          EXPECT_LE(counts.versions_peak, 2);
          EXPECT_EQ(counts.versions_peak, 2);
          EXPECT_EQ(counts.staleness,
                    (StalenessCount{steps, std::min<int64_t>(steps - 1, 1), (steps - 1) * m, n}));
          EXPECT_EQ(counts.version_drift, (StalenessCount{steps, 0, 0, n}));
        }
      }
    }
  }
}

// Whoever has double buffers needs what pipedream-2bw needs, and pipedream-2bw without them does not.
TEST(DoubleBuffer, WithFewerMicrobatchesThanStages_IsRefusedForEveryMethod) {
  const auto check = [](absl::string_view method, const Weights* weights, int64_t microbatches) {
    return CheckBuildable(**FindMethod(method),
                          {.topology = StraightPipeline(4),
                           .microbatches_per_step = microbatches,
                           .weights = weights},
                          {0, microbatches});
  };
  for (const char* method : {"paci", "pipedream-2bw"}) {
    EXPECT_THAT(check(method, &Weights::kDoubleBuffer, 3),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("as there are stages, 4")));
    EXPECT_THAT(check(method, &Weights::kDoubleBuffer, 4), IsOk());
    EXPECT_THAT(check(method, &Weights::kSingle, 3), IsOk());
  }
}

// The paper asks for as many microbatches in a step as there are stages; one fewer would do.
TEST(PipeDream2BW, TwoVersions_SufficeIfAndOnlyIfAStepFillsThePipelineButOne) {
  Method method = **FindMethod("pipedream-2bw");
  Weights weights = *method.weights;
  weights.fills_pipeline = false;
  method.weights = &weights;
  for (int32_t stages = 2; stages <= kStagesMax; ++stages) {
    for (int64_t m = 1; m <= stages + 1; ++m) {
      SCOPED_TRACE(testing::Message() << stages << " stages, " << m << " microbatches");
      const ScheduleOptions options{StraightPipeline(stages), m};
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const Schedule schedule,
                                    BuildSchedule(method, options, {0, 8 * stages * m}));
      const absl::StatusOr<VerifyReport> report = Verify(schedule);
      if (m < stages - 1) {
        EXPECT_THAT(report, StatusIs(absl::StatusCode::kFailedPrecondition,
                                     HasSubstr("reads weight version 1, which is not made yet")));
        continue;
      }
      ASSERT_THAT(report, IsOk());
      for (const StageCounts& counts : report->stages) EXPECT_EQ(counts.versions_peak, 2);
    }
  }
}

// A step has several updates, whose microbatches alone decide the drift; the order of forwards and backwards stays.
TEST(Paci, UpdatesWithinAStep_ReachTheDriftOfTheirMicrobatches) {
  const Method& paci = **FindMethod("paci");
  for (const int32_t stages : {1, 2, 5, 8}) {
    for (const auto& [m, a] :
         {std::pair<int64_t, int64_t>{8, 1}, {8, 2}, {8, 4}, {8, 8}, {6, 3}, {40, 5}}) {
      SCOPED_TRACE(testing::Message() << stages << " stages, " << m << " in a step, " << a);
      const int64_t n = (2 * stages / m + 3) * m;
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const Schedule schedule,
                                    BuildSchedule(paci,
                                                  {.topology = StraightPipeline(stages),
                                                   .microbatches_per_step = m,
                                                   .microbatches_per_update = a},
                                                  {0, n}));
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationResult result,
                                    Simulate(schedule, {}, {.channel_capacity = 1}));
      EXPECT_DOUBLE_EQ(result.makespan_s, 2.0 * double(n + stages - 1));
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport report, Verify(schedule));
      for (int32_t s = 0; s < stages; ++s) {
        const int64_t depth = stages - 1 - s;
        EXPECT_EQ(report.stages[s].staleness.updates, n / a);
        EXPECT_EQ(report.stages[s].versions_peak, 1);
        EXPECT_EQ(report.stages[s].version_drift.max, (depth + a - 1) / a);
      }
      // The same as steps of that size.
      const Schedule smaller = CatalogSchedule("paci", stages, a, {0, n});
      EXPECT_EQ(smaller.programs, schedule.programs);
    }
  }
}

TEST(Paci, UpdatesThatDoNotFit_AreRefused) {
  const auto refusal = [](const char* method, int64_t m, int64_t a) {
    return std::string(BuildSchedule(**FindMethod(method),
                                     {.topology = StraightPipeline(4),
                                      .microbatches_per_step = m,
                                      .microbatches_per_update = a},
                                     {0, 4 * m})
                           .status()
                           .message());
  };
  EXPECT_EQ(refusal("paci", 8, 4), "");
  EXPECT_EQ(refusal("paci", 8, 3), "an update of 3 microbatches does not divide a step of 8");
  EXPECT_EQ(refusal("paci", 8, 0), "an update of 0 microbatches does not divide a step of 8");
  EXPECT_THAT(refusal("1f1b", 8, 4), HasSubstr("1f1b updates a stage once in a step"));
  EXPECT_THAT(refusal("pipedream", 8, 4), HasSubstr("pipedream updates a stage after every"));
}

TEST(Paci, AnySize_ReachesItsDriftAndNeverPassesIt) {
  for (int32_t stages = 1; stages <= kStagesMax; ++stages) {
    for (const int64_t a : {1, 2, 3, 5, 8, 31, 40}) {
      SCOPED_TRACE(testing::Message() << stages << " stages, accumulation " << a);
      const int64_t n = (2 * stages / a + 3) * a;
      const Schedule schedule = CatalogSchedule("paci", stages, a, {0, n});
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationResult result,
                                    Simulate(schedule, {}, {.channel_capacity = 1}));
      EXPECT_DOUBLE_EQ(result.makespan_s, 2.0 * double(n + stages - 1));
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport report, Verify(schedule));
      for (int32_t s = 0; s < stages; ++s) {
        const int64_t depth = stages - 1 - s;
        const StageCounts& counts = report.stages[s];
        EXPECT_EQ(counts.activations_peak, std::min<int64_t>(n, stages - s));
        EXPECT_EQ(counts.versions_peak, 1);
        EXPECT_EQ(counts.version_drift.max, (depth + a - 1) / a);
      }
    }
  }
}

// Slots of a round of R replicas with H local steps on S stages (the paper has R = S).
int64_t RoundOfLocalSgd(int64_t stages, int64_t replicas, int64_t local_steps) {
  return replicas >= stages ? 2 * replicas * local_steps + 2 * (stages - 1)
                            : 2 * stages * local_steps + 2 * (replicas - 1);
}

TEST(LocalSgd, RoundsOfThePaper_TakeTheirSlots) {
  struct Round {
    int64_t stages, replicas, local_steps, slots;
  };
  for (const auto& [stages, replicas, local_steps, slots] :
       {Round{4, 4, 5, 46}, Round{16, 16, 5, 190}, Round{4, 2, 1, 10}, Round{4, 2, 3, 26},
        Round{4, 3, 2, 20}, Round{4, 6, 2, 30}, Round{8, 4, 4, 70}, Round{8, 16, 2, 78}}) {
    EXPECT_EQ(RoundOfLocalSgd(stages, replicas, local_steps), slots);
  }
  // The paper's figure 4: 874 jobs in the 2078 ticks that PipeDream takes for 1024.
  const Method& method = **FindMethod("local-sgd");
  const int64_t m = 16 * 5;
  const ScheduleOptions options{ReplicatedPipelines(16, 16), m};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Schedule schedule,
                                BuildSchedule(method, options, {0, 11 * m}));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const SimulationResult result,
      Simulate(schedule, {}, {.channel_capacity = 1, .timeline_spans_max = 1'000'000}));
  int64_t done = 0;
  for (const Span& span : result.timeline.spans) {
    if (span.worker.value != 0 || span.action.kind != ActionKind::kBackwardWeight) continue;
    done += span.end_ns <= 2078 * int64_t{1'000'000'000};
  }
  EXPECT_EQ(done, 874);
}

TEST(LocalSgd, AnySize_MatchesItsClosedForms) {
  const Method& method = **FindMethod("local-sgd");
  for (int32_t stages = 1; stages <= kStagesMax; stages += stages < 9 ? 1 : 5) {
    for (const int32_t replicas : {1, 2, 3, stages, stages + 3, 2 * stages}) {
      for (const int64_t local_steps : {1, 2, 5, 30}) {
        SCOPED_TRACE(testing::Message() << stages << " stages, " << replicas << " replicas, "
                                        << local_steps << " local steps");
        const int64_t m = replicas * local_steps;
        const int64_t rounds = 3;
        const ScheduleOptions options{ReplicatedPipelines(stages, replicas), m};
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const Schedule schedule,
                                      BuildSchedule(method, options, {m, rounds * m}));
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationResult result,
                                      Simulate(schedule, {}, {.channel_capacity = 1}));
        const auto slots = static_cast<double>(RoundOfLocalSgd(stages, replicas, local_steps));
        EXPECT_DOUBLE_EQ(result.makespan_s, rounds * slots);
        EXPECT_NEAR(result.bubble_ratio, 1.0 - 2.0 * double(m) / slots, 1e-9);
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport report, Verify(schedule));
        EXPECT_EQ(report.channel_capacity_min, 1);
        for (const StageCounts& counts : report.stages) {
          EXPECT_EQ(counts.versions_peak, 1);
          EXPECT_EQ(counts.activations_peak, 1);
          const int64_t updates = rounds * local_steps;
          EXPECT_EQ(counts.staleness, (StalenessCount{updates, 0, 0, updates}));
        }
        for (int32_t s = 0; s < stages; ++s) {
          EXPECT_EQ(WorkerStash(schedule.programs[s]), std::min(replicas, stages - s));
        }
      }
    }
  }
}

// The update of the last stage waits for the first one's part of the tied gradient.
TEST(LocalSgd, TiedEmbedding_CostsAnOddPipelineNothing) {
  const Method& method = **FindMethod("local-sgd");
  for (int32_t stages = 2; stages <= 16; ++stages) {
    for (const int32_t replicas : {2, stages, 2 * stages}) {
      SCOPED_TRACE(testing::Message() << stages << " stages, " << replicas << " replicas");
      const int64_t m = 8 * replicas;
      const ScheduleOptions tied = TiedOptions(ReplicatedPipelines(stages, replicas), m);
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const Schedule schedule,
                                    BuildSchedule(method, tied, {0, 2 * m}));
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport report, Verify(schedule));
      EXPECT_EQ(report.channel_capacity_min, 1);
      for (const StageCounts& counts : report.stages) EXPECT_EQ(counts.staleness.max, 0);
      if (stages % 2 == 0 || replicas < stages) continue;
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationResult result,
                                    Simulate(schedule, {}, {.channel_capacity = 1}));
      EXPECT_DOUBLE_EQ(result.makespan_s, 2.0 * double(RoundOfLocalSgd(stages, replicas, 8)));
    }
  }
}

ScheduleOptions NormedReplicas(int32_t stages, int32_t replicas, int64_t local_steps) {
  return {.topology = ReplicatedPipelines(stages, replicas),
          .microbatches_per_step = replicas * local_steps,
          .global_norm = true};
}

// By hand: the last stage has its backward of the second replica before the first stage has that of the first, whose norm
// both then find.
TEST(LocalSgd, GlobalNorm_IsOfEachReplica) {
  const Schedule schedule =
      BuildSchedule(**FindMethod("local-sgd"), NormedReplicas(2, 2, 1), {0, 2}).value();
  EXPECT_EQ(PrintSchedule(schedule, {.merge_backward = true}),
            "# penstock schedule 1 name=local-sgd weights=single complete=train range=0+2 "
            "stages=0,1,0,1 pipelines=2 group=weight:mean:0,2 group=weight:mean:1,3\n"
            "[0F0,0SEND_F0,2F1,2SEND_F1,0RECV_B0,0B0,NORM,0UPDATE,2RECV_B1,2B1,1NORM,2UPDATE,"
            "0REDUCE]*1+2,FLUSH\n"
            "[1RECV_F0,1F0,1B0,1SEND_B0,3RECV_F1,3F1,3B1,3SEND_B1,NORM,1UPDATE,1NORM,3UPDATE,"
            "1REDUCE]*1+2,FLUSH\n");
  EXPECT_THAT(Verify(schedule), IsOk());
  Schedule of_other = schedule;
  for (Action& action : of_other.programs[0].period) {
    if (action.kind == ActionKind::kNorm) action.index = 1 - action.index;
  }
  EXPECT_THAT(Verify(of_other), ::testing::Not(IsOk()));
  Schedule of_none = schedule;
  for (Program& program : of_none.programs) {
    for (Action& action : program.period) {
      if (action.kind == ActionKind::kNorm) action.index += 1;
    }
  }
  EXPECT_THAT(Verify(of_none).status().message(), HasSubstr("stage 2 has accumulated no gradient"));
}

TEST(LocalSgd, GlobalNorm_CostsNothingWithMoreReplicasThanStages) {
  const Method& method = **FindMethod("local-sgd");
  for (int32_t stages = 1; stages <= 12; ++stages) {
    for (const int32_t replicas : {1, 2, stages, stages + 1, 2 * stages + 1}) {
      SCOPED_TRACE(testing::Message() << stages << " stages, " << replicas << " replicas");
      const auto makespan = [&](int64_t local_steps) {
        const ScheduleOptions options = NormedReplicas(stages, replicas, local_steps);
        const Schedule schedule =
            BuildSchedule(method, options, {0, 2 * options.microbatches_per_step}).value();
        const VerifyReport report = Verify(schedule).value();
        for (const StageCounts& counts : report.stages) EXPECT_EQ(counts.staleness.max, 0);
        const Schedule round =
            BuildSchedule(method, options, {0, options.microbatches_per_step}).value();
        return Simulate(round, {}).value().makespan_s;
      };
      const double slots = static_cast<double>(RoundOfLocalSgd(stages, replicas, 16) -
                                               RoundOfLocalSgd(stages, replicas, 8));
      if (replicas > stages) {
        EXPECT_DOUBLE_EQ(makespan(16) - makespan(8), slots);
      } else {
        EXPECT_GE(makespan(16) - makespan(8), slots - 1e-9);
      }
    }
  }
}

TEST(LocalSgd, BlockDelay_IsZeroForEveryReplica) {
  const Schedule schedule = CatalogSchedule("local-sgd", 4, 8, {0, 64});
  EXPECT_EQ(PredictBlockDelay(schedule)->max, 0);
}

// All stages read what the first one reads and so keep as many versions as the pipeline is deep, where PipeDream's stage s
// keeps S - s; activations and length are PipeDream's.
TEST(VerticalSync, AnySize_MatchesItsClosedForms) {
  for (int32_t stages = 1; stages <= kStagesMax; ++stages) {
    for (const int64_t n : kMicrobatches) {
      SCOPED_TRACE(testing::Message() << stages << " stages, " << n << " microbatches");
      const Schedule schedule = CatalogSchedule("vertical-sync", stages, 1, {7, n});
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationResult result,
                                    Simulate(schedule, {}, {.channel_capacity = 1}));
      EXPECT_DOUBLE_EQ(result.makespan_s, 2.0 * double(n) + 2.0 * double(stages - 1));
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport report, Verify(schedule));
      const int64_t delay = stages - 1;
      // Microbatch k reads max(0, k - delay) and its update replaces version k.
      int64_t sum = 0;
      for (int64_t k = 0; k < n; ++k) sum += k - std::max<int64_t>(0, k - delay);
      for (int32_t s = 0; s < stages; ++s) {
        const StageCounts& counts = report.stages[s];
        EXPECT_EQ(counts.staleness, (StalenessCount{n, std::min(n - 1, delay), sum, n}));
        EXPECT_EQ(counts.version_drift, (StalenessCount{n, 0, 0, n}));
        EXPECT_EQ(counts.versions_peak, std::min(n, delay) + 1);
        EXPECT_EQ(counts.activations_peak, std::min<int64_t>(n, stages - s));
      }
    }
  }
}

TEST(VerticalSync, IsPipeDreamWithItsWeights) {
  const MicrobatchRange range = {3, 40};
  for (int32_t stages = 1; stages <= kStagesMax; ++stages) {
    const Schedule named = CatalogSchedule("vertical-sync", stages, 1, range);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        const Schedule weighted,
        BuildSchedule(**FindMethod("pipedream"),
                      {.topology = StraightPipeline(stages), .weights = &Weights::kVerticalSync},
                      range));
    EXPECT_EQ(named.programs, weighted.programs);
    EXPECT_EQ(named.weight_policy, weighted.weight_policy);
    EXPECT_EQ(ToString(named.weight_policy),
              stages == 1 ? "stash" : absl::StrCat("delayed:1:", stages - 1));
  }
}

// Notes what every microbatch read on each stage, and which stages its update moved.
class DrawsSeen : public RunObserver {
 public:
  absl::Status OnAction(WorkerId, const Action& action, const Effect& effect, MessageId) override {
    const int32_t stage = action.index;
    if (action.kind == ActionKind::kForward) read[{stage, action.microbatch}] = effect.version;
    if (action.kind == ActionKind::kBackwardInput) {
      EXPECT_EQ(effect.version, (read[{stage, action.microbatch}]));
    }
    if (action.kind == ActionKind::kUpdate && effect.moves) {
      ++moved[stage];
      ++moves[effect.microbatches.first];
    }
    return absl::OkStatus();
  }
  void OnCollective(const Action&, absl::Span<const WorkerId>) override {}

  std::map<std::pair<int32_t, int64_t>, int64_t> read;  // by stage and microbatch
  std::map<int32_t, int64_t> moved;                     // updates by stage
  std::map<int64_t, int64_t> moves;                     // stages by microbatch
};

TEST(Rpd, AnySize_ReadsWithinDeltaAndMovesOneStageAMicrobatch) {
  const Method& method = **FindMethod("rpd");
  constexpr int64_t kMicrobatches = 700;
  constexpr int64_t kFirst = 11;
  for (int32_t stages = 1; stages <= 8; ++stages) {
    for (const int64_t delta : {int64_t{stages} - 1, PipelineDelay(stages), int64_t{90}}) {
      SCOPED_TRACE(testing::Message() << stages << " stages, delta " << delta);
      const ScheduleOptions options{
          .topology = StraightPipeline(stages), .delta = delta, .seed = 3};
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const Schedule schedule,
                                    BuildSchedule(method, options, {kFirst, kMicrobatches}));
      DrawsSeen seen;
      Interpreter interpreter(schedule, /*channel_capacity=*/2, seen);
      ASSERT_THAT(interpreter.RunToEnd(), IsOkAndHolds(true));
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport report, Verify(schedule));
      const BlockDraws draws(3, delta, stages);
      for (int32_t s = 0; s < stages; ++s) {
        StalenessCount staleness{kMicrobatches, 0, 0, kMicrobatches};
        int64_t weights_most = 1;
        for (int64_t k = 0; k < kMicrobatches; ++k) {
          const int64_t delay = k - seen.read[{s, kFirst + k}];
          ASSERT_EQ(delay, draws.DelayOf(kFirst + k, s, k));
          ASSERT_LE(delay, delta);
          staleness.max = std::max(staleness.max, delay);
          staleness.sum += delay;
          int64_t weights = 1;
          for (int64_t made = std::max<int64_t>(0, k + 1 - delta); made <= k; ++made) {
            weights += draws.StageOf(kFirst + made) == s;
          }
          weights_most = std::max(weights_most, weights);
        }
        EXPECT_EQ(report.stages[s].staleness, staleness);
        EXPECT_EQ(report.stages[s].version_drift.max, 0);
        EXPECT_EQ(report.stages[s].versions_peak, weights_most);
        EXPECT_EQ(report.stages[s].activations_peak, stages - s);
        // One in S: five deviations of the binomial distribution.
        const double share = 1.0 / stages;
        EXPECT_NEAR(static_cast<double>(seen.moved[s]) / kMicrobatches, share,
                    5 * std::sqrt(share * (1 - share) / kMicrobatches) + 1e-12);
      }
      for (int64_t k = 0; k < kMicrobatches; ++k) ASSERT_EQ(seen.moves[kFirst + k], 1);
    }
  }
}

// A coordinator asks for no counts, and then a range of any length takes no time.
TEST(Rpd, VerifiedWithoutCountingDraws_TakesNoLongerForALongRange) {
  const Schedule schedule = CatalogSchedule("rpd", 4, 1, {0, 4'000'000'000});
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport report,
                                Verify(schedule, {.counts_draws = false}));
  EXPECT_LT(report.actions_run, 1000);
  EXPECT_EQ(report.channel_capacity_min,
            Verify(CatalogSchedule("rpd", 4, 1, {0, 1000}))->channel_capacity_min);
  EXPECT_THAT(Verify(schedule), StatusIs(absl::StatusCode::kResourceExhausted,
                                         HasSubstr("that are counted one by one; put cuts")));
}

TEST(Rpd, Length_IsThatOfPipeDream) {
  for (const int32_t stages : {1, 3, 8}) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationResult rpd,
                                  Simulate(CatalogSchedule("rpd", stages, 1, {0, 100}), {}));
    EXPECT_DOUBLE_EQ(rpd.makespan_s, 2.0 * 100 + 2 * (stages - 1));
  }
}

TEST(Rpd, BlockDelay_IsThatOfTheDraws) {
  const Method& method = **FindMethod("rpd");
  ScheduleOptions options{.topology = StraightPipeline(4), .seed = 9};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(BlockDelay delay, PredictBlockDelay(method, options));
  EXPECT_EQ(delay.max, 14) << "PipeDream's own, by default";
  EXPECT_DOUBLE_EQ(delay.mean, (14 + 1.5) / 2);
  options.delta = 40;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(delay, PredictBlockDelay(method, options));
  EXPECT_EQ(delay.max, 40);
}

TEST(Rpd, WhatCannotBeDrawn_IsRefusedWithWhatWouldDo) {
  const Method& rpd = **FindMethod("rpd");
  const auto refusal = [](const Method& method, const ScheduleOptions& options) {
    return std::string(CheckBuildable(method, options, {0, 8}).message());
  };
  EXPECT_THAT(refusal(rpd, {.topology = StraightPipeline(4), .delta = 2}),
              HasSubstr("the greatest delay is 2, but on 4 stages the forward of the first is 3 "
                        "updates before the microbatch's own; 3 or more would do, and PipeDream's "
                        "own is 14"));
  EXPECT_THAT(refusal(rpd, {.topology = StraightPipeline(4), .weights = &Weights::kStash}),
              HasSubstr("it samples what is read"));
  EXPECT_THAT(refusal(**FindMethod("pipedream"),
                      {.topology = StraightPipeline(4), .weights = &Weights::kDrawn}),
              HasSubstr("only rpd samples what is read"));
  EXPECT_THAT(refusal(**FindMethod("pipedream"), {.topology = StraightPipeline(4), .delta = 20}),
              HasSubstr("pipedream samples no delays"));
  Schedule replicas = CatalogSchedule("local-sgd", 2, 2, {0, 4});
  replicas.weight_policy = {.weights = &Weights::kDrawn, .lag = 9};
  EXPECT_THAT(Verify(replicas),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("but there are 2 pipelines")));
}

TEST(PipeDream, ManyMicrobatches_TakesTwoSlotsForEach) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationResult result,
                                Simulate(CatalogSchedule("pipedream", 8, 1, {0, 1000}), {}));
  EXPECT_DOUBLE_EQ(result.steady_state_period_s, 2.0);
}

TEST(PipeDream, BlockDelay_IsThatOfTheTheory) {
  EXPECT_EQ(PredictBlockDelay(**FindMethod("pipedream"), {StraightPipeline(1)})->max, 0);
  for (int32_t stages = 2; stages <= kStagesMax; ++stages) {
    SCOPED_TRACE(testing::Message() << stages << " stages");
    const ScheduleOptions options{.topology = StraightPipeline(stages)};
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const BlockDelay delay,
                                  PredictBlockDelay(**FindMethod("pipedream"), options));
    EXPECT_EQ(delay.max, (2 * stages * stages - stages) / 2);
    EXPECT_DOUBLE_EQ(delay.mean, (stages * stages - 1) / 2.0);
    ASSERT_EQ(delay.pairs.size(), static_cast<size_t>(stages));
    int64_t count = 0;
    int64_t sum = 0;
    for (const std::vector<int64_t>& pairs : delay.pairs) {
      for (size_t late = 0; late < pairs.size(); ++late) {
        count += pairs[late];
        sum += static_cast<int64_t>(late) * pairs[late];
      }
    }
    EXPECT_EQ(count, delay.count);
    EXPECT_DOUBLE_EQ(static_cast<double>(sum) / static_cast<double>(count), delay.mean);
  }
}

TEST(PipeDream, BlockDelay_CostsTheSameForAnyStep) {
  const Method& method = **FindMethod("pipedream");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const BlockDelay small,
                                PredictBlockDelay(method, {StraightPipeline(4), 1}));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const BlockDelay large,
                                PredictBlockDelay(method, {StraightPipeline(4), 1'000'000'000}));
  EXPECT_EQ(large.count, small.count);
  EXPECT_EQ(large.max, small.max);
}

TEST(SendGradientEarly, ShortensTheBubbleOfOneFOneB) {
  // 4 stages, 8 microbatches: (S-1)/(M+S-1) = 3/11 with a whole backward, 1/5 with the early send.
  ScheduleOptions options{.topology = StraightPipeline(4), .microbatches_per_step = 8};
  const SimulationCosts equal{.stages = std::vector<StageCosts>(4, {1, 1, 1, 0})};
  const Method& method = **FindMethod("1f1b");
  EXPECT_DOUBLE_EQ(Simulate(*BuildSchedule(method, options, {0, 8}), equal)->bubble_ratio,
                   3.0 / 11);
  options.send_gradient_early = true;
  EXPECT_DOUBLE_EQ(Simulate(*BuildSchedule(method, options, {0, 8}), equal)->bubble_ratio, 0.2);
}

// The weights of every pass under the policies that move them, S stages and M microbatches to an update:
// microbatch k reads what the current version is on 1F1B, moved to its own update, to the first
// stage's, or back.
TEST(MovedWeights, EveryPassOfAnySize_ReadsWhatTheClosedFormsSay) {
  for (const Weights* weights :
       {&Weights::kPredicted, &Weights::kSpecTrain, &Weights::kCorrected}) {
    for (int32_t stages = 1; stages <= 9; ++stages) {
      for (const int64_t m : {1, 2, 3, 8, 11}) {
        const Method& method = **FindMethod(m == 1 ? "pipedream" : "paci");
        const ScheduleOptions options = {
            .topology = StraightPipeline(stages), .microbatches_per_step = m, .weights = weights};
        const int64_t n = 6 * m + 24 / m * m;
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const Schedule schedule,
                                      BuildSchedule(method, options, {5 * m, n}));
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport report, Verify(schedule));
        for (int32_t s = 0; s < stages; ++s) {
          SCOPED_TRACE(testing::Message() << weights->name << ", stage " << s << " of " << stages
                                          << ", " << m << " microbatches");
          const int64_t depth = stages - 1 - s;
          const int64_t horizon = weights == &Weights::kSpecTrain ? s / 2 : 0;
          Machine machine(schedule.topology, WorkerId(s), schedule.weight_policy);
          for (ProgramCursor cursor(schedule.programs[s]); !cursor.Done(); cursor.Advance()) {
            const Action action = cursor.Current();
            PENSTOCK_ASSERT_OK_AND_ASSIGN(const Effect effect, machine.Apply(action));
            const int64_t k = action.microbatch - 5 * m;
            const int64_t forward = std::max<int64_t>(0, k - depth) / m;
            const int64_t backward = k / m;
            if (action.kind == ActionKind::kForward) {
              EXPECT_EQ(effect.version, forward);
              EXPECT_EQ(effect.ahead,
                        weights == &Weights::kCorrected ? 0 : (k + horizon) / m - forward);
            } else if (action.kind == ActionKind::kBackwardInput) {
              EXPECT_EQ(effect.version, backward);
              EXPECT_EQ(effect.ahead, weights == &Weights::kCorrected
                                          ? forward - backward
                                          : (k + horizon) / m - backward);
            }
          }
          EXPECT_EQ(report.stages[s].versions_peak, 1);
          EXPECT_EQ(report.stages[s].moved_copies, 1);
          EXPECT_EQ(report.stages[s].staleness.max, std::min((depth + m - 1) / m, n / m - 1));
        }
      }
    }
  }
}

TEST(Catalog, EveryMethod_HasItsGoldenPicture) {
  for (const Method& method : Methods()) {
    const Schedule schedule = CatalogSchedule(method.name, 4, 8, {0, 16});
    const SimulationCosts with_step{
        .stages = std::vector<StageCosts>(schedule.topology.stages(), {.update_s = 0.5})};
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        const SimulationResult result,
        Simulate(schedule, with_step, {.channel_capacity = 8, .timeline_spans_max = 10'000}));
    const std::string picture =
        absl::StrCat(method.name, ": ", method.summary, "\n\n",
                     RenderText(result.timeline, {.slot_ns = 500'000'000, .columns = 120}), "\n",
                     PrintSchedule(schedule, {.merge_backward = true}));
    ExpectEqualsGolden(absl::StrCat("schedule/", method.name, ".txt"), picture);
  }
}

TEST(Catalog, EveryMethodAndOption_IsVerified) {
  for (const Method& method : Methods()) {
    for (int32_t workers = 1; workers <= 6; ++workers) {
      for (const bool early : {false, true}) {
        const int64_t step = StepFor(method, workers, 3);
        const Topology topology = PlacedOn(method, workers, step);
        ScheduleOptions options = method.synchronous && topology.stages() > 1
                                      ? TiedOptions(topology, step)
                                      : ScheduleOptions{topology, step};
        options.global_norm = method.synchronous;
        options.send_gradient_early = early;
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const Schedule schedule,
                                      BuildSchedule(method, options, {2 * step, 4 * step}));
        EXPECT_THAT(Verify(schedule), IsOk()) << PrintSchedule(schedule);
      }
    }
  }
}

// What the catalog lists for a step comes back from a file, with messages and without.
TEST(ListedMethod, StepOfEveryMethodThatUpdatesAtItsEnd_IsThatOfTheMethod) {
  for (const Method& method : Methods()) {
    if (!method.synchronous || method.updates_each_microbatch) continue;
    if (method.placement == Placement::kRoundTrip) continue;  // refused
    const int64_t step = StepFor(method, 3, 6);
    const Schedule expected = CatalogSteps(method, 3, step, 0, 3);
    const Schedule one = CatalogSteps(method, 3, step, 0, 1);
    ScheduleOptions options{.topology = expected.topology,
                            .microbatches_per_step = step,
                            .listed = std::make_shared<const Schedule>(one),
                            .send_gradient_early = method.sends_gradient_early};
    PENSTOCK_ASSERT_OK_AND_ASSIGN(Schedule listed,
                                  BuildSchedule(ListedMethod(), options, {0, 3 * step}));
    EXPECT_EQ(listed.programs, expected.programs) << method.name;

    Schedule compute = one;
    for (Program& program : compute.programs) {
      ActionList list = Expand(program);
      std::erase_if(list, [](const Action& action) {
        return !HasMicrobatch(action.kind) || IsSend(action.kind) || IsReceive(action.kind);
      });
      program = {.prologue = list};
    }
    options.listed = std::make_shared<const Schedule>(compute);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(listed, BuildSchedule(ListedMethod(), options, {0, 3 * step}));
    EXPECT_EQ(listed.programs, expected.programs) << method.name;
  }
}

TEST(BuildSchedule, StepTooLongToBeListed_IsRefusedBeforeAnythingIsAllocated) {
  for (const char* name : {"gpipe", "1f1b"}) {
    const Method& method = **FindMethod(name);
    for (const int32_t stages : {1, 4, 256}) {
      const int64_t most = ListedMicrobatchesMax(stages);
      EXPECT_THAT(CheckBuildable(method, {StraightPipeline(stages), most}, {0, most}), IsOk());
      for (const int64_t microbatches : {most + 1, int64_t{1'000'000'000}, kMicrobatchMax}) {
        EXPECT_THAT(
            BuildSchedule(method, {StraightPipeline(stages), microbatches}, {0, microbatches}),
            StatusIs(absl::StatusCode::kInvalidArgument,
                     HasSubstr(absl::StrCat("at most ", most, " are possible"))));
      }
    }
  }
  // A method without steps lists the depth of the pipeline alone.
  EXPECT_THAT(BuildSchedule(**FindMethod("pipedream"), {StraightPipeline(256), 1 << 20},
                            {0, int64_t{1} << 40}),
              IsOk());
}

TEST(Evaluation, AnyTopology_ForwardsEverythingAndKeepsNothing) {
  const Topology looped = LoopedPipeline(4, 2);
  for (const Topology& topology : {StraightPipeline(1), StraightPipeline(5), looped,
                                   ReplicatedPipelines(3, 2), ReplicatedPipelines(2, 9)}) {
    const Schedule schedule = BuildEvaluation(topology, {10, 7});
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport report, Verify(schedule));
    EXPECT_EQ(report.channel_capacity_min, 1);
    for (const StageCounts& counts : report.stages) EXPECT_EQ(counts, StageCounts());
    EXPECT_THAT(Simulate(schedule, {}), IsOk());
  }
}

TEST(FindMethod, UnknownName_ListsTheMethods) {
  EXPECT_THAT(FindMethod("1f1c"), StatusIs(absl::StatusCode::kNotFound,
                                           HasSubstr("\"1f1c\"; the methods are gpipe, 1f1b")));
}

struct BadOptions {
  absl::string_view method;
  ScheduleOptions options;
  MicrobatchRange range;
  absl::string_view expected;
};

TEST(BuildSchedule, WhatAMethodCannotDo_IsSaidWithTheReason) {
  const Topology looped = PipelineOn({WorkerId(0), WorkerId(1), WorkerId(0)});
  ScheduleOptions norm{.topology = StraightPipeline(2)};
  norm.global_norm = true;
  for (const BadOptions& bad :
       {BadOptions{"1f1b", {StraightPipeline(2), 4}, {0, 6}, "not a whole number of steps of 4"},
        {"1f1b", {StraightPipeline(2), 4}, {0, 0}, "at least one microbatch"},
        {"1f1b", {StraightPipeline(2), 4}, {-4, 4}, "at least one microbatch"},
        {"1f1b", {StraightPipeline(2), 0}, {0, 4}, "at least 1 microbatch"},
        {"1f1b", {Topology(), 4}, {0, 4}, "at least one stage"},
        {"gpipe",
         {looped, 4},
         {0, 4},
         "gpipe: expected one stage on each worker, but the plan has "
         "3 stages on 2 workers"},
        {"interleaved-1f1b", {looped, 4}, {0, 4}, "the same number of stages, two or more"},
        {"interleaved-1f1b", {StraightPipeline(2), 4}, {0, 4}, "two or more, on each worker"},
        {"interleaved-1f1b", {VPipeline(2), 4}, {0, 4}, "stage 2 belongs on worker 0"},
        {"interleaved-1f1b", {LoopedPipeline(4, 2), 5}, {0, 5}, "got 5; 4 or 6 would do"},
        {"interleaved-1f1b", {LoopedPipeline(6, 3), 2}, {0, 2}, "got 2; 3 would do"},
        {"zb-v", {StraightPipeline(4), 4}, {0, 4}, "zb-v: expected two stages on each worker"},
        {"local-sgd", {ReplicatedPipelines(2, 3), 5}, {0, 5}, "replicas; got 5; 3 or 6 would do"},
        {"local-sgd", {ReplicatedPipelines(2, 3), 2}, {0, 2}, "got 2; 3 would do"},
        {"local-sgd", {ReplicatedPipelines(2, 3), 6}, {0, 9}, "a whole number of steps of 6"},
        {"local-sgd",
         {LoopedPipeline(4, 2), 4},
         {0, 4},
         "one stage of each replica on each worker"},
        {"local-sgd",
         {ReplicatedPipelines(2, 2), 4, &Weights::kStash},
         {0, 4},
         "the newest weights of its replica anyway"},
        {"1f1b", {ReplicatedPipelines(2, 2), 4}, {0, 4}, "1f1b needs 1 pipelines"},
        {"pipedream-2bw", {StraightPipeline(4), 3}, {0, 6}, "as there are stages, 4; got 3"},
        {"pipedream-2bw", {StraightPipeline(4), 4}, {0, 6}, "not a whole number of steps of 4"},
        {"1f1b", {StraightPipeline(2), 4, &Weights::kStash}, {0, 4}, "the same version anyway"},
        {"pipedream",
         {StraightPipeline(2), 1, &Weights::kDoubleBuffer},
         {0, 4},
         "an update per step"},
        {"paci",
         {StraightPipeline(2), 2, &Weights::kVerticalSync},
         {0, 4},
         "an update per microbatch"},
        {"gpipe",
         {StraightPipeline(2), 2, &Weights::kPredicted},
         {0, 4},
         "the same version anyway"},
        {"pipedream", norm, {0, 4}, "no moment with a gradient of the whole model"},
        {"pipedream", TiedOptions(3, 1), {0, 4}, "stages 0 and 2 cannot share parameters"}}) {
    EXPECT_THAT(BuildSchedule(**FindMethod(bad.method), bad.options, bad.range),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(std::string(bad.expected))));
  }
}

// What a stage carries from step to step (model/op.h) goes from the forward of a microbatch to that of the same place in
// the next step.
TEST(Catalog, ForwardsOfAStage_ComeStepByStep) {
  constexpr int64_t kSteps = 4;
  for (const Method& method : Methods()) {
    if (method.placement == Placement::kRoundTrip) continue;
    for (int32_t workers = 1; workers <= 5; ++workers) {
      for (const int64_t few : {1, 2, 5, 8}) {
        SCOPED_TRACE(testing::Message()
                     << std::string(method.name) << ", " << workers << " workers, " << few);
        const int64_t step = StepFor(method, workers, few);
        const Schedule schedule = CatalogSteps(method, workers, few, 0, kSteps);
        if (step % schedule.topology.pipelines != 0) continue;  // refused for replicas of a model
        std::map<std::pair<int32_t, int64_t>, int64_t> last;    // by stage and place in a step
        for (const Program& program : schedule.programs) {
          for (const Action& action : Expand(program)) {
            if (action.kind != ActionKind::kForward) continue;
            const std::pair<int32_t, int64_t> row = {action.stage().value,
                                                     action.microbatch % step};
            const auto before = last.find(row);
            EXPECT_EQ(action.microbatch / step,
                      before == last.end() ? 0 : before->second / step + 1);
            last[row] = action.microbatch;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace penstock
