// LocalCluster: a coordinator in this process and worker processes beside it, on loopback, for the
// length of one `penstock train`.
//
// Ports are chosen by the system, and only who has a certificate of this cluster's own authority, which
// lives as long as it, is heard there. Whatever happens to this process, the
// supervisor (supervisor.h) ends the workers and clears up after them.
//
// Thread-compatible.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "services/cli/coordinator_client.h"
#include "services/cli/supervisor.h"
#include "services/coordinator/coordinator_server.h"
#include "services/metrics/endpoint.h"
#include "services/rpc/transport_security.h"

namespace penstock {

struct LocalClusterOptions {
  int workers = 1;
  std::vector<std::string> names;  // of the first of them; the others get LocalWorkerName
  std::string device = "auto";     // of each worker (compute/device.h)
  std::string emulate;    // file with the times of a device that each emulates; empty: none
  int threads = 1;        // of each worker's kernels
  std::string data_root;  // for relative data paths
  std::string checkpoint_directory;  // swept of unfinished checkpoints at the end; empty: none
  // Where the coordinator answers scrapes, and on the ports after it the workers; port 0: any free ones. None: off.
  std::optional<HostPort> metrics = std::nullopt;
};

class LocalCluster {
 public:
  // A worker that ends is noticed at once, so this is for one that hangs. CUDA's libraries, read from a cold disk, and a
  // first context take longer than anything that a worker does on the CPU.
  static constexpr absl::Duration kStartTimeout = absl::Seconds(20);
  static constexpr absl::Duration kGpuStartTimeout = absl::Minutes(5);
  static constexpr absl::Duration kStopGrace = absl::Seconds(5);
  // With metrics: the longest that the end of a cluster waits for scrapes.
  static constexpr absl::Duration kLinger = absl::Seconds(15);

  // Forks the supervisor. REQUIRES: the process has one thread.
  static absl::StatusOr<std::unique_ptr<LocalCluster>> Fork(LocalClusterOptions options);
  // Stop() without grace.
  ~LocalCluster();

  // Starts the coordinator and the workers, and waits until all have registered.
  // Errors: NotFound (no penstock-worker beside this program), Unavailable (a worker ended, with its
  // last words), DeadlineExceeded.
  absl::Status Start(Clock& clock);

  // A client of the coordinator. REQUIRES: started.
  CoordinatorClient Connect() const;

  // OK while all workers live. Errors: Unavailable naming the worker, how it ended, and its last words.
  absl::Status Health();

  // Returns what a scraper needs: where the certificate for it is, and "coordinator https://HOST:PORT/metrics",
  // and so for each worker; nothing without metrics. Errors: those of the call that asks for them.
  absl::StatusOr<std::vector<std::string>> MetricsAddresses();
  // With metrics: ends everything as soon as coordinator and workers were each scraped once, or after kLinger, or
  // when `give_up` says so. Then Stop has nothing left to do.
  void StopOnceScraped(const std::function<bool()>& give_up);

  // Ends everything; with SIGTERM first if `grace` is positive.
  void Stop(absl::Duration grace);

 private:
  LocalCluster(LocalClusterOptions options, std::unique_ptr<Supervisor> supervisor)
      : options_(std::move(options)), supervisor_(std::move(supervisor)) {}

  std::string NameOf(int worker) const;
  // Makes an authority for this cluster alone, and the credentials of its parties.
  absl::Status MakeCredentials(absl::Time now);
  std::string MetricsOf(int worker) const;
  absl::Duration StartTimeout() const;
  absl::Status SpawnWorker(const std::string& program, int worker);
  absl::Status AwaitRegistration(Clock& clock);
  std::vector<MetricFamily> CollectMetrics();

  const LocalClusterOptions options_;
  std::unique_ptr<Supervisor> supervisor_;
  std::vector<int> gpus_;    // of this machine
  std::string credentials_;  // their directory, which the supervisor removes
  TransportSecurity client_security_ = TransportSecurity::Plaintext();
  std::unique_ptr<CoordinatorServer> coordinator_;
  std::atomic<int64_t> scrapes_ = 0;          // of the coordinator
  std::unique_ptr<MetricsEndpoint> metrics_;  // its endpoint; null: off
};

// The path of penstock-worker: beside the running program. Errors: NotFound, saying where it was sought.
absl::StatusOr<std::string> FindWorkerProgram();

// "worker-0", ...
std::string LocalWorkerName(int worker);

}  // namespace penstock
