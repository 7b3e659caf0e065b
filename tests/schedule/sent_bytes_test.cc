#include "schedule/sent_bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "schedule/catalog/catalog.h"
#include "tests/schedule/schedules.h"

namespace penstock {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr double kBoundary = 100.0;

TEST(SentBytes, StraightPipeline_SendsActivationsDownAndGradientsUp) {
  for (const char* method : {"gpipe", "1f1b", "zb-h1", "pipedream", "paci"}) {
    // 2 steps of 4 microbatches.
    const Schedule schedule = CatalogSchedule(method, 3, 4, {0, 8});
    EXPECT_THAT(SentBytesOf(schedule, {.boundary = kBoundary}),
                ElementsAre(8 * kBoundary, 2 * 8 * kBoundary, 8 * kBoundary))
        << method;
  }
}

TEST(SentBytes, LongRange_IsSoManyTimesAStep) {
  for (const char* method : {"1f1b", "pipedream"}) {
    const Schedule schedule = CatalogSchedule(method, 2, 4, {0, 4'000'000});
    EXPECT_THAT(SentBytesOf(schedule, {.boundary = kBoundary}), Each(4'000'000 * kBoundary))
        << method;
  }
}

// Stages 0 and 3 are on worker 0, and 1 and 2, which send each other nothing, on worker 1.
TEST(SentBytes, StagesOfOneWorker_SendEachOtherNothing) {
  const Schedule schedule = CatalogSchedule("zb-v", 2, 4, {0, 4});
  EXPECT_THAT(SentBytesOf(schedule, {.boundary = kBoundary}), Each(2 * 4 * kBoundary));
}

TEST(SentBytes, OneWorker_SendsNothing) {
  EXPECT_THAT(SentBytesOf(CatalogSchedule("1f1b", 1, 4, {0, 4}), {.boundary = kBoundary}),
              ElementsAre(0.0));
}

TEST(SentBytes, Replicas_SendTheirPartsAndThenTheSum) {
  const Method& method = **FindMethod("1f1b");
  const ScheduleOptions options{.topology = PlaceReplicas(method, {3}).value(),
                                .microbatches_per_step = 6};
  const Schedule schedule = BuildSchedule(method, options, {0, 12}).value();
  // Two updates, and in each to both others their part, and then the own sum.
  const Traffic traffic = {.boundary = kBoundary,
                           .groups = {{.buckets = {{.parts = {10.0, 20.0, 30.0}}}}}};
  EXPECT_THAT(SentBytesOf(schedule, traffic),
              ElementsAre(2 * (20.0 + 30.0 + 2 * 10.0), 2 * (10.0 + 30.0 + 2 * 20.0),
                          2 * (10.0 + 20.0 + 2 * 30.0)));
}

TEST(SentBytes, Norms_GoToAllOthersOnceAStep) {
  const Method& method = **FindMethod("1f1b");
  const ScheduleOptions options{
      .topology = PlacedOn(method, 3, 4), .microbatches_per_step = 4, .global_norm = true};
  const Schedule schedule = BuildSchedule(method, options, {0, 20}).value();
  EXPECT_THAT(SentBytesOf(schedule, {.norms = {8.0, 24.0, 0.0}}),
              ElementsAre(5 * 2 * 8.0, 5 * 2 * 24.0, 0.0));
}

}  // namespace
}  // namespace penstock
