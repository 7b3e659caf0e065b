#include "services/cli/cluster_options.h"

#include "absl/strings/str_cat.h"
#include "compute/device.h"
#include "job/profile/device_times.h"
#include "services/cli/command_text.h"

namespace penstock {

CLI::Option* AddClusterOptions(CLI::App& app, TrainJobOptions& job, ClusterOptions& cluster) {
  app.add_option("--workers", job.workers,
                 absl::StrCat("Worker processes; default: what the job's pipeline takes, or ",
                              kDefaultWorkers))
      ->type_name("N")
      ->check(CLI::Range(1, 256));
  app.add_option("--device", cluster.device,
                 "The workers' device: cpu, cuda:N, or auto (GPUs or the CPU)")
      ->envname("PENSTOCK_DEVICE")
      ->type_name("DEVICE")
      ->check(KnownValues({"auto", "cpu", "cuda:0"}))
      ->check([](const std::string& text) {
        return std::string(ParseDevice(text).status().message());
      });
  app.add_option("--data-root", job.data_root,
                 "Where relative data paths start; default: the folder of the job file")
      ->type_name("DIR");
  return app
      .add_option("--emulate", cluster.emulate_path,
                  "Let workers take the times in this file for each pass (docs/emulation.md)")
      ->type_name("FILE");
}

absl::Status CheckClusterOptions(const ClusterOptions& cluster) {
  return cluster.emulate_path.empty() ? absl::OkStatus()
                                      : ReadDeviceTimes(cluster.emulate_path).status();
}

}  // namespace penstock
