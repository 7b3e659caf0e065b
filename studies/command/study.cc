// penstock study: a method's own experiment, trained in this process and stamped with simulated time, and how well the
// curves of finished runs are forecast.
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
#include "services/cli/interrupt.h"
#include "studies/command/commands.h"
#include "studies/command/curve_files.h"
#include "studies/command/study_output.h"
#include "studies/command/training_runner.h"
#include "studies/experiments/forecast_study.h"
#include "studies/experiments/paci_study.h"

namespace penstock {
namespace {

constexpr char kPaci[] = "paci";
constexpr char kForecast[] = "forecast";
constexpr int64_t kStepsMax = 10'000'000;
constexpr int64_t kBatchMax = 65'536;
constexpr double kRateMin = 1e-6;
constexpr double kRateMax = 1e3;

struct StudyOptions {
  std::string study;
  PaciStudy paci;
  bool only_finished = false;
  std::vector<std::string> curves;
  double seen_percent = 30;
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

absl::Status RunStudyCommand(const StudyOptions& options, Console& console) {
  PENSTOCK_ASSIGN_OR_RETURN(Interrupt interrupt, Interrupt::Create());
  const int64_t start_ns = RealClock().MonotonicNs();
  PENSTOCK_ASSIGN_OR_RETURN(const StudyResult result, options.study == kForecast
                                                          ? RunForecast(options)
                                                          : RunPaci(options, console, interrupt));
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
  app.add_option("STUDY", options->study,
                 "paci: PACI against Flush, zb-h1 and zb-h2, in the time to a loss; "
                 "forecast: when finished runs reached a loss, forecast from their beginnings")
      ->required()
      ->type_name("")
      ->check(CLI::IsMember({kPaci, kForecast}));
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
