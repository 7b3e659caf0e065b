#include "planner/dawnpiper/stage_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "planner/graph/limits.h"
#include "tests/planner/dawnpiper/random_chain.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using Use = TensorUse;

// Three nodes of 1, 2 and 3 s forward, twice that backward, that save 10, 20 and 30 bytes.
NodeChain Three() {
  NodeChain chain;
  for (int node = 1; node <= 3; ++node) {
    chain.push_back({.forward_s = 1.0 * node,
                     .backward_s = 2.0 * node,
                     .weight_bytes = 100,
                     .state_bytes = 200,
                     .saved_bytes = 10.0 * node,
                     .boundary_bytes = 5});
  }
  return chain;
}

MemoryModel OneStage(int in_flight, double memory_bytes) {
  return {.places = {{.memory_bytes = memory_bytes, .in_flight = in_flight}}};
}

TEST(StageMemory, Places_HoldFewerMicrobatchesTowardsTheEnd) {
  const auto in_flight = [](const MemoryRule& rule) {
    std::vector<std::pair<int, double>> list;
    for (const StagePlace& place : PlacesOf1F1B(4, rule, 1)) {
      list.emplace_back(place.in_flight, place.versions);
    }
    return list;
  };
  using P = std::pair<int, double>;
  EXPECT_THAT(in_flight({}), ElementsAre(P(4, 4), P(3, 3), P(2, 2), P(1, 1)));
  EXPECT_THAT(in_flight({.versions = KeptVersions::kTwo, .in_flight_max = 3}),
              ElementsAre(P(3, 2), P(3, 2), P(2, 2), P(1, 1)));
  EXPECT_THAT(in_flight({.versions = KeptVersions::kOne, .in_flight_max = 2}),
              ElementsAre(P(2, 1), P(2, 1), P(2, 1), P(1, 1)));
}

TEST(StageMemory, EachUse_CostsWhatTheFormulaSays) {
  const NodeChain chain = Three();
  MemoryModel model = OneStage(4, kInfinity);
  model.places[0].versions = 2;
  model.host_bytes_per_second = 1;
  const StageMemory memory(chain, model);
  // 2 versions of 300, 600 of state, 4 times 60.
  EXPECT_EQ(memory.BytesOfAllKept(0, 3, 0), 600 + 600 + 240);
  EXPECT_EQ(memory.Charge(0, 3, 0, {Use::kKept, Use::kKept, Use::kKept}).seconds, 18);
  // The input of a stage that begins at node 1 counts for each microbatch.
  EXPECT_EQ(memory.BytesOfAllKept(1, 3, 0), 400 + 400 + 4 * (5 + 50));
  // Two runs, of 10 and of 30 bytes: the longer one is there once.
  const StageCharge1F1B two =
      memory.Charge(0, 3, 0, {Use::kRecomputed, Use::kKept, Use::kRecomputed});
  EXPECT_EQ(two.memory_bytes, 1200 + 4 * 20 + 30);
  EXPECT_EQ(two.seconds, 18 + 1 + 3);
  // One run of 50.
  const StageCharge1F1B one =
      memory.Charge(0, 3, 0, {Use::kKept, Use::kRecomputed, Use::kRecomputed});
  EXPECT_EQ(one.memory_bytes, 1200 + 4 * 10 + 50);
  // Copies of 10 bytes hide behind 18 s of work; those of 30 do not.
  const StageCharge1F1B hidden = memory.Charge(0, 3, 0, {Use::kSwapped, Use::kKept, Use::kKept});
  EXPECT_EQ(hidden.memory_bytes, 1200 + 2 * 10 + 4 * 50);
  EXPECT_EQ(hidden.seconds, 18);
  EXPECT_EQ(memory.Charge(0, 3, 0, {Use::kKept, Use::kKept, Use::kSwapped}).seconds, 30);
  // A faster worker computes and recomputes faster, and copies no faster.
  model.places[0].speed = 2;
  const StageMemory faster(chain, model);
  EXPECT_EQ(faster.Charge(0, 3, 0, {Use::kRecomputed, Use::kKept, Use::kKept}).seconds, 9.5);
  EXPECT_EQ(faster.Charge(0, 3, 0, {Use::kSwapped, Use::kKept, Use::kKept}).seconds, 10);
}

