// penstock profile: what this machine's device, or those of a cluster, take for every layer of a job's model.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"
#include "compute/device.h"
#include "job/profile/cluster_profile.h"
#include "job/profile/model_profile.h"
#include "job/resolve.h"
#include "job/yaml/yaml_writer.h"
#include "planner/job/measured_cluster.h"
#include "services/cli/commands/commands.h"
#include "services/cli/coordinator_client.h"
#include "services/cli/drawings.h"
#include "services/cli/interrupt.h"
#include "services/cli/job_file.h"
#include "services/cli/json_output.h"
#include "services/cli/profile_job.h"
#include "services/cli/profile_output.h"
#include "services/cli/work_display.h"
#include "worker/layer_profiler.h"

namespace penstock {
namespace {

constexpr char kAnyDevice[] = "auto";
constexpr char kDeviceVariable[] = "PENSTOCK_DEVICE";

struct ProfileOptions {
  JobFileOptions job;
  std::vector<int64_t> samples;  // empty: SizesAround the job's
  double seconds = LayerProfilerOptions().seconds;
  std::string device = kAnyDevice;
  CoordinatorOptions coordinator;  // empty: this machine alone
  int workers = 0;  // of the coordinator's, 0: all that are free; or of this machine, 0: one
  bool fresh = false;
  std::string output;
  std::string times_output;
  bool json = false;
};

// Profiles on as many workers of this machine as are to run on it, all at once, and returns the mean of what they take.
// The first one reports.
class WorkersHere {
 public:
  WorkersHere(const ResolvedJob& job, const ProfileOptions& options,
              const std::vector<int64_t>& samples)
      : job_(job), options_(options), samples_(samples) {}

  absl::StatusOr<v1::ModelProfile> Profile(Console& console) {
    // Signals are taken in before the back-ends start threads.
    PENSTOCK_ASSIGN_OR_RETURN(Interrupt interrupt, Interrupt::Create());
    PENSTOCK_ASSIGN_OR_RETURN(const Device device, ParseDevice(options_.device));
    WorkDisplay display("measurement", console, RealClock());
    const int workers = std::max(options_.workers, 1);
    std::vector<absl::StatusOr<v1::ModelProfile>> profiles(workers);
    std::vector<std::thread> others;
    for (int i = 1; i < workers; ++i) {
      others.emplace_back([&, i] {
        profiles[i] =
            Measure(device, nullptr, [](const ProfilerProgress&) { return absl::OkStatus(); });
      });
    }
    profiles[0] = Measure(device, &interrupt, [&](const ProfilerProgress& progress) {
      display.Draw(progress.done, progress.total,
                   absl::StrCat(progress.layers, ", ", progress.samples, " samples"));
      return absl::OkStatus();
    });
    for (std::thread& other : others) other.join();
    std::vector<v1::ModelProfile> measured;
    for (absl::StatusOr<v1::ModelProfile>& profile : profiles) {
      if (!profile.ok() && !absl::IsAborted(profile.status())) return profile.status();
    }
    for (absl::StatusOr<v1::ModelProfile>& profile : profiles) {
      PENSTOCK_RETURN_IF_ERROR(profile.status());
      measured.push_back(*std::move(profile));
    }
    return MeanTimes(measured);
  }

 private:
  // An error ends the others, too. `interrupt` ends this one; null: nothing does.
  absl::StatusOr<v1::ModelProfile> Measure(
      Device device, Interrupt* interrupt,
      const std::function<absl::Status(const ProfilerProgress&)>& on_progress) {
    absl::StatusOr<v1::ModelProfile> profile = MeasureOn(device, interrupt, on_progress);
    if (!profile.ok()) failed_ = true;
    return profile;
  }

  absl::StatusOr<v1::ModelProfile> MeasureOn(
      Device device, Interrupt* interrupt,
      const std::function<absl::Status(const ProfilerProgress&)>& on_progress) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend,
                              MakeBackendOn(device, job_.threads, job_.repeatability));
    return ProfileLayers(
        *backend, job_.model,
        {.samples = samples_,
         .precision = job_.precision,
         .optimizer = job_.optimizer,
         .seed = job_.seed,
         .seconds = options_.seconds,
         .memory_bytes = backend->memory_bytes(/*processes=*/1) / 2 / std::max(options_.workers, 1),
         .may_go_on = [this, interrupt]() -> absl::Status {
           if (interrupt != nullptr && interrupt->Count() > 0) {
             return InterruptedError("interrupted; nothing was written");
           }
           return failed_ ? absl::AbortedError("another worker failed") : absl::OkStatus();
         }},
        RealClock(), on_progress);
  }

  const ResolvedJob& job_;
  const ProfileOptions& options_;
  const std::vector<int64_t>& samples_;
  std::atomic<bool> failed_ = false;
};

absl::Status WriteFile(const std::string& path, const std::string& text, Console& console) {
  PENSTOCK_RETURN_IF_ERROR(WriteTextFile(path, text));
  console.err << "wrote " << path << "\n";
  return absl::OkStatus();
}

// A file that cannot be written should be found before the work.
absl::Status CheckFiles(const ProfileOptions& options, const std::vector<int64_t>& samples,
                        const ResolvedJob& job) {
  for (const std::string& path : {options.output, options.times_output}) {
    if (!path.empty()) PENSTOCK_RETURN_IF_ERROR(CheckCanWrite(path));
  }
  const int64_t of_job = job.microbatch_samples;
  if (options.times_output.empty() || (samples.front() <= of_job && of_job <= samples.back())) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("--times: the job's microbatches have ", of_job,
                                                 " samples, which is not among --samples; add ",
                                                 of_job));
}

