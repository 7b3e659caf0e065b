// penstock theory: the studies of "Demystifying Pipeline Parallelism" (arXiv 2606.03498), and PipeDream's own
// experiment, on this machine.
#include <algorithm>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/status.h"
#include "services/cli/interrupt.h"
#include "studies/command/commands.h"
#include "studies/command/drawn_numbers.h"
#include "studies/command/study_output.h"
#include "studies/command/study_runner.h"
#include "studies/command/training_runner.h"
#include "studies/experiments/language_model_study.h"
#include "studies/experiments/pipedream_study.h"
#include "studies/experiments/race_study.h"
#include "studies/theory/libsvm.h"
#include "studies/theory/studies.h"

namespace penstock {
namespace {

constexpr int64_t kDataBytesMax = int64_t{1} << 30;
constexpr double kL2 = 1e-4;
constexpr int64_t kFeaturesMin = 16;  // the stages of local-sgd
constexpr int64_t kRowsMin = 10;
constexpr int64_t kSeeds = 5;
constexpr char kLanguageModel[] = "language-model";
constexpr char kLanguageModelSummary[] = "PipeDream and LocalSGD train a network, over time";
constexpr char kDrawn[] = "drawn";
constexpr char kDrawnSummary[] = "points of figure 2b from the numbers that the authors' code drew";
constexpr char kPipeDream[] = "pipedream";
constexpr char kPipeDreamSummary[] =
    "the experiment of PipeDream's authors, on their profiles, in simulated time";

struct TheoryOptions {
  std::string study;
  std::optional<int64_t> seeds_given;
  std::string data_path;
  bool caption = false;
  bool full = false;
  std::optional<int64_t> microbatches;
  std::vector<int64_t> local_steps;
  std::string output = "theory-results";
  int threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  bool json = false;

