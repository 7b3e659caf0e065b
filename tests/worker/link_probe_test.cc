#include "worker/link_probe.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "compute/buffer_pool.h"
#include "tests/support/status_matchers.h"
#include "tests/support/ticking_clock.h"
#include "worker/memory_transport.h"

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
  constexpr int kWorkers = 4;
  MemoryNetwork network({"a", "b", "c", "d"}, {0, 1, 2, 3});
  std::atomic<int> through = 0;  // workers whose turns are over
  std::vector<std::thread> threads;
  for (int worker = 0; worker < kWorkers; ++worker) {
    threads.emplace_back([&, worker] {
      if (worker == kWorkers - 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
      BufferPool pool(HostMemory());
      TickingClock clock(kTickNs);
      const std::unique_ptr<Transport> transport = network.MakeTransport(worker);
      std::vector<int> met;
      // It meets each when it opens the edges, in its turns, when it says that it is done and when it waits
      // for the other to be.
      const LinkProbeOptions options = {.self = worker,
                                        .workers = kWorkers,
                                        .pings = 1,
                                        .message_bytes = 64,
                                        .burst = 1,
                                        .on_peer = [&](int peer) {
                                          met.push_back(peer);
                                          if (met.size() == 2 * (kWorkers - 1) + 1) ++through;
                                        }};
      EXPECT_THAT(ProbeLinks(*transport, pool, clock, options), IsOk());
      EXPECT_EQ(through, kWorkers);
      EXPECT_EQ(met.size(), 4u * (kWorkers - 1));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ProbeLinks, WorkerThatIsGone_IsNamed) {
  const std::vector<Links> links =
      Probe(3, {.pings = 1, .message_bytes = 64, .burst = 1, .timeout = absl::Seconds(20)}, 2);
  for (const int worker : {0, 1}) {
    EXPECT_THAT(links[worker],
                StatusIs(absl::StatusCode::kUnavailable, ::testing::HasSubstr("worker-2")));
  }
}

}  // namespace
}  // namespace penstock
