// Placements on clusters: what they are charged, and that the best is found.
#include "planner/graph/placement.h"

#include <gtest/gtest.h>

#include <functional>
#include <numeric>

#include "base/status.h"
#include "planner/graph/limits.h"
#include "planner/graph/placement_planner.h"
#include "planner/graph/stage_planner.h"
#include "tests/planner/graph/planner_test_support.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

Cluster RandomCluster(RandomStream& random, int workers) {
  Cluster cluster;
  cluster.full_duplex = random.Below(2) == 0;
  const int hosts = 1 + static_cast<int>(random.Below(workers));
  const auto bandwidth = [&] { return random.Below(4) == 0 ? kInfinity : 0.5 + random.Below(4); };
  for (int host = 0; host < hosts; ++host) {
    cluster.hosts.push_back({.name = "h" + std::to_string(host),
                             .nic_bytes_per_second = bandwidth(),
                             .inside_bytes_per_second = 2 * bandwidth()});
  }
  // Often alike, which is where the search leaves placements out.
  const bool alike = random.Below(2) == 0;
  const double memory = random.Below(2) == 0 ? kInfinity : 10 + 30 * random.Uniform();
  for (int worker = 0; worker < workers; ++worker) {
    cluster.workers.push_back(
        {.name = "w" + std::to_string(worker),
         .host = static_cast<int>(random.Below(hosts)),
         .speed = alike ? 1.0 : 0.5 * static_cast<double>(1 + random.Below(4)),
         .memory_bytes = alike || random.Below(2) == 0 ? memory : memory / 2});
  }
  if (alike && random.Below(2) == 0) {
    for (PlanHost& host : cluster.hosts) host = {host.name, 1.5, 6.0};
  }
  if (hosts > 1 && random.Below(3) == 0) {
    cluster.paths.push_back({.from = 0, .to = 1, .bytes_per_second = 0.25 + random.Uniform()});
  }
  return cluster;
}

