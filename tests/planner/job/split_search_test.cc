// Searches for the best placement of a candidate's stages against all placements, one by one.
#include "planner/job/split_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "planner/job/plan_job.h"
#include "tests/planner/job/planning_input.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

// Of 5 or 7 layers, in few and small microbatches.
std::string RandomJob(RandomStream& random) {
  return absl::StrCat(R"(name: random
model:
  gpt: {layers: )",
                      1 + random.Below(2), R"(, width: 8, heads: 1, context: 4, tied_head: )",
                      random.Below(4) == 0 ? "true" : "false", R"(}
data:
  text: {path: input.txt, tokenizer: bytes}
training:
  steps: 100
  batch: 4
  microbatches: 4
  optimizer: {adamw: {learning_rate: 1.0e-3}}
)");
}

// Hosts are of two kinds, so that some are alike.
Cluster RandomCluster(RandomStream& random, int workers) {
  const auto bandwidth = [&] {
    return random.Below(2) == 0 ? kInfinity : 1e5 * static_cast<double>(1 + random.Below(10));
  };
  const auto latency = [&] { return random.Below(2) == 0 ? 0.0 : 1e-3; };
  std::vector<PlanHost> kinds;
  kinds.reserve(2);
  for (int kind = 0; kind < 2; ++kind) {
    kinds.push_back({.nic_bytes_per_second = bandwidth(),
                     .inside_bytes_per_second = bandwidth(),
                     .nic_latency_s = latency(),
                     .inside_latency_s = latency()});
  }
  Cluster cluster;
  const int hosts = 1 + static_cast<int>(random.Below(3));
  for (int host = 0; host < hosts; ++host) {
    cluster.hosts.push_back(kinds[random.Below(2)]);
    cluster.hosts.back().name = absl::StrCat("host-", host);
    for (int other = 0; other < host; ++other) {
      if (random.Below(3) != 0) continue;
      cluster.paths.push_back(
          {.from = other, .to = host, .bytes_per_second = 1e5, .latency_s = latency()});
    }
  }
  cluster.full_duplex = random.Below(4) != 0;
  const bool has_limits = random.Below(3) == 0;
  const bool is_alike = random.Below(2) == 0;
  for (int worker = 0; worker < workers; ++worker) {
    cluster.workers.push_back(
        {.name = absl::StrCat("worker-", worker),
         .host = static_cast<int>(random.Below(cluster.hosts.size())),
         .speed = is_alike ? 1.0 : 0.5 * static_cast<double>(1 + random.Below(4)),
         .memory_bytes =
             has_limits ? 1'000 * static_cast<double>(4 + random.Below(40)) : kInfinity});
  }
  return cluster;
}

PlanningInput RandomInput(RandomStream& random) {
  std::map<std::string, double> slow;
  for (const char* const layer : {"embedding", "h.0.attention", "h.0.mlp", "h.1.attention",
                                  "h.1.mlp", "final_norm", "head"}) {
    slow[layer] = 0.25 * static_cast<double>(1 + random.Below(12));
  }
  const int workers = 1 + static_cast<int>(random.Below(4));
  const std::string job = RandomJob(random);
  return InputOf(job, RandomCluster(random, workers), slow);
}

// Every order of some of the workers, and every cut of the layers.
void ForEachPlacement(const CandidateJudge& judge,
                      const std::function<void(const StagePlacement&)>& visit) {
  const int layers = judge.job().model.size();
  const int parts = judge.topology().parts();
  std::vector<std::vector<LayerRange>> cuts;
  for (unsigned chosen = 0; chosen < 1u << (layers - 1); ++chosen) {
    std::vector<LayerRange> ranges = {{0, 1}};
    for (int layer = 1; layer < layers; ++layer) {
      if ((chosen >> (layer - 1) & 1u) != 0) {
        ranges.push_back({layer, 1});
      } else {
        ++ranges.back().count;
      }
    }
    if (static_cast<int>(ranges.size()) == parts) cuts.push_back(ranges);
  }
  std::vector<int> all(judge.input().cluster.size());
  std::iota(all.begin(), all.end(), 0);
  std::vector<int> before;
  do {
    std::vector<int> workers(all.begin(), all.begin() + judge.topology().workers);
    // Permutations of the rest come to the same.
    if (workers == before) continue;
    before = workers;
    for (const std::vector<LayerRange>& layers_of_stages : cuts) {
      visit({.workers = workers, .layers = layers_of_stages});
    }
  } while (std::next_permutation(all.begin(), all.end()));
}

struct BestOfAll {
  double step_s = kInfinity;
  int64_t bytes = std::numeric_limits<int64_t>::max();
};

BestOfAll BruteForce(const CandidateJudge& judge) {
  BestOfAll best;
  std::vector<int> of_times;
  v1::DeviceTimes times;
  ForEachPlacement(judge, [&](const StagePlacement& placement) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::vector<WorkerMemory> memory,
                                  judge.Memory(placement.layers));
    if (!judge.CheckMemory(memory, placement.workers).ok()) return;
    if (of_times != placement.workers) times = judge.TimesOn(placement.workers);
    of_times = placement.workers;
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const double step_s, judge.StepSeconds(times, placement.layers));
    best.step_s = std::min(best.step_s, step_s);
    best.bytes = std::min(best.bytes, MostBytes(memory));
  });
  return best;
}

SearchEffort Endless() {
  return {.placements = std::numeric_limits<int64_t>::max(), .budget = Unlimited()};
}

