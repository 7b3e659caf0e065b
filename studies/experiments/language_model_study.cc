#include "studies/experiments/language_model_study.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
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
#include "studies/experiments/loss_curve.h"
#include "tokenizer/character_tokenizer.h"
#include "worker/open_data.h"
#include "worker/reference.h"

namespace penstock {
namespace {

constexpr char kDataRoot[] = ".";  // relative paths are the user's

// One training: a method at a step size.
struct PlannedRun {
  std::string name;  // of its file: "local-sgd-h4-0.125-832"
  LanguageModelMethod method;
  double learning_rate = 0.0;
  v1::JobSpec job;
  v1::TrainedRun trained;  // its parameters; once it is finished also the losses
  bool finished = false;
};

// A method at all its step sizes.
struct MethodCurves {
  LanguageModelMethod method;
  TickSequence sequence;
  std::vector<Curve> by_rate;
  std::vector<TailShape> tails;
  size_t chosen = 0;

  double FinalLoss() const { return by_rate[chosen].back().gap; }
};

// Notes the text's digest and how many characters it has. Errors as promised.
absl::Status OpenText(Files& files, LanguageModelStudy& study) {
  const std::string path = JoinPath(kDataRoot, study.text_path);
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, files.Read(path, RunLimits().data_bytes_max));
  study.text_sha256 = Sha256Hex(text);
  study.vocabulary = static_cast<int64_t>(AlphabetOf(text).size());
  const v1::JobSpec spec = JobOf(study, {}, study.learning_rates.front());
  PENSTOCK_ASSIGN_OR_RETURN(const ResolvedJob job, ResolveJob(spec));
  return OpenData(files, spec, job, kDataRoot, RunLimits()).status();
}

PlannedRun PlanRun(const LanguageModelStudy& study, const LanguageModelMethod& method,
                   double learning_rate) {
  PlannedRun run = {.method = method, .learning_rate = learning_rate};
  run.job = JobOf(study, method, learning_rate);
  run.name =
      method.is_pipedream() ? method.name() : absl::StrCat(method.name(), "-h", method.local_steps);
  absl::StrAppendFormat(&run.name, "-%g-%d", learning_rate, MicrobatchesOf(study, method));
  *run.trained.mutable_job() = run.job;
  run.trained.mutable_job()->mutable_data()->mutable_text()->clear_path();
  for (const LayerRange& stage : StagesOf(study)) run.trained.add_stage_layers(stage.count);
  return run;
}

// Methods in their order, of each the step sizes.
absl::StatusOr<std::vector<PlannedRun>> PlanRuns(const LanguageModelStudy& study, KeptRuns& kept) {
  std::vector<PlannedRun> runs;
  for (const LanguageModelMethod& method : MethodsOf(study)) {
    for (const double learning_rate : study.learning_rates) {
      PlannedRun run = PlanRun(study, method, learning_rate);
      PENSTOCK_ASSIGN_OR_RETURN(std::optional<v1::TrainedRun> found,
                                kept.Find(run.name, run.trained));
      run.finished = found.has_value();
      if (run.finished) run.trained = *std::move(found);
      runs.push_back(std::move(run));
    }
  }
  return runs;
}

// Errors: Cancelled if the context says to stop; those of Backend and KeptRuns.
absl::Status Train(const LanguageModelStudy& study, Files& files, KeptRuns& kept,
                   TrainingContext& context, PlannedRun& run) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend,
                            MakeCpuBackend(run.job.training().threads()));
  run.trained.clear_losses();
  ReferenceOptions options = {.spec = run.job, .stages = StagesOf(study), .data_root = kDataRoot};
  options.on_microbatch = [&](int64_t, double loss) {
    run.trained.add_losses(loss);
    return context.MicrobatchDone(loss, study.tokens());
  };
  const absl::Status trained = TrainReference(options, files, *backend).status();
  // Job and text were checked: what is left is a loss that is not finite.
  run.trained.set_diverged(absl::IsFailedPrecondition(trained));
  if (!trained.ok() && !run.trained.diverged()) return Annotate(trained, run.name);
  run.finished = true;
  return kept.Keep(run.name, run.trained);
}