TEST(StageMemory, Choose_TakesTheCheapestThatFits) {
  NodeChain chain = Three();
  chain[1].forward_s = 0.1;  // the cheapest for its bytes
  MemoryModel model = OneStage(4, 900 + 4 * 60 - 20);
  EXPECT_THAT(StageMemory(chain, model).Choose(0, 3, 0).tensors,
              ElementsAre(Use::kKept, Use::kRecomputed, Use::kKept));
  // A swap that the work hides is cheaper still.
  model.host_bytes_per_second = 10;
  const StageCharge1F1B swapped = StageMemory(chain, model).Choose(0, 3, 0);
  EXPECT_EQ(swapped.Count(Use::kRecomputed), 0);
  EXPECT_EQ(swapped.seconds, StageMemory(chain, model).WorkS(0, 3));
  // What fits is kept, what never fits does not.
  model.places[0].memory_bytes = 900 + 4 * 60;
  EXPECT_EQ(StageMemory(chain, model).Choose(0, 3, 0).Count(Use::kKept), 3);
  model.places[0].memory_bytes = 900;
  EXPECT_FALSE(StageMemory(chain, model).Choose(0, 3, 0).fits());
  model.places[0].memory_bytes = 900 + 60;
  model.choice = TensorChoice::kWholeStage;
  EXPECT_EQ(StageMemory(chain, model).Choose(0, 3, 0).Count(Use::kRecomputed), 3);
  model.choice = TensorChoice::kNone;
  EXPECT_FALSE(StageMemory(chain, model).Choose(0, 3, 0).fits());
}

// With one microbatch in flight a tensor that is made again frees nothing by itself, but two that are not
// neighbours are not there together.
TEST(StageMemory, OneMicrobatchInFlight_FreesByShortRuns) {
  NodeChain chain(5, {.forward_s = 1, .backward_s = 2, .saved_bytes = 10});
  const StageMemory memory(chain, OneStage(1, 45));
  const StageCharge1F1B charge = memory.Choose(0, 5, 0);
  EXPECT_TRUE(charge.fits());
  EXPECT_LE(charge.memory_bytes, 45);
  EXPECT_EQ(charge.seconds, 15 + 2);
}

// All uses of up to 7 tensors: how far the choice by cost for each byte is from the best one.
TEST(StageMemory, Choose_AgainstAllUses) {
  RandomStream random(7, 1);
  int fit = 0;
  int equal = 0;
  int missed = 0;
  double worst = 1;
  double sum = 0;
  for (int round = 0; round < 400; ++round) {
    const int nodes = 2 + static_cast<int>(random.Below(6));
    const NodeChain chain = RandomNodes(random, nodes);
    MemoryModel model = RandomModel(random, chain, 4, random.Uniform());
    if (round % 2 == 0) model.host_bytes_per_second = 0;
    const int place = static_cast<int>(random.Below(4));
    double held = 0;
    double saved = 0;
    for (const ChainNode& node : chain) {
      held += node.weight_bytes + node.state_bytes;
      saved += node.saved_bytes;
    }
    model.places[place].memory_bytes =
        held + saved * (0.5 + (model.places[place].in_flight - 0.5) * random.Uniform());
    const StageMemory memory(chain, model);
    double best_s = kInfinity;
    const int kinds = model.host_bytes_per_second > 0 ? 3 : 2;
    std::vector<TensorUse> uses(nodes);
    while (true) {
      best_s = std::min(best_s, memory.Charge(0, nodes, place, uses).seconds);
      int at = 0;
      while (at < nodes && static_cast<int>(uses[at]) == kinds - 1) uses[at++] = Use::kKept;
      if (at == nodes) break;
      uses[at] = static_cast<TensorUse>(static_cast<int>(uses[at]) + 1);
    }
    const StageCharge1F1B chosen = memory.Choose(0, nodes, place);
    EXPECT_GE(chosen.seconds, best_s) << round;
    if (chosen.fits()) {
      EXPECT_LE(chosen.memory_bytes, model.places[place].memory_bytes) << round;
    }
    if (best_s == kInfinity) continue;
    ++fit;
    if (!chosen.fits()) {
      ++missed;
      continue;
    }
    if (chosen.seconds <= best_s * (1 + kMargin)) ++equal;
    worst = std::max(worst, chosen.seconds / best_s);
    sum += chosen.seconds / best_s;
  }
  EXPECT_GT(fit, 200);
  EXPECT_GT(equal, fit / 2);
  EXPECT_LT(missed, fit / 5);
  EXPECT_LT(worst, 2);
  EXPECT_LT(sum / (fit - missed), 1.1);
}

}  // namespace
}  // namespace penstock
