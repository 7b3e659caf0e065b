// penstock compare: several methods train one job; which reaches a loss first?
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/status.h"
#include "job/profile/device_times.h"
#include "services/cli/cluster_options.h"
#include "services/cli/command_text.h"
#include "services/cli/coordinator_client.h"
#include "services/cli/follow.h"
#include "services/cli/interrupt.h"
#include "services/cli/local_cluster.h"
#include "services/cli/text.h"
#include "services/cli/train_job.h"
#include "studies/command/commands.h"
#include "studies/command/method_comparison.h"
#include "studies/command/result_files.h"
#include "studies/command/study_output.h"

namespace penstock {
namespace {

struct CompareOptions {
  TrainJobOptions job;
  std::vector<std::string> methods;
  std::optional<double> until;
  std::string times_path;
  ClusterOptions cluster;
  std::string output = "compare-results";
  std::vector<std::string> result_paths;
  bool json = false;
};

// A method's part: what it trains, and the processes for it.
struct Contender {
  std::string method;
  TrainJob train;
  std::unique_ptr<LocalCluster> cluster;
};

// Everything that can be wrong with any method is found before the first one trains.
absl::StatusOr<std::vector<Contender>> Prepare(const CompareOptions& options, Console& console) {
  std::vector<Contender> contenders;
  for (const std::string& method : options.methods) {
    TrainJobOptions job = options.job;
    job.job.method = method;
    job.job.method_flag = "--methods";
    // A comparison leaves no checkpoints and starts from none.
    job.job.overrides.push_back("checkpoint={}");
    absl::StatusOr<TrainJob> train = PrepareTrainJob(RealFiles(), job);
    if (!train.ok()) return Annotate(train.status(), method);
    if (contenders.empty()) console.err << train->notes;  // the same for all
    if (train->spec.pipeline().order() == "recorded") {
      return absl::InvalidArgumentError(absl::StrCat(
          options.job.job.path,
          ": pipeline.order: is recorded; methods are compared in simulated time, which "
          "is that of the static order: use --set pipeline.order=static"));
    }
    if (train->spec.validation().every_steps() == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(options.job.job.path,
                       ": validation.every_steps: is 0; methods are compared by validation loss: "
                       "give the steps between two validations, as in --set "
                       "validation.every_steps=20"));
    }
    contenders.push_back({.method = method, .train = *std::move(train)});
  }
  // Supervisors are forked while this process has one thread.
  for (Contender& contender : contenders) {
    const TrainJob& train = contender.train;
    PENSTOCK_ASSIGN_OR_RETURN(contender.cluster,
                              LocalCluster::Fork({.workers = train.workers,
                                                  .device = options.cluster.device,
                                                  .emulate = options.cluster.emulate_path,
                                                  .threads = train.spec.training().threads(),
                                                  .data_root = train.data_root}));
  }
  return contenders;
}

absl::StatusOr<v1::GetJobResponse> Train(Contender& contender, const CompareOptions& options,
                                         Interrupt& interrupt, Console& console) {
  LocalCluster& cluster = *contender.cluster;
  PENSTOCK_RETURN_IF_ERROR(cluster.Start(RealClock()));
  CoordinatorClient client = cluster.Connect();
  PENSTOCK_ASSIGN_OR_RETURN(const std::string job_id, client.SubmitJob(contender.train.spec));
  const auto enough = [&](const v1::JobEvent& event) {
    return options.until.has_value() && event.has_validation_done() &&
           event.validation_done().loss() <= *options.until;
  };
  PENSTOCK_ASSIGN_OR_RETURN(
      v1::GetJobResponse job,
      FollowJob(client, job_id, interrupt, console, RealClock(),
                {.enough = enough, .health = [&] { return cluster.Health(); }}));
  const bool failed = job.summary().state() == v1::JOB_STATE_FAILED;
  cluster.Stop(failed ? absl::ZeroDuration() : LocalCluster::kStopGrace);
  if (interrupt.Count() > 0) return InterruptedError("interrupted; nothing was written");
  if (failed) return FailedError(job.summary().error());
  return job;
}

absl::StatusOr<v1::DeviceTimes> TimesOf(const CompareOptions& options,
                                        const v1::GetJobResponse& first) {
  const std::string& path =
      options.times_path.empty() ? options.cluster.emulate_path : options.times_path;
  return path.empty() ? MeasuredTimes(first) : ReadDeviceTimes(path);
}

absl::Status RunCompare(const CompareOptions& options, Console& console) {
  if (!options.result_paths.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::string table, CompareResultFiles(options.result_paths));
    console.out << table;
    return absl::OkStatus();
  }
  PENSTOCK_RETURN_IF_ERROR(CheckClusterOptions(options.cluster));
  if (!options.times_path.empty()) {
    PENSTOCK_RETURN_IF_ERROR(ReadDeviceTimes(options.times_path).status());
  }
  PENSTOCK_RETURN_IF_ERROR(RealFiles().CreateDirectories(options.output));
  PENSTOCK_ASSIGN_OR_RETURN(Interrupt interrupt, Interrupt::Create());
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<Contender> contenders, Prepare(options, console));

  const int64_t start_ns = RealClock().MonotonicNs();
  std::vector<v1::GetJobResponse> jobs;
  std::vector<std::string> failed;  // what became of the others
  for (Contender& contender : contenders) {
    console.err << contender.method << " (" << jobs.size() + failed.size() + 1 << " of "
                << contenders.size() << ")\n"
                << std::flush;
    absl::StatusOr<v1::GetJobResponse> job = Train(contender, options, interrupt, console);
    if (!job.ok() && interrupt.Count() > 0) return Annotate(job.status(), contender.method);
    if (job.ok()) {
      jobs.push_back(*std::move(job));
      continue;
    }
    contender.cluster->Stop(absl::ZeroDuration());
    // That a method cannot train this job says something about the method; the others go on.
    failed.push_back(absl::StrCat(contender.method, ": ", job.status().message()));
    console.err << failed.back() << "\n";
  }
  if (jobs.empty()) return FailedError(absl::StrJoin(failed, "\n"));
  PENSTOCK_ASSIGN_OR_RETURN(const v1::DeviceTimes times, TimesOf(options, jobs.front()));
  PENSTOCK_ASSIGN_OR_RETURN(const StudyResult result, CompareMethods(jobs, times, options.until));
  const double seconds = static_cast<double>(RealClock().MonotonicNs() - start_ns) * 1e-9;
  PENSTOCK_RETURN_IF_ERROR(ShowStudy({.directory = options.output,
                                      .study = "compare",
                                      .text = ComparisonText(result),
                                      .json = options.json,
                                      .seconds = seconds},
                                     result, console));
  if (failed.empty()) return absl::OkStatus();
  return FailedError(
      absl::StrCat("not compared, because training failed:\n", absl::StrJoin(failed, "\n")));
}

}  // namespace

