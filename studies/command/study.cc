// penstock study: a method's own experiment, trained in this process and stamped with simulated time; how well the
// curves of finished runs are forecast; and which method is fastest over the internet.
#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/status.h"
#include "job/profile/model_profile.h"
#include "services/cli/interrupt.h"
#include "studies/command/commands.h"
#include "studies/command/curve_files.h"
#include "studies/command/study_output.h"
#include "studies/command/study_runner.h"
#include "studies/command/training_runner.h"
#include "studies/experiments/forecast_study.h"
#include "studies/experiments/internet_study.h"
#include "studies/experiments/paci_study.h"

namespace penstock {
namespace {

constexpr char kPaci[] = "paci";
constexpr char kForecast[] = "forecast";
constexpr char kInternet[] = "internet";
constexpr int64_t kStepsMax = 10'000'000;
constexpr int64_t kBatchMax = 65'536;
constexpr double kRateMin = 1e-6;
constexpr double kRateMax = 1e3;
constexpr int kHostsMax = 4096;
constexpr int kBlocksMax = 100'000;
constexpr int64_t kMicrobatchesMax = 1'000'000;

struct StudyOptions {
  std::string study;
  PaciStudy paci;
  bool only_finished = false;
  std::vector<std::string> curves;
  double seen_percent = 30;
  std::string profile_path;
  InternetStudy internet;
  std::string output = "study-results";
  int threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  bool json = false;
};

absl::StatusOr<StudyResult> RunPaci(const StudyOptions& options, Console& console,
                                    Interrupt& interrupt) {
  if (options.paci.text_path.empty()) {
    return absl::InvalidArgumentError(
        "--data: the study paci needs a text; give Tiny Shakespeare, or another of about a "
        "megabyte");
  }
  TrainingRunner runner(options.threads, console, RealClock(), interrupt);
  return RunPaciStudy(
      options.paci,
      {.directory = JoinPath(options.output, "paci-runs"), .only_finished = options.only_finished},
      RealFiles(), runner);
}

absl::StatusOr<StudyResult> RunForecast(const StudyOptions& options) {
  if (options.curves.empty()) {
    return absl::InvalidArgumentError(
        "--curves: the study forecast needs curves; give folders or files of finished runs, such "
        "as study-results/paci-runs");
  }
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<FinishedCurve> curves,
                            ReadCurveFiles(RealFiles(), options.curves));
  return RunForecastStudy(curves, options.seen_percent / 100);
}

absl::StatusOr<StudyResult> RunInternet(const StudyOptions& options, Console& console,
                                        Interrupt& interrupt) {
  if (options.profile_path.empty()) {
    return absl::InvalidArgumentError(
        "--profile: the study internet needs the measured times of a model; give the file that "
        "`penstock profile JOB.yaml -o FILE` wrote");
  }
  PENSTOCK_ASSIGN_OR_RETURN(const v1::ModelProfile profile, ReadModelProfile(options.profile_path));
  StudyRunner runner(options.threads, console, RealClock(), interrupt);
  return RunInternetStudy(options.internet, profile, runner);
}

absl::StatusOr<StudyResult> RunStudy(const StudyOptions& options, Console& console,
                                     Interrupt& interrupt) {
  if (options.study == kForecast) return RunForecast(options);
  if (options.study == kInternet) return RunInternet(options, console, interrupt);
  return RunPaci(options, console, interrupt);
}

absl::Status RunStudyCommand(const StudyOptions& options, Console& console) {
  PENSTOCK_ASSIGN_OR_RETURN(Interrupt interrupt, Interrupt::Create());
  const int64_t start_ns = RealClock().MonotonicNs();
  PENSTOCK_ASSIGN_OR_RETURN(const StudyResult result, RunStudy(options, console, interrupt));
  const double seconds = static_cast<double>(RealClock().MonotonicNs() - start_ns) * 1e-9;
  return ShowStudy({.directory = options.output,
                    .study = options.study,
                    .text = StudyText(result),
                    .json = options.json,
                    .seconds = seconds},
                   result, console);
}

}  // namespace

