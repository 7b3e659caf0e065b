#include "studies/experiments/paci_study.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/sha256.h"
#include "base/status.h"
#include "compute/backend.h"
#include "job/resolve.h"
#include "studies/experiments/kept_runs.h"
#include "studies/experiments/time_to_loss.h"
#include "worker/open_data.h"
#include "worker/reference.h"

namespace penstock {
namespace {

constexpr char kPaciDataRoot[] = ".";  // relative paths are the user's
constexpr const char* kTrained[] = {"1f1b", "paci"};
constexpr int64_t kThresholdPercents[] = {80, 90, 100};
constexpr double kSpeedupExpected = 1.75;

// One training: a method with a setting and a seed.
struct PaciRun {
  std::string name;  // of its file: "adamw-0.0003-batch8-8000-paci-seed1"
  v1::JobSpec job;
  v1::TrainedRun trained;  // its parameters; once it is finished also the losses
  bool finished = false;
};

// The runs of a setting, by method of kTrained and seed.
struct SettingRuns {
  PaciSetting setting;
  std::map<std::string, std::vector<PaciRun>> by_method;

  bool IsFinished() const {
    return std::all_of(by_method.begin(), by_method.end(), [](const auto& runs) {
      return std::all_of(runs.second.begin(), runs.second.end(),
                         [](const PaciRun& run) { return run.finished; });
    });
  }
  bool Diverged(absl::string_view method) const {
    const std::vector<PaciRun>& runs = by_method.at(std::string(method));
    return std::any_of(runs.begin(), runs.end(),
                       [](const PaciRun& run) { return run.trained.diverged(); });
  }
};

// A contender over time: by seed, and their mean.
struct ContenderCurves {
  PaciContender contender;
  std::vector<TimedCurve> by_seed;
  TimedCurve mean;
};

// How many times as fast PACI is as another method.
struct Speedup {
  double value = 0.0;
  bool reached = true;  // the other method got there
};

struct Threshold {
  int64_t percent = 0;
  double loss = 0.0;
  std::vector<Speedup> over;  // by contender but PACI, of the mean curves
  std::vector<double> seeds;  // over the first of them, each seed with a threshold of its own
};

struct SettingOutcome {
  PaciSetting setting;
  std::vector<ContenderCurves> curves;  // PACI, Flush, ...
  std::vector<Threshold> thresholds;
  double bound = 0.0;    // the time of a step of Flush over that of PACI
  std::string diverged;  // the method that did; empty: none

  double FinalGap() const { return curves[0].mean.back().loss - curves[1].mean.back().loss; }
};

// Notes the text's digest. Errors as promised.
absl::Status OpenPaciText(Files& files, PaciStudy& study) {
  const std::string path = JoinPath(kPaciDataRoot, study.text_path);
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, files.Read(path, RunLimits().data_bytes_max));
  study.text_sha256 = Sha256Hex(text);
  const v1::JobSpec spec = JobOf(study, SettingsOf(study).front(), "paci", 1);
  PENSTOCK_ASSIGN_OR_RETURN(const ResolvedJob job, ResolveJob(spec));
  return OpenData(files, spec, job, kPaciDataRoot, RunLimits()).status();
}

PaciRun PlanPaciRun(const PaciStudy& study, const PaciSetting& setting, const std::string& method,
                    int64_t seed) {
  PaciRun run;
  run.name = absl::StrCat(setting.name(), "-", method, "-seed", seed);
  run.job = JobOf(study, setting, method, seed);
  *run.trained.mutable_job() = run.job;
  run.trained.mutable_job()->mutable_data()->mutable_text()->clear_path();
  for (const LayerRange& stage : StagesOf(study)) run.trained.add_stage_layers(stage.count);
  return run;
}

absl::StatusOr<std::vector<SettingRuns>> PlanPaciRuns(const PaciStudy& study, KeptRuns& kept) {
  std::vector<SettingRuns> all;
  for (const PaciSetting& setting : SettingsOf(study)) {
    SettingRuns runs = {.setting = setting};
    for (const char* method : kTrained) {
      for (int64_t seed = 1; seed <= study.seeds; ++seed) {
        PaciRun run = PlanPaciRun(study, setting, method, seed);
        PENSTOCK_ASSIGN_OR_RETURN(std::optional<v1::TrainedRun> found,
                                  kept.Find(run.name, run.trained));
        run.finished = found.has_value();
        if (run.finished) run.trained = *std::move(found);
        runs.by_method[method].push_back(std::move(run));
      }
    }
    all.push_back(std::move(runs));
  }
  return all;
}

// Errors: Cancelled if the context says to stop; those of Backend and KeptRuns.
absl::Status TrainPaciRun(const PaciStudy& study, Files& files, KeptRuns& kept,
                          TrainingContext& context, PaciRun& run) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend,
                            MakeCpuBackend(run.job.training().threads()));
  const int64_t tokens = run.job.training().batch() / study.microbatches * study.context;
  ReferenceOptions options = {
      .spec = run.job, .stages = StagesOf(study), .data_root = kPaciDataRoot};
  options.on_microbatch = [&](int64_t, double loss) {
    return context.MicrobatchDone(loss, tokens);
  };
  const absl::StatusOr<ReferenceResult> trained = TrainReference(options, files, *backend);
  // Job and text were checked: what is left is a loss that is not finite.
  run.trained.set_diverged(absl::IsFailedPrecondition(trained.status()));
  if (!trained.ok() && !run.trained.diverged()) return Annotate(trained.status(), run.name);
  if (trained.ok()) {
    for (const ReferenceResult::Validation& validation : trained->validations) {
      v1::TrainedRun::Validation& kept_one = *run.trained.add_validations();
      kept_one.set_step(validation.step);
      kept_one.set_loss(validation.evaluation.loss);
    }
  }
  run.finished = true;
  return kept.Keep(run.name, run.trained);
}