absl::Status TrainAll(const LanguageModelStudy& study, Files& files, KeptRuns& kept,
                      TrainingContext& context, std::vector<PlannedRun>& runs) {
  std::vector<PlannedRun*> missing;
  int64_t microbatches = 0;
  for (PlannedRun& run : runs) {
    if (run.finished) continue;
    missing.push_back(&run);
    microbatches += MicrobatchesOf(study, run.method);
  }
  if (missing.size() < runs.size()) {
    context.Note(absl::StrCat(runs.size() - missing.size(), " of ", runs.size(), " runs are in ",
                              kept.directory(), " already; remove them to train them again"));
  }
  absl::Status status = context.ForEachRun(
      static_cast<int64_t>(missing.size()), microbatches,
      [&](int64_t i) { return Train(study, files, kept, context, *missing[i]); });
  if (!absl::IsCancelled(status)) return status;
  const auto finished =
      std::count_if(runs.begin(), runs.end(), [](const PlannedRun& run) { return run.finished; });
  return absl::CancelledError(absl::StrCat("interrupted; ", finished, " of ", runs.size(),
                                           " runs are in ", kept.directory(),
                                           ", and the same command goes on from there"));
}

absl::StatusOr<std::vector<MethodCurves>> CurvesOf(const LanguageModelStudy& study,
                                                   absl::Span<const PlannedRun> runs) {
  std::vector<MethodCurves> methods;
  const size_t rates = study.learning_rates.size();
  for (const LanguageModelMethod& method : MethodsOf(study)) {
    MethodCurves curves = {.method = method};
    PENSTOCK_ASSIGN_OR_RETURN(curves.sequence, SequenceOf(study, method));
    for (const PlannedRun& run : runs.subspan(methods.size() * rates, rates)) {
      curves.by_rate.push_back(
          LossOverTicks(run.trained.losses(), curves.sequence, study.stages()));
      const Curve& curve = curves.by_rate.back();
      curves.tails.push_back(ShapeOfTail(curve, TailBegin(curve)));
    }
    curves.chosen = ChooseStep(curves.tails, kLanguageModelLimits);
    methods.push_back(std::move(curves));
  }
  return methods;
}

StudyTable TableOf(const LanguageModelStudy& study, absl::Span<const MethodCurves> methods) {
  StudyTable table = {.columns = {"method", "local_steps", "learning_rate", "chosen", "stable",
                                  "microbatches", "ticks", "final_loss", "tail_loss"}};
  const auto yes_no = [](bool yes) { return std::string(yes ? "yes" : "no"); };
  for (const MethodCurves& method : methods) {
    for (size_t i = 0; i < method.by_rate.size(); ++i) {
      const StudyCell local_steps = method.method.is_pipedream()
                                        ? StudyCell(std::string("-"))
                                        : StudyCell(method.method.local_steps);
      const Curve& curve = method.by_rate[i];
      table.rows.push_back({method.method.name(), local_steps, study.learning_rates[i],
                            yes_no(i == method.chosen),
                            yes_no(IsStable(method.tails[i], kLanguageModelLimits)),
                            method.sequence.microbatches, method.sequence.ticks, curve.back().gap,
                            method.tails[i].finite ? method.tails[i].mean : curve.back().gap});
    }
  }
  return table;
}

StudyChart ChartOf(const LanguageModelStudy& study, absl::Span<const MethodCurves> methods) {
  LineChart chart = {
      .title = "PipeDream and LocalSGD, language model",
      .subtitle = absl::StrFormat(
          "S = R = %d, %d microbatches of %d x %d characters; running mean of %d "
          "microbatches",
          study.stages(), study.microbatches, study.batch, study.context, study.stages()),
      .x_label = "ticks",
      .y_label = "training loss, nats per character"};
  for (const MethodCurves& method : methods) {
    ChartLine line = {.label = absl::StrFormat("%s, γ = %g", method.method.label(),
                                               study.learning_rates[method.chosen])};
    for (const CurvePoint& point : method.by_rate[method.chosen]) {
      line.points.push_back({static_cast<double>(point.tick), point.gap, point.gap, point.gap});
    }
    chart.lines.push_back(std::move(line));
  }
  return {"", std::move(chart)};
}

