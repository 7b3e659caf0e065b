#include "planner/job/worker_orders.h"

#include <gmock/gmock.h>

#include "tests/planner/job/planning_input.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;

std::vector<std::vector<int>> OrdersOf(const Cluster& cluster, int64_t count) {
  std::vector<std::vector<int>> orders;
  WorkerOrders(cluster).ForEach(count, [&](const std::vector<int>& order) {
    orders.push_back(order);
    return true;
  });
  return orders;
}

TEST(WorkerOrders, AlikeWorkers_HaveOneOrder) {
  EXPECT_THAT(OrdersOf(Alike(4), 3), ElementsAre(ElementsAre(0, 1, 2)));
  EXPECT_THAT(OrdersOf(UniformCluster(4, 1, 1e6, 1e6), 3), ElementsAre(ElementsAre(0, 1, 2)));
}

TEST(WorkerOrders, AlikeHostsOfTwo_DifferInWhoIsWithWhom) {
  EXPECT_THAT(
      OrdersOf(UniformCluster(2, 2, 1e6, 1e9), 4),
      ElementsAre(ElementsAre(0, 1, 2, 3), ElementsAre(0, 2, 1, 3), ElementsAre(0, 2, 3, 1)));
}

TEST(WorkerOrders, SpeedMemoryNetworkAndPaths_TellWorkersApart) {
  Cluster speeds = Alike(4);
  speeds.workers[2].speed = speeds.workers[3].speed = 2;
  EXPECT_EQ(OrdersOf(speeds, 2).size(), 4u);
  Cluster memory = Alike(2);
  memory.workers[1].memory_bytes = 1e9;
  EXPECT_EQ(OrdersOf(memory, 2).size(), 2u);
  Cluster nics = UniformCluster(2, 1, 1e6, 1e6);
  nics.hosts[1].nic_latency_s = 1e-3;
  EXPECT_EQ(OrdersOf(nics, 2).size(), 2u);
  Cluster paths = UniformCluster(3, 1, 1e6, 1e6);
  paths.paths = {{.from = 0, .to = 1, .bytes_per_second = 1e5}};
  EXPECT_EQ(OrdersOf(paths, 3).size(), 6u);
}

TEST(WorkerOrders, VisitThatHasEnough_EndsIt) {
  Cluster cluster = Alike(3);
  for (int worker = 0; worker < 3; ++worker) cluster.workers[worker].speed = 1 + worker;
  int visits = 0;
  EXPECT_FALSE(
      WorkerOrders(cluster).ForEach(3, [&](const std::vector<int>&) { return ++visits < 2; }));
  EXPECT_EQ(visits, 2);
}

}  // namespace
}  // namespace penstock