// The model of planner/graph/placement.h written out again, by following the minibatches of one round one by
// one.
struct BruteCharge {
  double period_s = 0;
  double memory_bytes = 0;
};
struct BrutePlaced {
  uint32_t before = 0;  // layers of the stages before
  uint32_t layers = 0;
  std::vector<int> workers;
};
BruteCharge ChargeByHand(const LayerGraph& graph, const PlacementRequest& request,
                         const std::vector<BrutePlaced>& stages) {
  const Cluster& cluster = request.cluster;
  const size_t hosts = cluster.hosts.size();
  BruteCharge charge;
  int round = 1;
  for (const BrutePlaced& stage : stages) {
    round = std::lcm(round, static_cast<int>(stage.workers.size()));
  }
  // Bytes each way in one round.
  struct Traffic {
    std::vector<double> out_of_worker, into_worker, out_of_host, into_host, on_way;
  };
  const auto no_traffic = [&] {
    return Traffic{std::vector<double>(cluster.workers.size()),
                   std::vector<double>(cluster.workers.size()), std::vector<double>(hosts),
                   std::vector<double>(hosts), std::vector<double>(hosts * hosts)};
  };
  const auto send = [&](int from, int to, double bytes, Traffic& traffic) {
    const int a = cluster.workers[from].host;
    const int b = cluster.workers[to].host;
    if (a == b) {
      traffic.out_of_worker[from] += bytes;
      traffic.into_worker[to] += bytes;
    } else {
      traffic.out_of_host[a] += bytes;
      traffic.into_host[b] += bytes;
      traffic.on_way[a * hosts + b] += bytes;
    }
  };
  const auto longest = [&](const Traffic& traffic) {
    const auto of = [&](double one_way, double other_way, double rate) {
      return (cluster.full_duplex ? std::max(one_way, other_way) : one_way + other_way) / rate;
    };
    double seconds = 0;
    for (size_t w = 0; w < cluster.workers.size(); ++w) {
      seconds =
          std::max(seconds, of(traffic.out_of_worker[w], traffic.into_worker[w],
                               cluster.hosts[cluster.workers[w].host].inside_bytes_per_second));
    }
    for (size_t h = 0; h < hosts; ++h) {
      seconds = std::max(seconds, of(traffic.out_of_host[h], traffic.into_host[h],
                                     cluster.hosts[h].nic_bytes_per_second));
    }
    for (const HostPath& path : cluster.paths) {
      seconds =
          std::max(seconds, of(traffic.on_way[path.from * hosts + path.to],
                               traffic.on_way[path.to * hosts + path.from], path.bytes_per_second));
    }
    return seconds;
  };
  Traffic all = no_traffic();
  int behind = 0;
  for (size_t at = stages.size(); at-- > 0;) {
    const BrutePlaced& stage = stages[at];
    const int replicas = static_cast<int>(stage.workers.size());
    behind += replicas;
    LayerMemory sum;
    double forward_s = 0, work_s = 0, parameter_bytes = 0;
    for (size_t node = 0; node < graph.nodes.size(); ++node) {
      if (((stage.layers >> node) & 1) == 0) continue;
      forward_s += graph.nodes[node].forward_s;
      work_s += graph.nodes[node].work_s();
      parameter_bytes += graph.nodes[node].parameter_bytes;
      sum.weight_bytes += request.memory[node].weight_bytes;
      sum.state_bytes += request.memory[node].state_bytes;
      sum.stash_bytes += request.memory[node].stash_bytes;
    }
    int in_flight = 0;
    for (int worker = 0; worker < behind; worker += replicas) ++in_flight;
    in_flight = std::min(in_flight, request.rule.in_flight_max);
    int versions = 1;
    if (request.rule.versions == KeptVersions::kTwo && in_flight > 1) versions = 2;
    if (request.rule.versions == KeptVersions::kInFlight) versions = in_flight;
    const double input = at == 0 ? 0 : BytesOver(graph, stage.before);
    const double fixed = versions * sum.weight_bytes + sum.state_bytes;
    const double kept = fixed + in_flight * (input + sum.stash_bytes);
    const double least = fixed + in_flight * input + sum.stash_bytes;
    const auto fits = [&](double bytes) {
      return std::all_of(stage.workers.begin(), stage.workers.end(),
                         [&](int worker) { return bytes <= cluster.workers[worker].memory_bytes; });
    };
    const bool recomputes = !fits(kept);
    if (recomputes && !(request.rule.may_recompute && fits(least))) return {kInfinity, kInfinity};
    charge.memory_bytes = std::max(charge.memory_bytes, recomputes ? least : kept);

    // In a round every replica has the same number of minibatches, and there are round / replicas
    // updates.
    const int updates = round / replicas;
    Traffic sync = no_traffic();
    for (const int a : stage.workers) {
      for (const int b : stage.workers) {
        if (a != b) send(a, b, 2 * parameter_bytes / replicas * updates, sync);
      }
    }
    for (const int a : stage.workers) {
      for (const int b : stage.workers) {
        if (a != b) send(a, b, 2 * parameter_bytes / replicas * updates, all);
      }
    }
    double compute_s = 0;
    for (const int worker : stage.workers) {
      compute_s = std::max(compute_s, (work_s + (recomputes ? forward_s : 0)) /
                                          cluster.workers[worker].speed * updates);
    }
    charge.period_s = std::max(charge.period_s, (compute_s + longest(sync)) / round);
    if (at == 0) continue;
    for (int minibatch = 0; minibatch < round; ++minibatch) {
      const std::vector<int>& before = stages[at - 1].workers;
      const int from = before[minibatch % before.size()];
      const int to = stage.workers[minibatch % replicas];
      send(from, to, input, all);
      send(to, from, input, all);
    }
  }
  charge.period_s = std::max(charge.period_s, longest(all) / round);
  return charge;
}