absl::Status TrainPaciRuns(const PaciStudy& study, Files& files, KeptRuns& kept,
                           TrainingContext& context, std::vector<SettingRuns>& all) {
  std::vector<PaciRun*> missing;
  int64_t runs = 0;
  int64_t microbatches = 0;
  for (SettingRuns& of_setting : all) {
    for (int64_t seed = 0; seed < study.seeds; ++seed) {
      for (const char* method : kTrained) {
        PaciRun& run = of_setting.by_method[method][seed];
        ++runs;
        if (run.finished) continue;
        missing.push_back(&run);
        microbatches += of_setting.setting.steps * study.microbatches;
      }
    }
  }
  if (missing.empty()) return absl::OkStatus();
  int64_t finished = runs - static_cast<int64_t>(missing.size());
  if (finished > 0) {
    context.Note(absl::StrCat(finished, " of ", runs, " runs are in ", kept.directory(),
                              " already; remove them to train them again"));
  }
  const absl::Status status = context.ForEachRun(
      static_cast<int64_t>(missing.size()), microbatches,
      [&](int64_t i) { return TrainPaciRun(study, files, kept, context, *missing[i]); });
  if (!absl::IsCancelled(status)) return status;
  finished += std::count_if(missing.begin(), missing.end(),
                            [](const PaciRun* run) { return run->finished; });
  return absl::CancelledError(absl::StrCat("interrupted; ", finished, " of ", runs, " runs are in ",
                                           kept.directory(),
                                           ", and the same command goes on from there"));
}

// The time at each validation of a run.
absl::StatusOr<std::vector<double>> TimesOf(const PaciStudy& study, const PaciSetting& setting,
                                            const PaciContender& contender) {
  const int64_t every = ValidationInterval(study, setting);
  PENSTOCK_ASSIGN_OR_RETURN(const double whole, TimeOfSteps(study, contender, every));
  std::vector<double> times;
  for (int64_t step = every; step <= setting.steps; step += every) {
    times.push_back(whole * static_cast<double>(step / every));
  }
  const int64_t rest = setting.steps % every;
  if (rest == 0) return times;
  PENSTOCK_ASSIGN_OR_RETURN(const double last, TimeOfSteps(study, contender, rest));
  times.push_back(whole * static_cast<double>(setting.steps / every) + last);
  return times;
}

// A run that diverged has infinite losses.
TimedCurve StampedWith(const std::vector<double>& times, const v1::TrainedRun& run) {
  TimedCurve curve;
  for (size_t i = 0; i < times.size(); ++i) {
    curve.push_back({times[i], run.diverged() ? std::numeric_limits<double>::infinity()
                                              : run.validations(static_cast<int>(i)).loss()});
  }
  return curve;
}

Speedup SpeedupOver(const TimedCurve& other, double loss, double paci_time) {
  const std::optional<double> time = TimeToLoss(other, loss);
  return {time.value_or(other.back().time) / paci_time, time.has_value()};
}