absl::Status WriteTimes(const ProfileOptions& options, const v1::ModelProfile& profile,
                        const ResolvedJob& job, Console& console) {
  if (options.times_output.empty()) return absl::OkStatus();
  PENSTOCK_ASSIGN_OR_RETURN(const v1::DeviceTimes times,
                            DeviceTimesOf(profile, job.microbatch_samples));
  return WriteFile(options.times_output, WriteYamlMessage(times, "Measured by `penstock profile`."),
                   console);
}

template <typename Message>
void Print(const Message& profile, const ProfileOptions& options, Console& console) {
  if (options.json) {
    PrintJson(ProfileJson(profile), console);
  } else {
    console.out << ProfileText(profile);
  }
}

absl::Status RunHere(const ProfileOptions& options, const ResolvedJob& job,
                     const std::vector<int64_t>& samples, Console& console) {
  PENSTOCK_ASSIGN_OR_RETURN(const v1::ModelProfile profile,
                            WorkersHere(job, options, samples).Profile(console));
  Print(profile, options, console);
  if (!options.output.empty()) {
    PENSTOCK_RETURN_IF_ERROR(WriteFile(options.output, PrintModelProfile(profile), console));
  }
  return WriteTimes(options, profile, job, console);
}

absl::Status RunOnCluster(const ProfileOptions& options, const v1::JobSpec& spec,
                          const ResolvedJob& job, const std::vector<int64_t>& samples,
                          Console& console) {
  // The environment's is for commands that compute here.
  const char* of_environment = std::getenv(kDeviceVariable);
  if (options.device != (of_environment == nullptr ? kAnyDevice : of_environment)) {
    return absl::InvalidArgumentError(
        "--device: is of this machine; the workers of --coordinator were started with theirs");
  }
  PENSTOCK_ASSIGN_OR_RETURN(Interrupt interrupt, Interrupt::Create());
  PENSTOCK_ASSIGN_OR_RETURN(CoordinatorClient client,
                            CoordinatorClient::Connect(options.coordinator));
  v1::ProfileSpec asked;
  asked.mutable_samples()->Assign(samples.begin(), samples.end());
  asked.set_seconds(options.seconds);
  asked.set_workers(options.workers);
  asked.set_fresh(options.fresh);
  PENSTOCK_ASSIGN_OR_RETURN(const v1::ClusterProfile profile,
                            ProfileCluster(client, spec, asked, interrupt, console, RealClock()));
  Print(profile, options, console);
  if (!options.output.empty()) {
    PENSTOCK_RETURN_IF_ERROR(WriteFile(options.output, PrintClusterProfile(profile), console));
  }
  if (!options.times_output.empty() && profile.devices_size() > 1) {
    return absl::FailedPreconditionError(absl::StrCat(
        "--times: the cluster has ", profile.devices_size(),
        " kinds of devices, and such a file is of one; profile one of them with --device"));
  }
  return WriteTimes(options, profile.devices(0).model(), job, console);
}

absl::Status RunProfile(const ProfileOptions& options, Console& console) {
  PENSTOCK_ASSIGN_OR_RETURN(const v1::JobSpec spec, LoadJob(options.job));
  PENSTOCK_ASSIGN_OR_RETURN(const ResolvedJob job, ResolveJob(spec));
  const std::vector<int64_t> samples = options.samples.empty() ? SizesAround(job) : options.samples;
  PENSTOCK_RETURN_IF_ERROR(CheckFiles(options, samples, job));
  return options.coordinator.address.empty() ? RunHere(options, job, samples, console)
                                             : RunOnCluster(options, spec, job, samples, console);
}

}  // namespace

CommandRunner DeclareProfile(CLI::App& app) {
  const auto options = std::make_shared<ProfileOptions>();
  AddJobSourceOptions(app, options->job);
  app.add_option("--samples", options->samples,
                 "Samples in a microbatch, one size or several ascending; default: half as many as "
                 "the job's, as many, and twice as many")
      ->type_name("N,...")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--seconds", options->seconds, "Least time to spend on each layer and size")
      ->type_name("S")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  app.add_option("--device", options->device,
                 "The device to measure here: cpu, cuda:N, or auto (a GPU or the CPU)")
      ->envname(kDeviceVariable)
      ->check([](const std::string& text) {
        return std::string(ParseDevice(text).status().message());
      });
  CLI::Option* coordinator = app.add_option("--coordinator", options->coordinator.address,
                                            "Measure the workers of the coordinator at HOST:PORT: "
                                            "each kind of device, and the links")
                                 ->type_name("ADDRESS");
  app.add_option("--workers", options->workers,
                 "Workers that measure at once: of the coordinator, default all that are free; or "
                 "on this machine, as many as will train on it, default one")
      ->type_name("N")
      ->check(CLI::Range(1, kProfileWorkersMax));
  AddSecurityFlags(app, options->coordinator.security);
  app.add_flag("--fresh", options->fresh,
               "Time layers although the coordinator knows their times from an earlier profile")
      ->needs(coordinator);
  app.add_option("-o,--output", options->output, "Write the profile to this file, as YAML")
      ->type_name("FILE");
  app.add_option("--times", options->times_output,
                 "Write the times of the job's own microbatches, for `compare --times`")
      ->type_name("FILE");
  app.add_flag("--json", options->json, "Print JSON");
  return [options](Console& console) { return RunProfile(*options, console); };
}

}  // namespace penstock