// Every way to cut the layers and to put the stages on workers, in any order.
void ForEachPlacement(const LayerGraph& graph, int workers,
                      const std::function<void(const std::vector<BrutePlaced>&)>& visit) {
  const std::vector<uint32_t> cuts = AllCuts(graph);
  const uint32_t all = (uint32_t{1} << graph.nodes.size()) - 1;
  std::vector<BrutePlaced> stages;
  std::vector<bool> used(workers);
  std::function<void(uint32_t)> stage_after;
  std::function<void()> replica;
  replica = [&] {
    for (int worker = 0; worker < workers; ++worker) {
      if (used[worker]) continue;
      used[worker] = true;
      stages.back().workers.push_back(worker);
      stage_after(stages.back().before | stages.back().layers);
      replica();
      stages.back().workers.pop_back();
      used[worker] = false;
    }
  };
  stage_after = [&](uint32_t inside) {
    if (inside == all) {
      visit(stages);
      return;
    }
    for (const uint32_t cut : cuts) {
      if ((inside & ~cut) != 0 || cut == inside) continue;
      stages.push_back({.before = inside, .layers = cut & ~inside});
      replica();
      stages.pop_back();
    }
  };
  stage_after(0);
}

PlacementRequest RandomRequest(RandomStream& random, const LayerGraph& graph, int workers) {
  PlacementRequest request{.cluster = RandomCluster(random, workers),
                           .memory = GuessMemory(graph, static_cast<double>(random.Below(3)))};
  request.rule.versions = static_cast<KeptVersions>(random.Below(3));
  request.rule.may_recompute = random.Below(2) == 0;
  if (random.Below(3) == 0) request.rule.in_flight_max = 1 + static_cast<int>(random.Below(3));
  return request;
}

TEST(PlacementCosts, Charge_FollowsEveryMinibatch) {
  RandomStream random(7, 0);
  int finite = 0;
  for (int trial = 0; trial < 300; ++trial) {
    const LayerGraph graph = RandomGraph(random, 1 + static_cast<int>(random.Below(4)), 0.5);
    const int workers = 1 + static_cast<int>(random.Below(4));
    const PlacementRequest request = RandomRequest(random, graph, workers);
    const int skip = static_cast<int>(random.Below(7));
    int at = 0;
    ForEachPlacement(graph, workers, [&](const std::vector<BrutePlaced>& stages) {
      if (++at % 7 != skip) return;
      std::vector<PlacedNodes> placed;
      for (const BrutePlaced& stage : stages) {
        placed.push_back({.workers = stage.workers});
        for (int node = 0; node < static_cast<int>(graph.nodes.size()); ++node) {
          if ((stage.layers >> node) & 1) placed.back().nodes.push_back(node);
        }
      }
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const StagePlan plan, ChargePlan(graph, request, placed));
      const BruteCharge expected = ChargeByHand(graph, request, stages);
      if (expected.period_s == kInfinity) {
        EXPECT_EQ(plan.period_s, kInfinity);
        return;
      }
      ++finite;
      EXPECT_NEAR(plan.period_s, expected.period_s, 1e-9 * expected.period_s);
    });
  }
  EXPECT_GT(finite, 1000);
}

struct Best {
  double period_s = kInfinity;
  double memory_bytes = kInfinity;
};
Best BruteForceOf(const LayerGraph& graph, const PlacementRequest& request) {
  Best best;
  ForEachPlacement(graph, request.cluster.size(), [&](const std::vector<BrutePlaced>& stages) {
    const BruteCharge charge = ChargeByHand(graph, request, stages);
    best.period_s = std::min(best.period_s, charge.period_s);
    best.memory_bytes = std::min(best.memory_bytes, charge.memory_bytes);
  });
  return best;
}

