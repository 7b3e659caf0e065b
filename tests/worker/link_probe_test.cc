#include "worker/link_probe.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "compute/buffer_pool.h"
#include "tests/support/status_matchers.h"
#include "tests/support/ticking_clock.h"
#include "tests/worker/memory_transport.h"

namespace penstock {
namespace {

constexpr int64_t kTickNs = 2'000'000;

using Links = absl::StatusOr<std::vector<LinkMeasurement>>;

// What each of so many workers finds; those that are `dead` end at once.
std::vector<Links> Probe(int workers, LinkProbeOptions options, int dead = -1) {
  std::vector<std::string> names;
  std::vector<int> worker_of_stage;
  for (int worker = 0; worker < workers; ++worker) {
    names.push_back("worker-" + std::to_string(worker));
    worker_of_stage.push_back(worker);
  }
  MemoryNetwork network(names, worker_of_stage);
  options.workers = workers;
  std::vector<Links> links(workers, absl::UnknownError("not run"));
  std::vector<std::thread> threads;
  for (int worker = 0; worker < workers; ++worker) {
    threads.emplace_back([&, worker] {
      if (worker == dead) return network.Disconnect(worker);
      LinkProbeOptions own = options;
      own.self = worker;
      BufferPool pool(HostMemory());
      TickingClock clock(kTickNs);
      const std::unique_ptr<Transport> transport = network.MakeTransport(worker);
      links[worker] = ProbeLinks(*transport, pool, clock, own);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return links;
}

TEST(ProbeLinks, AnyNumberOfWorkers_FindTheLinksToAllOthers) {
  for (const int workers : {1, 2, 3, 4, 7}) {
    const std::vector<Links> links =
        Probe(workers, {.pings = 3, .message_bytes = 1 << 10, .burst = 5});
    for (int from = 0; from < workers; ++from) {
      ASSERT_THAT(links[from], IsOk());
      ASSERT_EQ(links[from]->size(), static_cast<size_t>(workers - 1));
      int to = 0;
      for (const LinkMeasurement& link : *links[from]) {
        if (to == from) ++to;
        EXPECT_EQ(link.from, from);
        EXPECT_EQ(link.to, to++);
      }
    }
  }
}

TEST(ProbeLinks, Latency_IsHalfOfAPingAndBandwidthThatOfTheBurst) {
  constexpr int kBurst = 8;
  const std::vector<Links> links =
      Probe(2, {.pings = 4, .message_bytes = 1 << 20, .burst = kBurst});
  for (const Links& of_worker : links) {
    ASSERT_THAT(of_worker, IsOk());
    const LinkMeasurement& link = of_worker->front();
    EXPECT_DOUBLE_EQ(link.latency_s, kTickNs * 1e-9 / 2);
    EXPECT_DOUBLE_EQ(link.bytes_per_second, kBurst * (1 << 20) / (kTickNs * 1e-9));
  }
}

// What comes after the probe on one worker must not disturb the measurements of two others.
TEST(ProbeLinks, NoWorkerLeaves_BeforeTheLastPairIsDone) {
  constexpr int kWorkers = 5;
  for (const std::vector<int>& hosts : {std::vector<int>{}, {0, 0, 0, 0, 0}, {7, 7, 8, 8, 8}}) {
    MemoryNetwork network({"a", "b", "c", "d", "e"}, {0, 1, 2, 3, 4});
    std::atomic<int> left = 0;
    std::vector<std::thread> threads;
    for (int worker = 0; worker < kWorkers; ++worker) {
      threads.emplace_back([&, worker] {
        if (worker == 3) std::this_thread::sleep_for(std::chrono::milliseconds(20));
        BufferPool pool(HostMemory());
        TickingClock clock(kTickNs);
        const std::unique_ptr<Transport> transport = network.MakeTransport(worker);
        const LinkProbeOptions options = {.self = worker,
                                          .workers = kWorkers,
                                          .hosts = hosts,
                                          .pings = 1,
                                          .message_bytes = 64,
                                          .burst = 1,
                                          .on_peer = [&](int peer) {
                                            if (worker != 0 && peer != 0) {
                                              EXPECT_EQ(left, 0);
                                            }
                                          }};
        const Links links = ProbeLinks(*transport, pool, clock, options);
        ++left;
        ASSERT_THAT(links, IsOk());
        EXPECT_EQ(links->size(), kWorkers - 1u);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(ProbeRounds, HaveEveryPairOnceAndNoHostTwiceAtATime) {
  for (const int workers : {1, 2, 3, 8, 17}) {
    for (const int hosts : {1, 2, 3, workers}) {
      LinkProbeOptions options = {.workers = workers};
      for (int worker = 0; worker < workers; ++worker) options.hosts.push_back(worker % hosts);
      std::set<std::pair<int, int>> pairs;
      for (const ProbeRound& round : ProbeRounds(options)) {
        std::multiset<int> busy;
        for (const auto& [first, second] : round) {
          EXPECT_LT(first, second);
          EXPECT_TRUE(pairs.emplace(first, second).second);
          // Two workers of one host are one use of it.
          for (const int host : std::set<int>{first % hosts, second % hosts}) busy.insert(host);
        }
        for (const int host : busy) EXPECT_EQ(busy.count(host), 1u);
        if (hosts == 1) {
          EXPECT_EQ(round.size(), 1u);
        }
      }
      EXPECT_EQ(pairs.size(), static_cast<size_t>(workers * (workers - 1) / 2));
    }
  }
}

TEST(ProbeRounds, WorkersWithHostsOfTheirOwn_AreMeasuredSideBySide) {
  for (const int workers : {2, 4, 8, 16, 64}) {
    EXPECT_LT(ProbeRounds({.workers = workers}).size(), 2u * workers) << workers;
  }
}

TEST(ProbeLinks, WorkerThatIsGone_IsNamed) {
  const LinkProbeOptions options = {
      .pings = 1, .message_bytes = 64, .burst = 1, .timeout = absl::Seconds(20)};
  std::vector<Links> links = Probe(3, options, /*dead=*/2);
  EXPECT_THAT(links[0], StatusIs(absl::StatusCode::kUnavailable, ::testing::HasSubstr("worker-2")));
  // It may hear first that worker 0 has given up.
  EXPECT_THAT(std::string(links[1].status().message()), ::testing::HasSubstr("worker-"));
  links = Probe(3, options, /*dead=*/0);
  for (const int worker : {1, 2}) {
    EXPECT_THAT(links[worker],
                StatusIs(absl::StatusCode::kUnavailable, ::testing::HasSubstr("worker-0")));
  }
}

}  // namespace
}  // namespace penstock
