#include "services/worker/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/confined_files.h"
#include "base/host_memory.h"
#include "base/status.h"
#include "job/profile/device_times.h"
#include "services/rpc/host_name.h"
#include "services/rpc/worker_name.h"

namespace penstock {
namespace {

constexpr int kBadUsage = 2;

// An option in seconds, `value` its default.
void AddSeconds(CLI::App& app, const char* name, absl::Duration& value, const char* help) {
  constexpr double kSecondsMax = 24 * 3600;
  app.add_option_function<double>(
         name, [&value](double seconds) { value = absl::Seconds(seconds); }, help)
      ->type_name("SECONDS")
      ->default_str(absl::StrCat(absl::ToInt64Seconds(value)))
      ->check(CLI::Range(0.001, kSecondsMax));
}

// Where the others reach a worker that listens on `listen`, whose port may not be chosen yet.
absl::Status CheckAdvertise(const WorkerFlags& flags) {
  if (flags.advertise.empty()) {
    if (!flags.server.listen.IsWildcard()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "--listen ", flags.server.listen.ToString(),
        " is no address that other workers can connect to: say --advertise HOST:PORT too"));
  }
  return ParseHostPort(flags.advertise).status();
}

// Emulated devices compute on the CPU, so `auto` means that.
absl::Status ReadEmulated(const std::string& path, WorkerFlags& flags) {
  if (path.empty()) return absl::OkStatus();
  if (flags.device.kind == Device::Kind::kCuda) {
    return absl::InvalidArgumentError(
        "--emulate: the CPU emulates devices, a GPU does not; leave --device out or say cpu");
  }
  flags.device.kind = Device::Kind::kCpu;
  PENSTOCK_ASSIGN_OR_RETURN(flags.emulated, ReadDeviceTimes(path));
  return absl::OkStatus();
}

}  // namespace

std::optional<WorkerFlags> ParseWorkerFlags(int argc, char** argv, int& exit_code) {
  WorkerFlags flags;
  flags.name = absl::StrCat(HostName(), "-", getpid());
  flags.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  std::string coordinator = "127.0.0.1:7070";

  CLI::App app("A Penstock worker: holds stages of a model and trains them.", "penstock-worker");
  app.option_defaults()->always_capture_default();
  app.add_option("--coordinator", coordinator,
                 "HOST:PORT of the coordinator, or of several, with commas")
      ->envname("PENSTOCK_COORDINATOR");
  const auto read_server_flags =
      AddServerFlags(app, flags.server,
                     {.listen = "127.0.0.1:0",
                      .metrics = "127.0.0.1:0",
                      .metrics_help = "HOST:PORT of the Prometheus endpoint, or off"});
  app.add_option("--advertise", flags.advertise,
                 "HOST:PORT under which others reach this worker (default: where it listens)");
  app.add_option("--name", flags.name, "name of this worker, unique in the cluster")
      ->check([](const std::string& name) { return std::string(CheckWorkerName(name).message()); });
  app.add_option("--data-root", flags.data_root,
                 "directory that relative data paths start from; jobs read data from nowhere else "
                 "(default: nowhere)")
      ->type_name("DIR");
  app.add_option("--data-cache", flags.data_cache,
                 "directory of this worker alone for files that jobs name by sha256:, which it "
                 "fetches from the coordinator (default: it fetches none)")
      ->type_name("DIR");
  app.add_option("--data-cache-bytes", flags.data_cache_bytes_max,
                 "most that these files may have of the disk, such as 64GiB; those that were used "
                 "longest ago make room")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
      ->default_str("256GiB");
  app.add_option(
         "--offload-dir", flags.offload_directory,
         "where stashes wait that a job offloads from the CPU (pipeline.offload), and weights that "
         "it keeps there (pipeline.stream_weights: file), in files without names; a disk, not "
         "memory")
      ->type_name("DIR");
  app.add_option("--checkpoint-root", flags.checkpoint_root,
                 "directory below which jobs may have their checkpoints; or the word coordinator: "
                 "they are sent to the coordinator, which has a disk for them (default: nowhere)")
      ->type_name("DIR|coordinator");
  app.add_flag("--any-path", flags.any_path,
               "jobs may read and write whatever this process may: for a worker with one user");
  app.add_option("--threads", flags.threads,
                 "most threads that a job's training.threads may ask for")
      ->envname("OMP_NUM_THREADS")
      ->check(CLI::Range(1, 1024));
  AddSeconds(app, "--checkpoint-timeout", flags.limits.checkpoint_timeout,
             "longest wait of training for the disk to take the previous checkpoint");
  AddSeconds(app, "--work-timeout", flags.limits.work_timeout,
             "longest that a neighbour may take for a microbatch or a snapshot");
  std::string device = "auto";
  app.add_option("--device", device, "what to compute on: cpu, cuda:N, or auto (a GPU or the CPU)")
      ->envname("PENSTOCK_DEVICE")
      ->check([](const std::string& text) {
        return std::string(ParseDevice(text).status().message());
      });
  app.add_option("--workers-on-device", flags.workers_on_device,
                 "how many workers compute on the same GPU: each has its part of the memory")
      ->check(CLI::Range(1, 256));
  std::string emulated;
  app.add_option("--emulate", emulated,
                 "file with a device's times, which passes then take (docs/emulation.md)")
      ->type_name("FILE");
  flags.snapshot_bytes_max = HostMemoryBytes() / 4;
  app.add_option("--snapshot-memory", flags.snapshot_bytes_max,
                 "most that snapshots of jobs may have of the host's memory, such as 8GiB; 0: none "
                 "are kept")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
      ->default_str("a quarter");
  AddSeconds(app, "--drain-timeout", flags.drain_timeout,
             "when ending on a signal, longest wait for the job to be saved at its next step");
  AddSeconds(app, "--linger", flags.linger,
             "when ending, longest wait for a scrape that sees how the last run ended");
  app.add_option("--parent-fd", flags.parent_fd,
                 "end when the other end of this pipe or socket is closed")
      ->check(CLI::NonNegativeNumber);
  try {  // CLI11 reports by exception
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    exit_code = app.exit(error, std::cout, std::cerr) == 0 ? 0 : kBadUsage;
    return std::nullopt;
  }

  const absl::StatusOr<std::vector<HostPort>> coordinators = ParseHostPorts(coordinator);
  absl::Status status = Annotate(coordinators.status(), "--coordinator");
  if (status.ok()) status = read_server_flags();
  if (status.ok()) flags.coordinators = *coordinators;
  flags.device = *ParseDevice(device);  // checked above
  if (status.ok()) status = CheckAdvertise(flags);
  if (status.ok()) status = ReadEmulated(emulated, flags);
  // Paths are compared with them, in one spelling.
  if (!flags.data_root.empty()) flags.data_root = AbsolutePath(flags.data_root);
  if (!flags.data_cache.empty()) flags.data_cache = AbsolutePath(flags.data_cache);
  // A directory of this name can be given as ./coordinator.
  flags.checkpoints_at_coordinator = flags.checkpoint_root == "coordinator";
  if (flags.checkpoints_at_coordinator) flags.checkpoint_root.clear();
  if (!flags.checkpoint_root.empty()) flags.checkpoint_root = AbsolutePath(flags.checkpoint_root);
  if (status.ok()) return flags;
  std::cerr << "penstock-worker: " << std::string(status.message()) << "\n";
  exit_code = kBadUsage;
  return std::nullopt;
}

}  // namespace penstock
