// TestWorker: a server and a hub of a worker in this process, reached through a proxy.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compute/buffer_pool.h"
#include "services/rpc/server.h"
#include "services/transport/tensor_hub.h"
#include "tests/services/transport/tcp_proxy.h"
#include "tests/support/status_matchers.h"

namespace penstock {

// For tests of what is gone for good.
inline constexpr StreamLimits kImpatient = {.suspicion = absl::Seconds(1),
                                            .dial = absl::Milliseconds(500),
                                            .backoff_min = absl::Milliseconds(10),
                                            .backoff_max = absl::Milliseconds(50),
                                            .awaited = absl::Seconds(2)};

struct TestWorker {
  TestWorker(absl::Duration connection_age, const StreamLimits& limits)
      : limits(limits), server({.listen = {"127.0.0.1", 0}, .connection_age = connection_age}) {
    server.AddExtension(hub);
    const absl::Status started = server.Start();
    EXPECT_THAT(started, IsOk());
    proxy = std::make_unique<TcpProxy>(server.address().port);
  }
  ~TestWorker() {
    transport.reset();
    server.Shutdown(absl::Milliseconds(100));
  }

  Mutex mutex;
  absl::Status refused ABSL_GUARDED_BY(mutex);  // the last stream that was
  std::vector<std::string> opened ABSL_GUARDED_BY(mutex);
  std::vector<std::string> disturbed ABSL_GUARDED_BY(mutex);
  BufferPool pool{HostMemory()};
  const StreamLimits limits;
  TensorHub hub{{.refused =
                     [this](const absl::Status& status) {
                       MutexLock lock(mutex);
                       refused = status;
                     },
                 .opened =
                     [this](const std::string& line) {
                       MutexLock lock(mutex);
                       opened.push_back(line);
                     },
                 .disturbed =
                     [this](const std::string& line) {
                       MutexLock lock(mutex);
                       disturbed.push_back(line);
                     }},
                grpc::InsecureChannelCredentials(),
                limits};
  RpcServer server;
  std::unique_ptr<TcpProxy> proxy;
  std::unique_ptr<Transport> transport;
};

}  // namespace penstock
