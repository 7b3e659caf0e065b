// Histories of a whole cluster (world.h), each drawn from a seed.
//
// PENSTOCK_SIMULATION_SEED=N is the first seed, PENSTOCK_SIMULATION_COUNT=N how many there are (of a given seed: 1).
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "coordinator/job_state.h"
#include "tests/simulation/world.h"

namespace penstock {
namespace {

constexpr uint64_t kHistories = 500;

uint64_t NumberOf(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

std::string Describe(uint64_t seed, const Outcome& outcome) {
  std::string text = outcome.last_lines + "\n";
  for (const std::string& violation : outcome.violations)
    text += "seed violates: " + violation + "\n";
  return text + "To see it again: PENSTOCK_SIMULATION_SEED=" + std::to_string(seed) +
         " PENSTOCK_SIMULATION_COUNT=1 build/release/tests/simulation/simulation_world_test "
         "--gtest_filter=SimulationWorld.Histories*";
}

std::string Summary(uint64_t count, const Outcome& all) {
  std::string text =
      absl::StrCat(count, " histories: ", all.recoveries, " recoveries, ", all.snapshot_starts,
                   " of them from memory, ", all.commits, " checkpoints");
  for (const auto& [state, jobs] : all.states) {
    absl::StrAppend(&text, ", ", jobs, " ", JobStateName(state));
  }
  for (const auto& [fault, times] : all.faults) absl::StrAppend(&text, ", ", times, " ", fault);
  return text;
}

TEST(SimulationWorld, Histories_KeepEveryPromise) {
  const uint64_t first = NumberOf("PENSTOCK_SIMULATION_SEED", 0);
  const uint64_t count = NumberOf("PENSTOCK_SIMULATION_COUNT",
                                  std::getenv("PENSTOCK_SIMULATION_SEED") ? 1 : kHistories);
  Outcome all;
  uint64_t failed = 0;
  for (uint64_t seed = first; seed < first + count && failed < 3; ++seed) {
    const Outcome outcome = World(seed).Run();
    failed += outcome.violations.empty() ? 0 : 1;
    EXPECT_TRUE(outcome.violations.empty()) << Describe(seed, outcome);
    for (const auto& [state, jobs] : outcome.states) all.states[state] += jobs;
    for (const auto& [fault, times] : outcome.faults) all.faults[fault] += times;
    all.recoveries += outcome.recoveries;
    all.snapshot_starts += outcome.snapshot_starts;
    all.commits += outcome.commits;
  }
  std::cout << Summary(count, all) << "\n";
  if (failed > 0 || count < kHistories) return;
  // The histories reach what they are for.
  EXPECT_GT(all.states[v1::JOB_STATE_SUCCEEDED], 0);
  EXPECT_GT(all.states[v1::JOB_STATE_FAILED], 0);
  EXPECT_GT(all.states[v1::JOB_STATE_CANCELLED], 0);
  EXPECT_GT(all.recoveries, 0);
  EXPECT_GT(all.snapshot_starts, 0);
  EXPECT_GT(all.commits, 0);
  EXPECT_EQ(all.faults.size(), 15u);
}

TEST(SimulationWorld, SameSeed_HasTheSameHistory) {
  for (const uint64_t seed : {1, 17, 99}) {
    EXPECT_EQ(World(seed).Run().fingerprint, World(seed).Run().fingerprint) << "seed " << seed;
  }
}

}  // namespace
}  // namespace penstock