  int64_t seeds() const { return seeds_given.value_or(kSeeds); }
};

struct Study {
  const char* name;
  const char* summary;
  bool takes_data;
  bool has_caption;  // which says something else than what was plotted
  absl::StatusOr<StudyResult> (*run)(const TheoryOptions& options, const Problem* data,
                                     StudyContext& context);
};

// What made the plotted curves, or what the caption of the figure says, which is also for data of one's own.
template <typename SomeStudy>
SomeStudy SettingsOf(const TheoryOptions& options, const Problem* data = nullptr) {
  SomeStudy study = options.caption || data != nullptr ? SomeStudy::Caption() : SomeStudy();
  study.seeds = options.seeds();
  return study;
}

constexpr Study kStudies[] = {
    {"delays", "PipeDream's delay against stages", false, false,
     [](const TheoryOptions&, const Problem*, StudyContext& context) {
       return RunDelayStudy({}, context);
     }},
    {"quadratic", "PipeDream and RPD on the random quadratic", false, true,
     [](const TheoryOptions& options, const Problem*, StudyContext& context) {
       return RunQuadraticStudy(SettingsOf<QuadraticStudy>(options), context);
     }},
    {"logistic", "logistic regression against stages, in a fixed time", true, true,
     [](const TheoryOptions& options, const Problem* data, StudyContext& context) {
       auto study = SettingsOf<LogisticStudy>(options, data);
       study.data = data;
       // A stage holds at least one feature.
       if (data != nullptr) {
         std::erase_if(study.stages, [&](int32_t stages) { return stages > data->width(); });
       }
       return RunLogisticStudy(study, context);
     }},
    {"local-sgd", "PipeDream and LocalSGD over time", true, true,
     [](const TheoryOptions& options, const Problem* data, StudyContext& context) {
       auto study = SettingsOf<LocalSgdStudy>(options, data);
       study.data = data;
       return RunLocalSgdStudy(study, context);
     }},
    {"race", "whether races choose the first method", true, false,
     [](const TheoryOptions& options, const Problem* data, StudyContext& context) {
       return RunRaceStudy({.seeds = options.seeds(), .data = data}, context);
     }},
    {"bound", "both sides of theorem 4.1 along a run", false, false,
     [](const TheoryOptions& options, const Problem*, StudyContext& context) {
       return RunBoundStudy({.seeds = options.seeds()}, context);
     }},
};

// Null: it is none of linear models that draw their own numbers.
const Study* FindStudy(const std::string& name) {
  const auto* const found = std::find_if(std::begin(kStudies), std::end(kStudies),
                                         [&](const Study& study) { return study.name == name; });
  return found == std::end(kStudies) ? nullptr : found;
}

absl::StatusOr<std::optional<Problem>> LoadData(const TheoryOptions& options, const Study& study) {
  if (options.data_path.empty()) return std::nullopt;
  if (!study.takes_data) {
    return absl::InvalidArgumentError(
        absl::StrCat("--data: the study ", study.name, " has no use for data"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text,
                            RealFiles().Read(options.data_path, kDataBytesMax));
  PENSTOCK_ASSIGN_OR_RETURN(Problem problem, ParseLibsvm(text, options.data_path, kL2));
  if (problem.width() < kFeaturesMin) {
    return absl::InvalidArgumentError(absl::StrCat(options.data_path, ": has ", problem.width(),
                                                   " features; the studies need at least ",
                                                   kFeaturesMin, ", one for each stage"));
  }
  if (problem.rows() < kRowsMin) {
    return absl::InvalidArgumentError(absl::StrCat(options.data_path, ": has ", problem.rows(),
                                                   " rows; a minibatch alone has ", kRowsMin));
  }
  PENSTOCK_ASSIGN_OR_RETURN(problem.optimum, MinimizeLogistic(problem));
  return problem;
}

absl::Status CheckFlags(const TheoryOptions& options) {
  const bool trains = options.study == kLanguageModel;
  const Study* const study = FindStudy(options.study);
  if ((options.study == kPipeDream || options.study == kDrawn) && options.seeds_given.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--seeds: the study ", options.study, " leaves nothing to chance"));
  }
  if (options.caption && (study == nullptr || !study->has_caption || !options.data_path.empty())) {
    return absl::InvalidArgumentError(
        "--caption: is for figures whose caption says something else than what was plotted; use it "
        "with the studies quadratic, logistic and local-sgd, without --data");
  }
  if (trains && options.seeds_given.has_value()) {
    return absl::InvalidArgumentError(
        "--seeds: the study language-model has one seed, as in the paper");
  }
  if (!trains && options.full) {
    return absl::InvalidArgumentError("--full: is a flag of the study language-model");
  }
  if (!trains && options.microbatches.has_value()) {
    return absl::InvalidArgumentError("--microbatches: is a flag of the study language-model");
  }
  if (!trains && !options.local_steps.empty()) {
    return absl::InvalidArgumentError("--local-steps: is a flag of the study language-model");
  }
  return absl::OkStatus();
}

absl::StatusOr<StudyResult> RunLinear(const TheoryOptions& options, Console& console,
                                      Interrupt& interrupt) {
  const Study& study = *FindStudy(options.study);
  PENSTOCK_ASSIGN_OR_RETURN(const std::optional<Problem> data, LoadData(options, study));
  // A file that cannot be written should be found before the work.
  PENSTOCK_RETURN_IF_ERROR(RealFiles().CreateDirectories(options.output));
  StudyRunner runner(options.threads, console, RealClock(), interrupt);
  return study.run(options, data.has_value() ? &*data : nullptr, runner);
}

// The study that trains a network.
absl::StatusOr<StudyResult> RunLanguageModel(const TheoryOptions& options, Console& console,
                                             Interrupt& interrupt) {
  if (options.data_path.empty()) {
    return absl::InvalidArgumentError(
        "--data: the study language-model needs a text; give Tiny Shakespeare, as the paper has "
        "it, or another of about a megabyte");
  }
  LanguageModelStudy study = {.text_path = options.data_path};
  if (options.full) {
    study.local_steps = {1, 4, 8};
    study.learning_rates = LanguageModelGrid();
  }
  if (!options.local_steps.empty()) study.local_steps = options.local_steps;
  if (options.microbatches.has_value()) study.microbatches = *options.microbatches;
  TrainingRunner runner(options.threads, console, RealClock(), interrupt);
  return RunLanguageModelStudy(std::move(study), JoinPath(options.output, "language-model-runs"),
                               RealFiles(), runner);
}

// The study of numbers that others drew.
absl::StatusOr<StudyResult> RunDrawn(const TheoryOptions& options, Console& console,
                                     Interrupt& interrupt) {
  if (options.data_path.empty()) {
    return absl::InvalidArgumentError(
        "--data: the study drawn needs the file that studies/theory/draw_numbers.py writes");
  }
  PENSTOCK_ASSIGN_OR_RETURN(const std::string file,
                            RealFiles().Read(options.data_path, kDataBytesMax));
  PENSTOCK_ASSIGN_OR_RETURN(const DrawnNumbers numbers, ParseDrawnNumbers(file, options.data_path));
  PENSTOCK_RETURN_IF_ERROR(RealFiles().CreateDirectories(options.output));
  StudyRunner runner(options.threads, console, RealClock(), interrupt);
  return RunDrawnStudy({.numbers = &numbers}, runner);
}

// The study that plans what others profiled.
absl::StatusOr<StudyResult> RunPipeDream(const TheoryOptions& options, Console& console,
                                         Interrupt& interrupt) {
  if (options.data_path.empty()) {
    return absl::InvalidArgumentError(
        "--data: the study pipedream needs a directory with PipeDream's profiles: vgg16.txt, "
        "resnet50.txt, alexnet.txt, gnmt.txt and gnmt_large.txt");
  }
  PipeDreamStudy study;
  PENSTOCK_ASSIGN_OR_RETURN(study.models, ReadPipeDreamModels(RealFiles(), options.data_path));
  PENSTOCK_RETURN_IF_ERROR(RealFiles().CreateDirectories(options.output));
  StudyRunner runner(options.threads, console, RealClock(), interrupt);
  return RunPipeDreamStudy(study, runner);
}

absl::StatusOr<StudyResult> RunStudy(const TheoryOptions& options, Console& console,
                                     Interrupt& interrupt) {
  if (options.study == kLanguageModel) return RunLanguageModel(options, console, interrupt);
  if (options.study == kPipeDream) return RunPipeDream(options, console, interrupt);
  if (options.study == kDrawn) return RunDrawn(options, console, interrupt);
  return RunLinear(options, console, interrupt);
}

absl::Status RunTheory(const TheoryOptions& options, Console& console) {
  PENSTOCK_RETURN_IF_ERROR(CheckFlags(options));
  PENSTOCK_ASSIGN_OR_RETURN(Interrupt interrupt, Interrupt::Create());
  const int64_t start_ns = RealClock().MonotonicNs();
  const absl::StatusOr<StudyResult> result = RunStudy(options, console, interrupt);
  PENSTOCK_RETURN_IF_ERROR(result.status());
  const double seconds = static_cast<double>(RealClock().MonotonicNs() - start_ns) * 1e-9;
  return ShowStudy({.directory = options.output,
                    .study = options.study,
                    .text = StudyText(*result),
                    .json = options.json,
                    .seconds = seconds},
                   *result, console);
}

}  // namespace

CommandRunner DeclareTheory(CLI::App& app) {
  const auto options = std::make_shared<TheoryOptions>();
  std::vector<std::string> names;
  std::string summaries;
  for (const Study& study : kStudies) {
    names.emplace_back(study.name);
    absl::StrAppend(&summaries, study.name, ": ", study.summary, "; ");
  }
  names.emplace_back(kLanguageModel);
  names.emplace_back(kPipeDream);
  names.emplace_back(kDrawn);
  absl::StrAppend(&summaries, kDrawn, ": ", kDrawnSummary, "; ", kLanguageModel, ": ",
                  kLanguageModelSummary, "; ", kPipeDream, ": ", kPipeDreamSummary);
  app.add_option("STUDY", options->study, summaries)
      ->required()
      ->type_name("")
      ->check(CLI::IsMember(names));
  app.add_option("--seeds", options->seeds_given,
                 absl::StrCat("Problems and seeds to repeat the study with; default: ", kSeeds))
      ->type_name("N")
      ->check(CLI::Range(1, 1000));
  app.add_option(
         "--data", options->data_path,
         "A LIBSVM file instead of synthetic logistic regression; for language-model the text, for "
         "pipedream the directory of the profiles, for drawn the file of draw_numbers.py")
      ->type_name("FILE");
  app.add_flag("--caption", options->caption,
               "quadratic, logistic, local-sgd: the settings of the figure's caption, and not "
               "those that made the plotted curves");
  app.add_flag("--full", options->full,
               "language-model: tune the step sizes, with 1, 4 and 8 local steps; takes hours");
  app.add_option(
         "--microbatches", options->microbatches,
         "language-model: microbatches that PipeDream trains, the budget of all; default: 1024")
      ->type_name("N");
  app.add_option("--local-steps", options->local_steps,
                 "language-model: local steps of LocalSGD, each a method of its own; default: 4, "
                 "and the figure also has 1 and 8")
      ->type_name("H")
      ->delimiter(',')
      ->check(CLI::Range(1, 1000));
  app.add_option("-o,--output", options->output, "Where CSV and SVG files go")
      ->type_name("DIR")
      ->capture_default_str();
  app.add_option("--threads", options->threads, "Runs at a time; default: one for each core")
      ->type_name("N")
      ->check(CLI::Range(1, 1024));
  app.add_flag("--json", options->json, "Print JSON");
  return [options](Console& console) { return RunTheory(*options, console); };
}

}  // namespace penstock
