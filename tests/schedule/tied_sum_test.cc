#include "schedule/tied_sum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "schedule/catalog/catalog.h"
#include "schedule/placements.h"
#include "schedule/verify.h"
#include "tests/schedule/schedules.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using Parts = std::vector<int32_t>;

// "later 3>1": by kind and stages. Of the first group.
std::vector<std::string> TextOf(const Topology& topology, const TiedSum& sum) {
  constexpr const char* kNames[] = {"later", "first", "whole"};
  std::vector<std::string> texts;
  for (const TiedMessage& message : MessagesOf(topology, topology.groups.back(), sum)) {
    texts.push_back(absl::StrCat(kNames[static_cast<int>(message.kind)], " ", message.from.value,
                                 ">", message.to.value));
  }
  return texts;
}

TEST(TiedSum, GoesFromTheLastPartToTheFirstAndBackToAll) {
  Topology topology = StraightPipeline(5);
  TieParts(topology, std::vector<Parts>{{0, 1, 3, 4}});
  EXPECT_THAT(topology.groups[0].stages,
              ElementsAre(StageId(0), StageId(1), StageId(3), StageId(4)));
  EXPECT_THAT(
      TextOf(topology, {.parts = {0, 1, 3, 4}}),
      ElementsAre("later 4>3", "later 3>1", "later 1>0", "whole 0>1", "whole 0>3", "whole 0>4"));
  EXPECT_THAT(TextOf(topology, {.parts = {1, 4}}), ElementsAre("later 4>1", "whole 1>4"))
      << "others of the group have no part in this sum";
  EXPECT_THAT(TextOf(topology, {.parts = {1, 4}, .exchanges = true}),
              ElementsAre("later 4>1", "first 1>4"));
}

TEST(TiedSum, PartsOfOneWorker_GetTheWholeOnce) {
  Topology topology = LoopedPipeline(4, 2);  // stages 0 and 2 on worker 0
  TieParts(topology, std::vector<Parts>{{0, 1, 2, 3}});
  EXPECT_THAT(
      TextOf(topology, {.parts = {0, 1, 2, 3}}),
      ElementsAre("later 3>2", "later 2>1", "later 1>0", "whole 0>1", "whole 0>2", "whole 1>3"));
}

TEST(TiedSum, Replicas_GetItInTurnFromThoseThatHaveIt) {
  Topology topology = ReplicatedStages({2, 1, 3}, ReduceGroup::Operation::kSum);
  TieParts(topology, std::vector<Parts>{{0, 1, 2}});
  EXPECT_THAT(TextOf(topology, {.parts = {0, 1, 2}}),
              ElementsAre("later 3>2", "later 2>0", "later 2>1", "whole 0>2", "whole 0>3",
                          "whole 1>4", "whole 0>5"));
}

TEST(TiedSum, ThereAndBack_IsBetweenTheStagesThatMakeUpdates) {
  Topology topology = RoundTripPipelines(3, 5, 10);
  TieParts(topology, std::vector<Parts>{{0, 2}});
  for (const StageId stage : topology.groups.back().stages) {
    EXPECT_TRUE(topology[stage].updates);
  }
  const std::vector<TiedMessage> messages =
      MessagesOf(topology, topology.groups.back(), {.parts = {0, 2}});
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_EQ(topology[messages[0].from].part, 2) << "though the backward of part 0 is later";
  EXPECT_EQ(topology[messages[0].to].part, 0);
}

// Whatever parts share, with several groups for some stages.
TEST(TiedParts, OfAnyParts_AreVerifiedByEveryMethodThatDrains) {
  for (const Method& method : Methods()) {
    if (!method.synchronous) continue;
    const int32_t workers = 4;
    const int64_t step = StepFor(method, workers, 8);
    for (const std::vector<Parts>& sharing : {std::vector<Parts>{{0, 1}},
                                              {{1, 2}},
                                              {{0, 1, 2, 3}},
                                              {{0, 2}, {1, 3}},
                                              {{1, 2}, {0, 3}},
                                              {{0, 1, 3}, {1, 2}, {2, 3}}}) {
      SCOPED_TRACE(method.name);
      ScheduleOptions options{.topology = PlacedOn(method, workers, step),
                              .microbatches_per_step = step};
      TieParts(options.topology, sharing);
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const Schedule schedule,
                                    BuildSchedule(method, options, {0, 2 * step}));
      EXPECT_THAT(Verify(schedule), IsOk()) << sharing.size() << " groups a pipeline";
    }
  }
}

TEST(TiedParts, OfReplicasOfTheModel_NeverWaitForEachOther) {
  const Method& method = **FindMethod("local-sgd");
  for (int32_t stages = 2; stages <= 9; ++stages) {
    for (const int32_t replicas : {2, 3, stages, 2 * stages}) {
      for (int32_t first = 0; first < stages; ++first) {
        for (int32_t last = first + 1; last < stages; ++last) {
          ScheduleOptions options{.topology = ReplicatedPipelines(stages, replicas),
                                  .microbatches_per_step = 4 * replicas};
          Parts parts;
          for (int32_t part = first; part <= last; ++part) parts.push_back(part);
          TieParts(options.topology, std::vector<Parts>{parts});
          PENSTOCK_ASSERT_OK_AND_ASSIGN(
              const Schedule schedule,
              BuildSchedule(method, options, {0, options.microbatches_per_step}));
          EXPECT_THAT(Verify(schedule), IsOk()) << stages << " stages, " << replicas
                                                << " replicas, parts " << first << " to " << last;
        }
      }
    }
  }
}

}  // namespace
}  // namespace penstock