Threshold ThresholdAt(int64_t percent, absl::Span<const ContenderCurves> curves) {
  const auto loss_of = [&](const TimedCurve& paci) {
    return LossAt(paci, paci.back().time * static_cast<double>(percent) / 100.0);
  };
  const ContenderCurves& paci = curves.front();
  Threshold threshold = {.percent = percent, .loss = loss_of(paci.mean)};
  const double time = TimeToLoss(paci.mean, threshold.loss).value_or(paci.mean.back().time);
  for (const ContenderCurves& other : curves.subspan(1)) {
    threshold.over.push_back(SpeedupOver(other.mean, threshold.loss, time));
  }
  for (size_t seed = 0; seed < paci.by_seed.size(); ++seed) {
    const double loss = loss_of(paci.by_seed[seed]);
    const double own =
        TimeToLoss(paci.by_seed[seed], loss).value_or(paci.by_seed[seed].back().time);
    threshold.seeds.push_back(SpeedupOver(curves[1].by_seed[seed], loss, own).value);
  }
  return threshold;
}

absl::StatusOr<SettingOutcome> OutcomeOf(const PaciStudy& study, const SettingRuns& runs) {
  SettingOutcome outcome = {.setting = runs.setting};
  for (const char* method : kTrained) {
    if (runs.Diverged(method)) outcome.diverged = method;
  }
  for (const PaciContender& contender : ContendersOf(study)) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::vector<double> times,
                              TimesOf(study, runs.setting, contender));
    ContenderCurves curves = {.contender = contender};
    for (const PaciRun& run : runs.by_method.at(contender.trained)) {
      curves.by_seed.push_back(StampedWith(times, run.trained));
    }
    curves.mean = MeanOf(curves.by_seed);
    outcome.curves.push_back(std::move(curves));
  }
  outcome.bound = outcome.curves[1].mean.back().time / outcome.curves[0].mean.back().time;
  for (const int64_t percent : kThresholdPercents) {
    outcome.thresholds.push_back(ThresholdAt(percent, outcome.curves));
  }
  return outcome;
}

std::vector<std::vector<StudyCell>> RowsOf(const PaciStudy& study, const SettingOutcome& outcome) {
  std::vector<std::vector<StudyCell>> rows;
  const bool diverged = !outcome.diverged.empty();
  const auto cell = [&](double value) {
    return diverged ? StudyCell(std::string("-")) : StudyCell(value);
  };
  for (const Threshold& threshold : outcome.thresholds) {
    const auto [least, greatest] =
        std::minmax_element(threshold.seeds.begin(), threshold.seeds.end());
    std::vector<StudyCell> row = {outcome.setting.optimizer,
                                  outcome.setting.learning_rate,
                                  outcome.setting.batch,
                                  outcome.setting.steps,
                                  study.seeds,
                                  threshold.percent,
                                  cell(threshold.loss)};
    bool reached = true;
    for (const Speedup& over : threshold.over) {
      row.push_back(cell(over.value));
      reached = reached && over.reached;
    }
    for (const double value : {*least, *greatest, outcome.bound}) row.push_back(cell(value));
    row.push_back(cell(outcome.FinalGap()));
    row.push_back(diverged  ? absl::StrCat(outcome.diverged, " diverged")
                  : reached ? std::string("yes")
                            : std::string("no"));
    rows.push_back(std::move(row));
  }
  return rows;
}

StudyTable PaciTable(const PaciStudy& study, absl::Span<const SettingOutcome> outcomes) {
  StudyTable table = {
      .columns = {"optimizer", "learning_rate", "batch", "steps", "seeds", "at_percent", "loss"}};
  for (const PaciContender& contender : ContendersOf(study)) {
    if (contender.trained != "paci") {
      table.columns.push_back(absl::StrCat("over_", contender.name));
    }
  }
  for (const char* column : {"least", "greatest", "bound", "final_gap", "reached"}) {
    table.columns.emplace_back(column);
  }
  for (const SettingOutcome& outcome : outcomes) {
    for (auto& row : RowsOf(study, outcome)) table.rows.push_back(std::move(row));
  }
  return table;
}

// What a chart of speed-ups is drawn over.
struct SpeedupAxis {
  const char* chart;  // in the name of its file
  const char* title;
  const char* label;
  double (*value)(const PaciSetting&);
  std::string (*line)(const PaciSetting&);  // of the settings that differ in the value alone
};
constexpr SpeedupAxis kOverLength = {
    .chart = "",
    .title = "PACI's speed-up over the length of training",
    .label = "steps",
    .value = [](const PaciSetting& setting) { return static_cast<double>(setting.steps); },
    .line = [](const PaciSetting& setting) { return setting.group(); }};
constexpr SpeedupAxis kOverBatch = {
    .chart = "batch",
    .title = "PACI's speed-up over the batch",
    .label = "samples of a step",
    .value = [](const PaciSetting& setting) { return static_cast<double>(setting.batch); },
    .line =
        [](const PaciSetting& setting) {
          return absl::StrFormat("%s %g, %d steps", setting.optimizer, setting.learning_rate,
                                 setting.steps);
        }};