void ExpectOptimal(const LayerGraph& graph, PlacementRequest request) {
  const Best best = BruteForceOf(graph, request);
  for (const PlacementGoal goal : {PlacementGoal::kPeriod, PlacementGoal::kMemory}) {
    request.goal = goal;
    const absl::StatusOr<StagePlan> plan = PlanPlacement(graph, request, Unlimited());
    if (best.period_s == kInfinity) {
      EXPECT_THAT(plan, StatusIs(absl::StatusCode::kFailedPrecondition,
                                 testing::HasSubstr("it would with")));
      continue;
    }
    ASSERT_THAT(plan, IsOk());
    EXPECT_TRUE(plan->is_optimal);
    if (goal == PlacementGoal::kPeriod) {
      EXPECT_NEAR(plan->period_s, best.period_s, 1e-9 * best.period_s);
      EXPECT_LE(plan->lower_bound_s, best.period_s * (1 + 1e-9));
    } else {
      double most = 0;
      for (const PlannedStage& stage : plan->stages) most = std::max(most, stage.memory_bytes);
      EXPECT_NEAR(most, best.memory_bytes, 1e-9 * best.memory_bytes);
    }
  }
}

TEST(PlanPlacement, SmallChains_EqualBruteForce) {
  RandomStream random(11, 0);
  for (int trial = 0; trial < 3000; ++trial) {
    SCOPED_TRACE(trial);
    const int layers = 1 + static_cast<int>(random.Below(6));
    const LayerGraph graph = RandomChain(random, layers);
    ExpectOptimal(graph, RandomRequest(random, graph, 1 + static_cast<int>(random.Below(3))));
  }
}

TEST(PlanPlacement, EightLayersOnFourWorkers_EqualBruteForce) {
  RandomStream random(12, 0);
  for (int trial = 0; trial < 100; ++trial) {
    SCOPED_TRACE(trial);
    const LayerGraph graph = RandomChain(random, 8);
    ExpectOptimal(graph, RandomRequest(random, graph, 4));
  }
}

TEST(PlanPlacement, GraphsWithBranches_EqualBruteForce) {
  RandomStream random(13, 0);
  for (int trial = 0; trial < 300; ++trial) {
    SCOPED_TRACE(trial);
    const int layers = 2 + static_cast<int>(random.Below(4));
    const LayerGraph graph = RandomGraph(random, layers, 0.4);
    ExpectOptimal(graph, RandomRequest(random, graph, 1 + static_cast<int>(random.Below(3))));
  }
}

// What PipeDream's optimizer plans for two hosts of four workers, charged on the cluster.
absl::StatusOr<StagePlan> PipeDreamsPlan(const LayerGraph& graph, const PlacementRequest& request,
                                         double nic, double inside) {
  PENSTOCK_ASSIGN_OR_RETURN(const StagePlan plan,
                            PlanStages(graph,
                                       {.levels = {{4, PipeDreamReleasedModel(inside, true)},
                                                   {2, PipeDreamReleasedModel(nic, true)}},
                                        .cuts = CutRule::kAntichains},
                                       Unlimited()));
  return ChargePlan(graph, request, PlaceInOrder(plan, request.cluster));
}

TEST(PlanPlacement, TwoHostsOfFourWorkers_BeatPipeDreamsPlanByAQuarter) {
  constexpr double kInside = 12e9;
  for (const char* file : {"vgg16.txt", "alexnet.txt"}) {
    const LayerGraph graph = PublishedProfile(file);
    for (const double gigabits : {10.0, 25.0}) {
      SCOPED_TRACE(testing::Message() << file << " " << gigabits);
      const double nic = gigabits * 1e9 / 8;
      const PlacementRequest request{.cluster = UniformCluster(2, 4, nic, kInside),
                                     .memory = GuessMemory(graph, 1)};
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const StagePlan theirs,
                                    PipeDreamsPlan(graph, request, nic, kInside));
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const StagePlan own,
                                    PlanPlacement(graph, request, Unlimited()));
      EXPECT_LT(own.period_s, 0.76 * theirs.period_s);
      EXPECT_LT(own.period_s, own.data_parallel_s);
    }
  }
}