// The paper: PipeDream is ahead on the language model.
Finding WhoWins(const LanguageModelStudy& study, absl::Span<const MethodCurves> methods) {
  const MethodCurves& pipedream = methods.front();
  double best_other = methods[1].FinalLoss();
  std::vector<std::string> losses;
  for (const MethodCurves& method : methods) {
    if (!method.method.is_pipedream()) best_other = std::min(best_other, method.FinalLoss());
    losses.push_back(absl::StrFormat("%s %.4f", method.method.label(), method.FinalLoss()));
  }
  return {"PipeDream is below LocalSGD at the end of the budget",
          pipedream.FinalLoss() < best_other,
          absl::StrFormat("mean loss of the last %d microbatches: %s", study.stages(),
                          absl::StrJoin(losses, ", "))};
}

// The published ends, of what was run with the paper's budget and step size. Nothing if none was.
std::optional<Finding> WhereItEnds(const LanguageModelStudy& study,
                                   absl::Span<const MethodCurves> methods) {
  if (study.microbatches != kPublishedMicrobatches) return std::nullopt;
  bool agrees = true;
  std::vector<std::string> ends;
  for (const MethodCurves& method : methods) {
    for (const PublishedEnd& end : kPublishedEnds) {
      if (end.local_steps != method.method.local_steps ||
          study.learning_rates[method.chosen] != kLanguageModelRate) {
        continue;
      }
      const double ratio = method.FinalLoss() / end.loss;
      agrees = agrees && std::abs(ratio - 1.0) <= kPublishedTolerance;
      ends.push_back(absl::StrFormat("%s %.4f, published %.2f (%+.1f %%)", method.method.label(),
                                     method.FinalLoss(), end.loss, 100.0 * (ratio - 1.0)));
    }
  }
  if (ends.empty()) return std::nullopt;
  return Finding{absl::StrFormat("ends are within %g %% of the published curves'",
                                 100.0 * kPublishedTolerance),
                 agrees, absl::StrJoin(ends, "; ")};
}

// The paper's rule chose the same step size for all methods.
Finding WhichSteps(const LanguageModelStudy& study, absl::Span<const MethodCurves> methods) {
  bool agrees = true;
  std::vector<std::string> steps;
  for (const MethodCurves& method : methods) {
    const double chosen = study.learning_rates[method.chosen];
    agrees = agrees && chosen == kLanguageModelRate;
    steps.push_back(absl::StrFormat("%s %g", method.method.label(), chosen));
  }
  return {absl::StrFormat("the rule chooses %g for every method", kLanguageModelRate), agrees,
          absl::StrJoin(steps, ", ")};
}

}  // namespace

absl::StatusOr<StudyResult> RunLanguageModelStudy(LanguageModelStudy study,
                                                  const std::string& directory, Files& files,
                                                  TrainingContext& context) {
  PENSTOCK_RETURN_IF_ERROR(CheckLanguageModel(study));
  PENSTOCK_RETURN_IF_ERROR(OpenText(files, study));
  KeptRuns kept(files, directory);
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<PlannedRun> runs, PlanRuns(study, kept));
  // A file that cannot be written should be found before the work.
  PENSTOCK_RETURN_IF_ERROR(files.CreateDirectories(directory));
  PENSTOCK_RETURN_IF_ERROR(TrainAll(study, files, kept, context, runs));
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<MethodCurves> methods, CurvesOf(study, runs));

  PENSTOCK_ASSIGN_OR_RETURN(const ResolvedJob job, ResolveJob(runs.front().job));
  StudyResult result = {.title = "PipeDream and LocalSGD on a language model in the same time",
                        .settings = {{"text", study.text_path},
                                     {"vocabulary", study.vocabulary},
                                     {"parameters", job.model.parameter_count()},
                                     {"stages", int64_t{study.stages()}},
                                     {"batch", study.batch},
                                     {"context", study.context},
                                     {"ticks", study.ticks()},
                                     {"seed", static_cast<int64_t>(study.seed)},
                                     {"running_mean", int64_t{study.stages()}}},
                        .table = TableOf(study, methods)};
  result.charts.push_back(ChartOf(study, methods));
  result.findings.push_back(WhoWins(study, methods));
  std::optional<Finding> ends = WhereItEnds(study, methods);
  if (ends.has_value()) result.findings.push_back(*std::move(ends));
  if (study.learning_rates.size() > 1) result.findings.push_back(WhichSteps(study, methods));
  return result;
}

}  // namespace penstock
