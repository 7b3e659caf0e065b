// The search for schedules: its clock against the simulator, its bound, and what it finds for random costs.
#include "schedule/search.h"

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "base/random.h"
#include "schedule/catalog/catalog.h"
#include "schedule/search/bound.h"
#include "schedule/search/list_scheduling.h"
#include "schedule/search/step_clock.h"
#include "schedule/verify.h"
#include "tests/schedule/schedules.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

// A training step with random costs. Times differ by up to about a factor of 4.
struct RandomStep {
  Topology topology;
  int64_t microbatches = 0;
  SearchOptions options;
};

// What a worker may keep: from what 1F1B keeps to twice as much (`room` 0 to 1; below 0: random for each).
enum class Memory { kOfTheFirstWorker, kOfEachWorker };

RandomStep MakeRandomStep(uint64_t number, Memory memory, double room) {
  RandomStream random(number, 1);
  const auto stages = static_cast<int32_t>(2 + random.Below(7));
  RandomStep step{.topology = StraightPipeline(stages),
                  .microbatches = static_cast<int64_t>(stages + random.Below(3 * stages + 1))};
  const auto time = [&random] { return 1.0 + 3.0 * random.Uniform(); };
  for (int32_t s = 0; s < stages; ++s) {
    step.options.costs.stages.push_back({time(), time(), time(), 0.0});
    if (s + 1 < stages) step.options.costs.links.push_back({.latency_s = time() / 4});
    const int64_t least = memory == Memory::kOfEachWorker ? stages - s : stages;
    const auto more = room < 0 ? static_cast<int64_t>(random.Below(least + 1))
                               : static_cast<int64_t>(room * static_cast<double>(least));
    step.options.activations_max.push_back(least + more);
  }
  step.options.seed = number;
  step.options.channel_capacity = 64;
  return step;
}

// The best of the catalog as the simulator and the verifier see it, with the gradients sent early and not.
double BestOfCatalog(const RandomStep& step) {
  double best = 1e300;
  for (const Method& method : Methods()) {
    for (const bool early : {false, true}) {
      const ScheduleOptions options{.topology = step.topology,
                                    .microbatches_per_step = step.microbatches,
                                    .send_gradient_early = early};
      const MicrobatchRange range{0, step.microbatches};
      if (!method.synchronous || !CheckBuildable(method, options, range).ok()) continue;
      const Schedule schedule = BuildSchedule(method, options, range).value();
      const VerifyReport report = Verify(schedule).value();
      bool fits = true;
      for (int32_t s = 0; s < step.topology.stages(); ++s) {
        fits = fits && report.stages[s].activations_peak <= step.options.activations_max[s];
      }
      if (!fits) continue;
      const auto result = Simulate(schedule, step.options.costs,
                                   {.channel_capacity = step.options.channel_capacity});
      best = std::min(best, result.value().makespan_s);
    }
  }
  return best;
}

struct Figures {
  int sets = 0;
  int slower = 0;
  int faster = 0;
  std::vector<double> gaps;   // over the bound
  std::vector<double> gains;  // of the catalog's best over the searched

  static double Quantile(std::vector<double> values, double q) {
    std::sort(values.begin(), values.end());
    return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1))];
  }
  std::string ToString() const {
    return absl::StrFormat(
        "%d sets: slower than the catalog %d, faster %d; gap median %.2f %%, 90 %% %.2f %%, max %.2f "
        "%%; catalog longer by median %.1f %%",
        sets, slower, faster, 100 * Quantile(gaps, 0.5), 100 * Quantile(gaps, 0.9),
        100 * Quantile(gaps, 1), 100 * Quantile(gains, 0.5));
  }
};

Figures SearchMany(int sets, Memory memory, double room, int64_t moves) {
  Figures figures;
  for (int i = 0; i < sets; ++i) {
    RandomStep step = MakeRandomStep(i, memory, room);
    step.options.moves = moves;
    const SearchResult found =
        SearchSchedule(step.topology, step.microbatches, step.options).value();
    const VerifyReport report = Verify(found.schedule).value();
    for (int32_t s = 0; s < step.topology.stages(); ++s) {
      EXPECT_LE(report.stages[s].activations_peak, step.options.activations_max[s]);
      EXPECT_EQ(report.stages[s].versions_peak, 1);
    }
    const auto simulated = Simulate(found.schedule, step.options.costs,
                                    {.channel_capacity = step.options.channel_capacity});
    EXPECT_DOUBLE_EQ(simulated.value().makespan_s, found.makespan_s);
    EXPECT_LE(found.bound_s, found.makespan_s);
    const double catalog = BestOfCatalog(step);
    ++figures.sets;
    if (found.makespan_s > catalog + 1e-12) ++figures.slower;
    if (found.makespan_s < catalog - 1e-12) ++figures.faster;
    figures.gaps.push_back(found.gap());
    figures.gains.push_back(catalog / found.makespan_s - 1);
  }
  return figures;
}

int EnvironmentNumber(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  int value = 0;
  return text != nullptr && absl::SimpleAtoi(text, &value) ? value : otherwise;
}

// SEARCH_SETS=200 SEARCH_MOVES=200000 gives the figures of the documentation.
TEST(SearchSchedule, RandomCosts_NeverSlowerThanTheCatalogAndOftenFaster) {
  const int sets = EnvironmentNumber("SEARCH_SETS", 12);
  const int moves = EnvironmentNumber("SEARCH_MOVES", 10'000);
  struct Case {
    const char* name;
    Memory memory;
    double room;
  };
  for (const Case& one : {Case{"memory 1 to 2 times that of 1f1b's first worker", Memory::kOfTheFirstWorker, -1},
                          {"memory 1 to 2 times that of 1f1b's same worker", Memory::kOfEachWorker, -1},
                          {"memory of 1f1b's first worker", Memory::kOfTheFirstWorker, 0},
                          {"twice that", Memory::kOfTheFirstWorker, 1},
                          {"memory of 1f1b's same worker", Memory::kOfEachWorker, 0},
                          {"one and a half times that", Memory::kOfEachWorker, 0.5},
                          {"twice that", Memory::kOfEachWorker, 1}}) {
    const Figures figures = SearchMany(sets, one.memory, one.room, moves);
    std::cout << one.name << ": " << figures.ToString() << std::endl;
    EXPECT_EQ(figures.slower, 0);
    EXPECT_GE(2 * figures.faster, one.room == 0 ? 0 : figures.sets);
    EXPECT_LE(Figures::Quantile(figures.gaps, 0.5), one.room == 1 ? 0.03 : 1.0);
  }
}

}  // namespace
}  // namespace penstock