CommandRunner DeclareCompare(CLI::App& app) {
  const auto options = std::make_shared<CompareOptions>();
  CLI::Option* job = AddJobSourceOptions(app, options->job.job);
  CLI::Option* methods =
      app.add_option("--methods", options->methods, "The methods, compared with the first of them");
  methods->type_name("NAME[,NAME...]")->delimiter(',')->check(KnownMethods({"searched"}));
  app.add_option("--until", options->until,
                 "The validation loss to reach, where a method stops; default: all train to the "
                 "end, and the lowest loss that all reach counts")
      ->type_name("LOSS")
      ->check(CLI::PositiveNumber);
  AddClusterOptions(app, options->job, options->cluster);
  app.add_option(
         "--times", options->times_path,
         "Count simulated time on devices with these times; default: those measured with the "
         "first method")
      ->type_name("FILE");
  app.add_option("-o,--output", options->output, "Where CSV and SVG files go")
      ->type_name("DIR")
      ->capture_default_str();
  app.add_flag("--json", options->json, "Print JSON");
  app.add_option("--results", options->result_paths,
                 "Compare results that `penstock train --json` printed, without training")
      ->type_name("RESULT.json ...");
  job->required(false);
  return [options, job, methods](Console& console) -> absl::Status {
    if (options->result_paths.empty() && (job->count() == 0 || methods->count() == 0)) {
      return absl::InvalidArgumentError(
          "expected JOB.yaml and --methods NAME,NAME (or --results RESULT.json ...)");
    }
    return RunCompare(*options, console);
  };
}

}  // namespace penstock
