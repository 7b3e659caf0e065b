// Two workers with servers and hubs in one process, reached through proxies.
#pragma once

#include <string>

#include "absl/time/clock.h"
#include "tests/services/transport/test_worker.h"

namespace penstock {

inline constexpr char kTestJob[] = "test-job";

struct TestCluster {
  // The two workers join `epoch`; worker 0, "left", has stage 0, and worker 1, "right", stage 1.
  explicit TestCluster(int64_t epoch = 1,
                       absl::Duration connection_age = rpc_limits::kConnectionAge,
                       const StreamLimits& limits = kImpatient)
      : workers{TestWorker(connection_age, limits), TestWorker(connection_age, limits)} {
    for (int worker : {0, 1}) Join(worker, epoch);
  }

  RunPeers Peers(int worker, int64_t epoch) {
    return {.job_id = kTestJob,
            .epoch = epoch,
            .self = worker,
            .workers = {{"left", workers[0].proxy->address(), 11},
                        {"right", workers[1].proxy->address(), 22}},
            .worker_of_stage = {0, 1}};
  }
  void Join(int worker, int64_t epoch) {
    workers[worker].transport.reset();
    auto transport = workers[worker].hub.Join(Peers(worker, epoch));
    ASSERT_THAT(transport, IsOk());
    workers[worker].transport = *std::move(transport);
  }
  // Closes all connections between the two, and for a moment each new one.
  void Interrupt() {
    for (TestWorker& worker : workers) worker.proxy->Interrupt();
    absl::SleepFor(absl::Milliseconds(20));
    for (TestWorker& worker : workers) worker.proxy->Thaw();
  }
  Transport& left() { return *workers[0].transport; }
  Transport& right() { return *workers[1].transport; }

  TestWorker workers[2];
};

}  // namespace penstock