// Stages of about equally many layers, each with `width` workers in the cluster's order.
std::vector<PlacedNodes> EvenStages(int layers, int depth, int width) {
  std::vector<PlacedNodes> stages(depth);
  for (int stage = 0; stage < depth; ++stage) {
    for (int node = layers * stage / depth; node < layers * (stage + 1) / depth; ++node) {
      stages[stage].nodes.push_back(node);
    }
    for (int replica = 0; replica < width; ++replica) {
      stages[stage].workers.push_back(stage * width + replica);
    }
  }
  return stages;
}

TEST(PlanPlacement, LargerInstances_AreNeverWorseThanPlansOfOthers) {
  RandomStream random(17, 0);
  for (int trial = 0; trial < 40; ++trial) {
    SCOPED_TRACE(trial);
    const int layers = 10 + static_cast<int>(random.Below(15));
    const int workers = 5 + static_cast<int>(random.Below(6));
    const LayerGraph graph = RandomChain(random, layers);
    PlacementRequest request = RandomRequest(random, graph, workers);
    for (PlanWorker& worker : request.cluster.workers) worker.memory_bytes = kInfinity;
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const StagePlan own, PlanPlacement(graph, request, Unlimited()));
    EXPECT_LE(own.lower_bound_s, own.period_s);
    for (int depth = 1; depth <= std::min(layers, workers); ++depth) {
      PENSTOCK_ASSERT_OK_AND_ASSIGN(
          const StagePlan even,
          ChargePlan(graph, request, EvenStages(layers, depth, workers / depth)));
      EXPECT_LE(own.period_s, even.period_s * (1 + 1e-9));
      EXPECT_LE(own.lower_bound_s, even.period_s * (1 + 1e-9));
    }
    // PipeDream knows one bandwidth: that of the slowest host.
    double nic = 1e18;
    for (const PlanHost& host : request.cluster.hosts) {
      nic = std::min(nic, host.nic_bytes_per_second);
    }
    const StageCostModel model = PipeDreamReleasedModel(nic, true);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const StagePlan flat,
                                  PlanStages(graph, FlatRequest(workers, model), Unlimited()));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const StagePlan pipedream,
                                  ChargePlan(graph, request, PlaceInOrder(flat, request.cluster)));
    EXPECT_LE(own.period_s, pipedream.period_s * (1 + 1e-9));
  }
}

LayerGraph EqualLayers(int layers) {
  std::vector<LayerNode> nodes;
  nodes.reserve(layers);
  for (int layer = 0; layer < layers; ++layer) {
    nodes.push_back({.id = "layer" + std::to_string(layer),
                     .forward_s = 1,
                     .backward_s = 2,
                     .activation_bytes = 10,
                     .parameter_bytes = 100});
  }
  return ChainGraph(std::move(nodes));
}

TEST(PlanPlacement, UnequalWorkers_GetLayersBySpeed) {
  const LayerGraph graph = EqualLayers(4);
  Cluster cluster{.hosts = {{.name = "host"}}};
  cluster.workers = {{.name = "slow"}, {.name = "fast", .speed = 3}};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const StagePlan plan,
      PlanPlacement(graph, {.cluster = cluster, .memory = GuessMemory(graph, 0)}, Unlimited()));
  EXPECT_DOUBLE_EQ(plan.period_s, 3.0);
  EXPECT_TRUE(plan.is_optimal);
  ASSERT_EQ(plan.stages.size(), 2);
  for (const PlannedStage& stage : plan.stages) {
    EXPECT_EQ(stage.nodes.size(), stage.placed_on.front() == 0 ? 1 : 3);
  }
}

