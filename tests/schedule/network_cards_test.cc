#include "schedule/network_cards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "schedule/catalog/catalog.h"
#include "schedule/simulate.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

constexpr double kByteInANs = 1e9;

TEST(NetworkCards, Messages_GoOutOneAfterTheOther) {
  NetworkCards cards(2, kByteInANs);
  EXPECT_EQ(cards.Leave(WorkerId(0), 100, 5), 5);
  EXPECT_EQ(cards.Leave(WorkerId(0), 100, 50), 105);
  EXPECT_EQ(cards.Leave(WorkerId(1), 100, 50), 50);
  EXPECT_EQ(cards.Leave(WorkerId(0), 100, 300), 300);
}

TEST(NetworkCards, Messages_ComeInAsTheyAreTaken) {
  NetworkCards cards(1, kByteInANs);
  const WorkerId to(0);
  EXPECT_EQ(cards.Arrive(to, 100, 0), 100);
  EXPECT_EQ(cards.Arrive(to, 100, 0), 200);    // both were sent at once
  EXPECT_EQ(cards.Arrive(to, 100, 500), 600);  // nothing else is under way
  EXPECT_EQ(cards.Arrive(to, 100, 150), 300);  // had time before the last one
  EXPECT_EQ(cards.Arrive(to, 250, 250), 650);  // 200 of it before, the rest after
  EXPECT_EQ(cards.Arrive(to, 0, 250), 250);
}

// A byte takes the first nanosecond, from when it was sent on, that no message before has taken.
TEST(NetworkCards, RandomMessages_TakeTheFirstFreeTime) {
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    NetworkCards cards(1, kByteInANs);
    std::set<int64_t> taken;
    for (int message = 0; message < 60; ++message) {
      const int64_t left_ns = static_cast<int64_t>(random() % 400);
      const int64_t bytes = static_cast<int64_t>(random() % 12);
      int64_t there_ns = left_ns;
      for (int64_t byte = 0; byte < bytes; ++byte) {
        while (taken.contains(there_ns)) ++there_ns;
        taken.insert(there_ns++);
      }
      ASSERT_EQ(cards.Arrive(WorkerId(0), static_cast<double>(bytes), left_ns), there_ns)
          << "round " << round << ", message " << message;
    }
  }
}

SimulationCosts CostsOver(double bytes_per_second) {
  return {.worker_links = WorkerLinks{.card_bytes_per_second = bytes_per_second}};
}

absl::StatusOr<SimulationResult> SimulateOver(absl::string_view name, const Topology& topology,
                                              int64_t step, int64_t count,
                                              const SimulationCosts& costs) {
  const absl::StatusOr<const Method*> method = FindMethod(name);
  if (!method.ok()) return method.status();
  const absl::StatusOr<Schedule> schedule =
      BuildSchedule(**method, {.topology = topology, .microbatches_per_step = step},
                    {.first = 0, .count = count});
  if (!schedule.ok()) return schedule.status();
  return Simulate(*schedule, costs);
}

// The least that an all-reduce of P bytes takes: 2 (r-1)/r P of each card.
TEST(SimulateOverCards, DataParallelism_TakesItsPassesAndTheAllReduce) {
  for (const int32_t replicas : {2, 3, 4, 7}) {
    SimulationCosts costs = CostsOver(1e9);
    costs.traffic.groups = {
        {.buckets = {{.parts = std::vector<double>(replicas, 4.2e9 / replicas)}}}};
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        const SimulationResult result,
        SimulateOver("gpipe", ReplicatedStages({replicas}, ReduceGroup::Operation::kSum), replicas,
                     replicas * 5, costs));
    const double reduction = 2.0 * (replicas - 1) / replicas * 4.2;
    EXPECT_NEAR(result.makespan_s, 5 * (2.0 + reduction), 1e-6) << replicas;
  }
}

// Down a straight pipeline there is one message at a time each way, so a card is as good as a link.
TEST(SimulateOverCards, EndsOfAStraightPipeline_AreAsFastAsOverALink) {
  for (const std::string name : {"gpipe", "1f1b", "pipedream"}) {
    SimulationCosts costs = CostsOver(1e9);
    costs.traffic.boundary = 3e8;
    SimulationCosts by_link = {.worker_links = WorkerLinks()};
    by_link.worker_links->others.bytes_per_second = 1e9;
    by_link.traffic.boundary = 3e8;
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationResult got,
                                  SimulateOver(name, StraightPipeline(2), 6, 18, costs));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationResult expected,
                                  SimulateOver(name, StraightPipeline(2), 6, 18, by_link));
    EXPECT_EQ(got.makespan_s, expected.makespan_s) << name;
    // A worker between two others shares its card between an activation and a gradient.
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationResult longer,
                                  SimulateOver(name, StraightPipeline(4), 6, 18, costs));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationResult longer_by_link,
                                  SimulateOver(name, StraightPipeline(4), 6, 18, by_link));
    EXPECT_GE(longer.makespan_s, longer_by_link.makespan_s) << name;
  }
}

// Times are bounded before they are added up, by everything one after the other. A message that waits for its card waits for
// others that count for themselves, so the bound of 200 years must not count a card once for each worker: this step takes days.
TEST(SimulateOverCards, ManyWorkersOnSlowCards_AreSimulated) {
  constexpr int64_t kStages = 64, kMicrobatches = 64;
  constexpr double kMessageS = 1000;
  SimulationCosts costs = CostsOver(1.0);
  costs.traffic.boundary = kMessageS;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const SimulationResult result,
      SimulateOver("gpipe", StraightPipeline(kStages), kMicrobatches, kMicrobatches, costs));
  // Each way the first message passes all cards, and the others follow on the last one.
  const double least_s = 2 * (kStages - 1 + kMicrobatches - 1) * kMessageS;
  EXPECT_GE(result.makespan_s, least_s);
  EXPECT_LE(result.makespan_s, 1.01 * least_s);
}

// All replicas send to one worker: the links would carry three messages at once, its card does not.
TEST(SimulateOverCards, ReplicasThatFeedOneWorker_ShareItsCard) {
  const Topology topology = ReplicatedStages({3, 1}, ReduceGroup::Operation::kMean);
  constexpr double kMessageS = 100;  // the passes of a microbatch take 2
  SimulationCosts costs = CostsOver(1e6);
  costs.traffic.boundary = kMessageS * 1e6;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationResult shared,
                                SimulateOver("pipedream", topology, 3, 240, costs));
  EXPECT_GE(shared.steady_state_period_s, kMessageS);
  SimulationCosts by_link = {.worker_links = WorkerLinks()};
  by_link.worker_links->others.bytes_per_second = 1e6;
  by_link.traffic = costs.traffic;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationResult apart,
                                SimulateOver("pipedream", topology, 3, 240, by_link));
  EXPECT_LT(apart.steady_state_period_s, kMessageS);
}

TEST(SimulateOverCards, CardsThatCarryNothing_AreRefused) {
  EXPECT_THAT(SimulateOver("gpipe", StraightPipeline(2), 2, 2, CostsOver(0)).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr("network cards")));
}

}  // namespace
}  // namespace penstock