TEST(SplitSearch, RandomCandidates_EqualTheBestOfAllPlacements) {
  RandomStream random(/*seed=*/5, /*purpose=*/0);
  int compared = 0;
  int impossible = 0;
  while (compared < 1'000) {
    const PlanningInput input = RandomInput(random);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::vector<Candidate> candidates,
                                  EnumerateCandidates(input, {}, Unlimited()));
    const Candidate& candidate = candidates[random.Below(candidates.size())];
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const CandidateJudge judge, CandidateJudge::Of(input, candidate));
    if (!judge.may_run() || judge.searches_order()) continue;
    SCOPED_TRACE(absl::StrCat(compared, ": ", NameOf(candidate)));
    const BestOfAll expected = BruteForce(judge);
    SearchEffort effort = Endless();
    const SplitSearchResult fastest = SearchShortestStep(judge, kInfinity, effort);
    const SplitSearchResult smallest =
        SearchLeastMemory(judge, std::numeric_limits<int64_t>::max(), effort);
    EXPECT_TRUE(fastest.is_complete && smallest.is_complete);
    ASSERT_EQ(fastest.best.has_value(), expected.step_s < kInfinity);
    ASSERT_EQ(smallest.best.has_value(), fastest.best.has_value());
    ++compared;
    if (!fastest.best.has_value()) {
      ++impossible;
      continue;
    }
    EXPECT_DOUBLE_EQ(fastest.best->step_s, expected.step_s);
    EXPECT_EQ(smallest.best->most_memory(), expected.bytes);
    EXPECT_LE(StepBoundSeconds(judge), expected.step_s);
    // Nothing is better than the best.
    EXPECT_FALSE(SearchShortestStep(judge, expected.step_s, effort).best.has_value());
  }
  EXPECT_GT(impossible, 10);
}

// Another order could be shorter, so that nothing is proven of a placement but by its bound.
TEST(SplitSearch, OrdersThatAreSearched_AreAboveTheBoundAndAtLeastAsFastAs1F1B) {
  RandomStream random(/*seed=*/7, /*purpose=*/0);
  int compared = 0;
  int unproven = 0;
  while (compared < 40) {
    const PlanningInput input = RandomInput(random);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        const std::vector<Candidate> candidates,
        EnumerateCandidates(input, {.methods = {"searched"}}, Unlimited()));
    if (candidates.empty()) continue;  // one worker
    Candidate candidate = candidates[random.Below(candidates.size())];
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const CandidateJudge judge, CandidateJudge::Of(input, candidate));
    if (!judge.may_run()) continue;
    SCOPED_TRACE(absl::StrCat(compared, ": ", NameOf(candidate)));
    SearchEffort effort = {.placements = 10, .budget = Unlimited()};
    const SplitSearchResult found = SearchShortestStep(judge, kInfinity, effort);
    if (!found.best.has_value()) continue;
    ++compared;
    unproven += !found.is_complete;
    EXPECT_GE(found.best->step_s, StepBoundSeconds(judge));
    candidate.method = "1f1b";
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const CandidateJudge plain, CandidateJudge::Of(input, candidate));
    const JudgedCandidate other =
        plain.Judge({.workers = found.best->workers, .layers = found.best->layers});
    if (other.runs()) {
      EXPECT_LE(found.best->step_s, other.step_s * (1 + 1e-9));
    }
  }
  EXPECT_GT(unproven, 20);
}

TEST(SplitSearch, PlansOfRandomJobs_EqualTheBestOfAllCandidatesAndPlacements) {
  RandomStream random(/*seed=*/6, /*purpose=*/0);
  for (int instance = 0; instance < 20; ++instance) {
    SCOPED_TRACE(instance);
    const PlanningInput input = RandomInput(random);
    const PlanJobOptions options = {.methods = {"gpipe", "zb-h1", "pipedream", "paci"}};
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const JobPlan plan, PlanJob(input, options, Unlimited()));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::vector<Candidate> candidates,
                                  EnumerateCandidates(input, options, Unlimited()));
    BestOfAll expected;
    for (const Candidate& candidate : candidates) {
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const CandidateJudge judge,
                                    CandidateJudge::Of(input, candidate));
      if (!judge.may_run()) continue;
      const BestOfAll best = BruteForce(judge);
      expected.step_s = std::min(expected.step_s, best.step_s);
      expected.bytes = std::min(expected.bytes, best.bytes);
    }
    ASSERT_TRUE(plan.fastest.has_value() || expected.step_s == kInfinity);
    if (!plan.fastest.has_value()) continue;
    EXPECT_TRUE(plan.is_fastest);
    EXPECT_TRUE(plan.is_smallest);
    // With memory that binds, stages that recompute by themselves may be better still.
    const JudgedCandidate& fastest = plan.candidates[*plan.fastest];
    if (fastest.candidate.recompute.places.empty()) {
      EXPECT_NEAR(fastest.step_s, expected.step_s, 2e-6 * expected.step_s);
    } else {
      EXPECT_LE(fastest.step_s, expected.step_s);
    }
    EXPECT_LE(plan.candidates[*plan.smallest].most_memory(), expected.bytes);
  }
}

TEST(SplitSearch, EffortThatEnds_SaysSo) {
  const PlanningInput input = InputOf(kPlannedJob, Alike(3));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const CandidateJudge judge,
      CandidateJudge::Of(input, {.method = "1f1b", .stages = 3, .microbatches = 8}));
  SearchEffort effort = {.placements = 3, .budget = Unlimited()};
  const SplitSearchResult result = SearchShortestStep(judge, kInfinity, effort);
  EXPECT_FALSE(result.is_complete);
  EXPECT_TRUE(result.best.has_value());
}

}  // namespace
}  // namespace penstock
