// The command line of penstock-worker.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compute/device.h"
#include "penstock/v1/device_times.pb.h"
#include "services/rpc/address.h"
#include "services/rpc/server_flags.h"
#include "worker/limits.h"

namespace penstock {

struct WorkerFlags {
  ServerFlags server;
  std::vector<HostPort> coordinators;  // one, or several of which one leads
  std::string advertise;               // host:port for the others; empty: where it listens
  std::string name;                    // unique in the cluster
  std::string data_root;               // absolute; empty: jobs read no data
  std::string checkpoint_root;         // absolute; empty: jobs have no checkpoints on this machine
  bool checkpoints_at_coordinator = false;  // they are sent there, and read from there
  std::string data_cache;                   // absolute; empty: no files of the cluster are fetched
  int64_t data_cache_bytes_max = int64_t{256} << 30;
  std::string offload_directory = "/var/tmp";
  bool any_path = false;  // jobs may name files outside of the two
  Device device;
  int workers_on_device = 1;                // that share it, this one included
  std::optional<v1::DeviceTimes> emulated;  // none: the device takes the time it takes
  int threads = 1;                          // the most that a job may ask for
  RunLimits limits;
  // When ending on a signal, the longest wait for the job to drain.
  absl::Duration drain_timeout = absl::Seconds(150);
  // When ending, the longest wait for a scrape that sees how the last run ended.
  absl::Duration linger = absl::ZeroDuration();
  int64_t snapshot_bytes_max = 0;  // of all snapshots in memory; 0: none are kept
  int parent_fd = -1;              // the worker ends with the other end of this pipe; -1: none
};

// Parses the command line. Prints help or what is wrong; then nothing is returned and `exit_code` says
// how to end (0 after help, 2 otherwise).
std::optional<WorkerFlags> ParseWorkerFlags(int argc, char** argv, int& exit_code);

}  // namespace penstock