// The mean over the thresholds, with the least and the greatest of the seeds.
ChartPoint PointOf(const SettingOutcome& outcome, const SpeedupAxis& axis) {
  double sum = 0.0;
  std::vector<double> seeds(outcome.thresholds.front().seeds.size());
  const auto count = static_cast<double>(outcome.thresholds.size());
  for (const Threshold& threshold : outcome.thresholds) {
    sum += threshold.over.front().value;
    for (size_t seed = 0; seed < seeds.size(); ++seed) seeds[seed] += threshold.seeds[seed] / count;
  }
  const double mean = sum / count;
  const auto [least, greatest] = std::minmax_element(seeds.begin(), seeds.end());
  return {axis.value(outcome.setting), mean, std::min(mean, *least), std::max(mean, *greatest)};
}

StudyChart SpeedupChart(const PaciStudy& study, absl::Span<const SettingOutcome> outcomes,
                        const SpeedupAxis& axis) {
  LineChart chart = {
      .title = axis.title,
      .subtitle = absl::StrFormat("over Flush m = %d, mean of the losses at 80, 90 and 100 %% of "
                                  "PACI's steps, seeds: %d",
                                  study.microbatches, study.seeds),
      .x_label = axis.label,
      .y_label = "speed-up",
      .x_log = true};
  double bound = 0.0;
  double first = std::numeric_limits<double>::infinity();
  double last = 0.0;
  for (const SettingOutcome& outcome : outcomes) {
    if (!outcome.diverged.empty()) continue;
    const std::string label = axis.line(outcome.setting);
    auto line = std::find_if(chart.lines.begin(), chart.lines.end(),
                             [&](const ChartLine& known) { return known.label == label; });
    if (line == chart.lines.end()) {
      chart.lines.push_back({.label = label, .marked = true});
      line = chart.lines.end() - 1;
    }
    line->points.push_back(PointOf(outcome, axis));
    bound = std::max(bound, outcome.bound);
    first = std::min(first, line->points.back().x);
    last = std::max(last, line->points.back().x);
  }
  for (ChartLine& line : chart.lines) {
    std::sort(line.points.begin(), line.points.end(),
              [](const ChartPoint& a, const ChartPoint& b) { return a.x < b.x; });
  }
  if (chart.lines.empty()) return {axis.chart, std::move(chart)};
  for (const auto& [label, y] : {std::pair{"bound", bound}, {"expected", kSpeedupExpected}}) {
    chart.lines.push_back({.label = absl::StrFormat("%s %.3f", label, y),
                           .points = {{first, y, y, y}, {last, y, y, y}},
                           .dashed = true});
  }
  return {axis.chart, std::move(chart)};
}

StudyChart LossChart(const PaciStudy& study, const SettingOutcome& outcome) {
  LineChart chart = {.title = absl::StrCat("Time to a loss, ", outcome.setting.group()),
                     .subtitle = absl::StrFormat("%d stages, %d steps, seeds: %d", study.stages,
                                                 outcome.setting.steps, study.seeds),
                     .x_label = "time, in microbatches of a stage",
                     .y_label = "validation loss, nats per byte"};
  for (const ContenderCurves& curves : outcome.curves) {
    ChartLine line = {.label = curves.contender.label};
    for (size_t i = 0; i < curves.mean.size(); ++i) {
      const TimedLoss& mean = curves.mean[i];
      ChartPoint point = {mean.time, mean.loss, mean.loss, mean.loss};
      for (const TimedCurve& seed : curves.by_seed) {
        point.low = std::min(point.low, seed[i].loss);
        point.high = std::max(point.high, seed[i].loss);
      }
      line.points.push_back(point);
    }
    chart.lines.push_back(std::move(line));
  }
  return {outcome.setting.name(), std::move(chart)};
}

// The losses over time of the longest training of each optimizer, rate and batch.
std::vector<StudyChart> LossCharts(const PaciStudy& study,
                                   absl::Span<const SettingOutcome> outcomes) {
  std::vector<StudyChart> charts;
  for (const SettingOutcome& outcome : outcomes) {
    const bool is_longest =
        std::all_of(outcomes.begin(), outcomes.end(), [&](const SettingOutcome& other) {
          return other.setting.group() != outcome.setting.group() ||
                 other.setting.steps <= outcome.setting.steps;
        });
    if (is_longest) charts.push_back(LossChart(study, outcome));
  }
  return charts;
}