TEST(PlanPlacement, SlowPathBetweenHosts_IsLeftOut) {
  const LayerGraph graph = EqualLayers(4);
  Cluster cluster = UniformCluster(3, 1, 10.0, 10.0);
  // One way is too slow to be used: the third host helps instead.
  cluster.paths = {{.from = 0, .to = 1, .bytes_per_second = 0.1}};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const StagePlan plan,
      PlanPlacement(graph, {.cluster = cluster, .memory = GuessMemory(graph, 0)}, Unlimited()));
  EXPECT_DOUBLE_EQ(plan.period_s, 6.0);
  for (size_t stage = 0; stage + 1 < plan.stages.size(); ++stage) {
    EXPECT_TRUE(plan.stages[stage].placed_on.front() == 2 ||
                plan.stages[stage + 1].placed_on.front() == 2);
  }
}

TEST(PlanPlacement, LittleMemory_RecomputesOrSaysWhatWouldDo) {
  const LayerGraph graph = EqualLayers(4);
  PlacementRequest request{.cluster = UniformCluster(1, 2, 1e9, 1e9),
                           .memory = GuessMemory(graph, 0)};
  const auto with = [&](double bytes) {
    for (PlanWorker& worker : request.cluster.workers) worker.memory_bytes = bytes;
    return PlanPlacement(graph, request, Unlimited());
  };
  // Two layers a stage: on the first 2 versions of 200, gradients of 200, 2 minibatches of 20 that stay;
  // or, done again, 20 for one at a time.
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const StagePlan ample, with(640));
  EXPECT_FALSE(ample.stages.front().recomputes);
  EXPECT_DOUBLE_EQ(ample.stages.front().memory_bytes, 640);
  EXPECT_DOUBLE_EQ(ample.period_s, 6.0);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const StagePlan tight, with(620));
  EXPECT_TRUE(tight.stages.front().recomputes || tight.stages.front().nodes.size() == 1);
  EXPECT_GT(tight.period_s, 6.0);
  const absl::StatusOr<StagePlan> none = with(300);
  EXPECT_THAT(none,
              StatusIs(absl::StatusCode::kFailedPrecondition, testing::HasSubstr("it would with")));
}

TEST(PlanPlacement, SpentBudget_ReturnsAPlanAndItsBound) {
  const LayerGraph graph = PublishedProfile("resnet101.txt");
  TickingClock clock(absl::ToInt64Nanoseconds(absl::Milliseconds(50)));
  TimeBudget budget(clock, absl::Seconds(1));
  const PlacementRequest request{.cluster = UniformCluster(4, 4, 1.25e9, 12e9),
                                 .memory = GuessMemory(graph, 1)};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const StagePlan plan, PlanPlacement(graph, request, budget));
  EXPECT_FALSE(plan.in_time);
  EXPECT_GT(plan.lower_bound_s, 0);
  EXPECT_LE(plan.lower_bound_s, plan.period_s);
}

TEST(PlanPlacement, BadRequests_AreNamed) {
  const LayerGraph graph = EqualLayers(2);
  PlacementRequest request{.cluster = UniformCluster(1, 2, 1e9, 1e9),
                           .memory = GuessMemory(graph, 0)};
  const auto plan = [&] { return PlanPlacement(graph, request, Unlimited()).status(); };
  request.cluster.workers[1].speed = 0;
  EXPECT_THAT(plan(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       testing::HasSubstr("the speed of worker host-0/1 must be positive")));
  request.cluster.workers[1] = {.name = "lost", .host = 7};
  EXPECT_THAT(plan(), StatusIs(absl::StatusCode::kInvalidArgument,
                               testing::HasSubstr("worker lost is on host 7, there are 1 hosts")));
  request.cluster.workers.clear();
  EXPECT_THAT(plan(), StatusIs(absl::StatusCode::kInvalidArgument,
                               testing::HasSubstr("the cluster has none")));
  request.cluster = UniformCluster(1, 2, 1e9, 1e9);
  request.memory.pop_back();
  EXPECT_THAT(plan(), StatusIs(absl::StatusCode::kInvalidArgument,
                               testing::HasSubstr("memory is given of 1 layers")));
}

}  // namespace
}  // namespace penstock