CommandRunner DeclareStudy(CLI::App& app) {
  const auto options = std::make_shared<StudyOptions>();
  std::vector<std::string> optimizers;
  std::vector<std::string> rates;
  std::vector<std::string> lengths;
  for (const PaciOptimizer& optimizer : kPaciOptimizers) {
    optimizers.emplace_back(optimizer.name);
    rates.push_back(absl::StrCat(optimizer.learning_rate, " with ", optimizer.name));
    lengths.push_back(absl::StrCat(optimizer.steps, " with ", optimizer.name));
  }
  app.add_option(
         "STUDY", options->study,
         "paci: PACI against Flush, zb-h1 and zb-h2, in the time to a loss; "
         "forecast: when finished runs reached a loss, forecast from their beginnings; "
         "internet: which method is fastest with which bandwidth and latency between hosts, "
         "by the measured times of a model")
      ->required()
      ->type_name("")
      ->check(CLI::IsMember({kPaci, kForecast, kInternet}));
  PaciStudy& paci = options->paci;
  app.add_option("--data", paci.text_path, "The text to train on, such as Tiny Shakespeare")
      ->type_name("FILE");
  app.add_option("--optimizer", paci.optimizers,
                 absl::StrCat("The optimizers; default: ", absl::StrJoin(optimizers, ",")))
      ->type_name("LIST")
      ->delimiter(',')
      ->check(CLI::IsMember(optimizers));
  app.add_option("--rate", paci.learning_rates,
                 absl::StrCat("The learning rates, each with each optimizer; default: ",
                              absl::StrJoin(rates, ", ")))
      ->type_name("LIST")
      ->delimiter(',')
      ->check(CLI::Range(kRateMin, kRateMax));
  app.add_option("--batch", paci.batches,
                 "The samples of a step, multiples of 8, the microbatches; default: 8")
      ->type_name("LIST")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, kBatchMax));
  app.add_option("--steps", paci.steps,
                 absl::StrCat("The lengths of training; default: ", absl::StrJoin(lengths, ", ")))
      ->type_name("LIST")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, kStepsMax));
  app.add_option("--seeds", paci.seeds, "Seeds of weights and of the order of samples")
      ->type_name("N")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  app.add_flag("--finished", options->only_finished,
               "Train nothing; report what all runs are finished of");
  app.add_option("--curves", options->curves,
                 "Of forecast: folders and files with the curves of finished runs")
      ->type_name("LIST")
      ->delimiter(',');
  app.add_option("--seen", options->seen_percent,
                 "Of forecast: the percent of each run that is known")
      ->type_name("PERCENT")
      ->capture_default_str()
      ->check(CLI::Range(1, 99));
  InternetStudy& internet = options->internet;
  app.add_option("--profile", options->profile_path,
                 "Of internet: the measured times of a model, as `penstock profile -o` writes them")
      ->type_name("FILE");
  app.add_option("--hosts", internet.hosts, "Of internet: the hosts, each with one worker")
      ->type_name("N")
      ->capture_default_str()
      ->check(CLI::Range(2, kHostsMax));
  app.add_option("--blocks", internet.blocks,
                 "Of internet: how many equal blocks the deeper model has; default: as few as "
                 "give each host two stages, none of them shorter than the longest layer")
      ->type_name("N")
      ->check(CLI::Range(1, kBlocksMax));
  app.add_option("--samples", internet.samples,
                 "Of internet: the samples of a microbatch; default: the most that were measured")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, kBatchMax));
  app.add_option("--speed", internet.speed,
                 "Of internet: how many times as fast as the measured device each host is")
      ->type_name("X")
      ->capture_default_str()
      ->check(CLI::Range(1e-3, 1e6));
  app.add_option("--gigabits", internet.gigabits,
                 "Of internet: the bandwidths of a host, each way; default: 1,2,5,10")
      ->type_name("LIST")
      ->delimiter(',')
      ->check(CLI::Range(1e-6, 1e6));
  app.add_option("--latency", internet.latencies_ms,
                 "Of internet: the latencies of all links in ms; default: 5,10,20,50")
      ->type_name("LIST")
      ->delimiter(',')
      ->check(CLI::Range(0.0, 1e5));
  app.add_option("--microbatches", internet.microbatches,
                 "Of internet: the microbatches of a step; default: as many as hosts, and four "
                 "times as many")
      ->type_name("LIST")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, kMicrobatchesMax));
  app.add_option(
         "--method", internet.methods,
         absl::StrCat("Of internet: the methods; default: ", absl::StrJoin(internet.methods, ", ")))
      ->type_name("LIST")
      ->delimiter(',');
  app.add_option("-o,--output", options->output,
                 "Where CSV and SVG files go, and where finished runs are kept and found")
      ->type_name("DIR")
      ->capture_default_str();
  app.add_option("--threads", options->threads, "Runs at a time; default: one for each core")
      ->type_name("N")
      ->check(CLI::Range(1, 1024));
  app.add_flag("--json", options->json, "Print JSON");
  return [options](Console& console) { return RunStudyCommand(*options, console); };
}

}  // namespace penstock