std::string JoinSpeedups(const SettingOutcome& outcome, size_t contender) {
  return absl::StrJoin(outcome.thresholds, ", ", [&](std::string* out, const Threshold& threshold) {
    const Speedup& over = threshold.over[contender];
    absl::StrAppendFormat(out, "%s%.2f", over.reached ? "" : "at least ", over.value);
  });
}

// The paper: PACI's gain in time to a loss is close to the bound.
Finding WhetherAsFast(const PaciStudy& study, const SettingOutcome& outcome) {
  const std::vector<PaciContender> contenders = ContendersOf(study);
  Finding finding = {.claim = absl::StrFormat("%s, %d steps: PACI reaches each loss %.2f times as "
                                              "fast as %s, or faster",
                                              outcome.setting.group(), outcome.setting.steps,
                                              kSpeedupExpected, contenders[1].label)};
  if (!outcome.diverged.empty()) {
    finding.evidence = absl::StrCat(outcome.diverged, " diverged with at least one of the seeds");
    return finding;
  }
  double least = std::numeric_limits<double>::infinity();
  for (const Threshold& threshold : outcome.thresholds) {
    least = std::min(least, threshold.over.front().value);
  }
  finding.agrees = least >= kSpeedupExpected;
  std::vector<std::string> evidence = {
      absl::StrFormat("%s, bound %.3f", JoinSpeedups(outcome, 0), outcome.bound)};
  if (!finding.agrees) {
    evidence.push_back(absl::StrFormat("%.2f below at the least", kSpeedupExpected - least));
  }
  for (size_t i = 1; i < outcome.thresholds.front().over.size(); ++i) {
    evidence.push_back(
        absl::StrCat("over ", contenders[i + 1].label, " ", JoinSpeedups(outcome, i)));
  }
  evidence.push_back(absl::StrFormat("PACI ends %+.4f nats from Flush", outcome.FinalGap()));
  finding.evidence = absl::StrJoin(evidence, "; ");
  return finding;
}

absl::Status LeaveOutUnfinished(const KeptRuns& kept, TrainingContext& context,
                                std::vector<SettingRuns>& all) {
  const size_t settings = all.size();
  std::erase_if(all, [](const SettingRuns& runs) { return !runs.IsFinished(); });
  if (all.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("--finished: ", kept.directory(), " has not all runs of any of the ", settings,
                     " settings; leave the flag out to train them"));
  }
  if (all.size() < settings) {
    context.Note(absl::StrCat(all.size(), " of ", settings, " settings have all their runs"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<StudyResult> RunPaciStudy(PaciStudy study, const PaciStudyOptions& options,
                                         Files& files, TrainingContext& context) {
  PENSTOCK_RETURN_IF_ERROR(CheckPaci(study));
  PENSTOCK_RETURN_IF_ERROR(OpenPaciText(files, study));
  KeptRuns kept(files, options.directory);
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<SettingRuns> runs, PlanPaciRuns(study, kept));
  if (options.only_finished) {
    PENSTOCK_RETURN_IF_ERROR(LeaveOutUnfinished(kept, context, runs));
  } else {
    // A file that cannot be written should be found before the work.
    PENSTOCK_RETURN_IF_ERROR(files.CreateDirectories(options.directory));
    PENSTOCK_RETURN_IF_ERROR(TrainPaciRuns(study, files, kept, context, runs));
  }
  std::vector<SettingOutcome> outcomes;
  for (const SettingRuns& of_setting : runs) {
    PENSTOCK_ASSIGN_OR_RETURN(SettingOutcome outcome, OutcomeOf(study, of_setting));
    outcomes.push_back(std::move(outcome));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const ResolvedJob job,
                            ResolveJob(JobOf(study, SettingsOf(study).front(), "paci", 1)));
  StudyResult result = {.title = "PACI against methods that flush, in the time to a loss",
                        .settings = {{"text", study.text_path},
                                     {"parameters", job.model.parameter_count()},
                                     {"stages", int64_t{study.stages}},
                                     {"microbatches", study.microbatches},
                                     {"context", study.context},
                                     {"seeds", study.seeds}},
                        .table = PaciTable(study, outcomes)};
  result.charts.push_back(SpeedupChart(study, outcomes, kOverLength));
  if (study.batches.size() > 1) {
    result.charts.push_back(SpeedupChart(study, outcomes, kOverBatch));
  }
  for (StudyChart& chart : LossCharts(study, outcomes)) result.charts.push_back(std::move(chart));
  for (const SettingOutcome& outcome : outcomes) {
    result.findings.push_back(WhetherAsFast(study, outcome));
  }
  return result;
}

}  // namespace penstock
