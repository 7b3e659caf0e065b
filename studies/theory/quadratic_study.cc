// PipeDream and RPD on the random quadratic: figure 2a.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "schedule/block_draws.h"
#include "studies/theory/pipeline_descent.h"
#include "studies/theory/random_descent.h"
#include "studies/theory/studies.h"
#include "studies/theory/tuned_report.h"
#include "studies/theory/tuning.h"

namespace penstock {
namespace {

struct Setting {
  int64_t batch = 0;
  TickSequence sequence;
  std::vector<int64_t> updates_by_tick;
  CurvePlan plan;
  std::vector<double> grid = PowersOfTwo(-8, 0);
  std::vector<Problem> problems;  // of one width, by seed
};

absl::StatusOr<Setting> Prepare(const QuadraticStudy& study) {
  Setting setting{.batch = study.batch};
  PENSTOCK_ASSIGN_OR_RETURN(
      setting.sequence,
      PipeDreamSequence(study.order, study.stages, study.rows / study.batch * study.epochs));
  setting.updates_by_tick = UpdatesByTick(setting.sequence);
  setting.plan = {.ticks = setting.sequence.ticks, .tail_fraction = 1.0};
  return setting;
}

Curve RunPipeDream(const Setting& setting, double learning_rate, int64_t seed) {
  const PipelineDescentOptions options{
      .learning_rate = learning_rate, .batch = setting.batch, .plan = setting.plan};
  return PipelineDescent(setting.problems[seed], setting.sequence, options).curve;
}

Curve RunRandom(const Setting& setting, int64_t delta, double learning_rate, int64_t seed) {
  const Problem& problem = setting.problems[seed];
  const RandomDescentOptions options{.learning_rate = learning_rate,
                                     .partition = {setting.sequence.stages, setting.batch},
                                     .minibatches = problem.rows() / setting.batch,
                                     .delta = delta,
                                     .seed = static_cast<uint64_t>(seed),
                                     .plan = setting.plan,
                                     .updates_by_tick = setting.updates_by_tick};
  return RandomDescent(problem, options).curve;
}

struct Tuned {
  std::string label;
  int64_t delta = 0;
  TunedMethod method;
};

// Which delta's curve lies nearest to PipeDream's, both at the step size chosen for PipeDream.
Finding Tracks(const std::string& where, const Setting& setting, const std::vector<Tuned>& tuned,
               int64_t proven) {
  const TunedMethod& pipedream = tuned.front().method;
  const auto step = std::find(setting.grid.begin(), setting.grid.end(), pipedream.learning_rate) -
                    setting.grid.begin();
  std::vector<std::string> distances;
  double nearest = 0.0;
  int64_t nearest_delta = -1;
  for (size_t i = 1; i < tuned.size(); ++i) {
    const double distance = DecadesApart(tuned[i].method.mean_by_step[step], pipedream.mean);
    distances.push_back(absl::StrFormat("%.2f (delta %d)", distance, tuned[i].delta));
    if (nearest_delta >= 0 && distance >= nearest) continue;
    nearest = distance;
    nearest_delta = tuned[i].delta;
  }
  return {absl::StrCat(where, ": RPD with delta = S^2 - S/2 = ", proven,
                       " tracks PipeDream: the nearest of all at the same step size"),
          nearest_delta == proven,
          absl::StrCat("mean distance of the curves in decades: ", absl::StrJoin(distances, ", "))};
}

Finding MoreDelayIsWorse(const std::string& where, const std::vector<Tuned>& tuned) {
  bool rising = true;
  std::vector<std::string> finals;
  for (size_t i = 1; i < tuned.size(); ++i) {
    finals.push_back(Short(tuned[i].method.final_mean()));
    rising &= i == 1 || tuned[i].method.final_mean() >= tuned[i - 1].method.final_mean();
  }
  return {absl::StrCat(where, ": the more delay RPD has, the further from the optimum it ends"),
          rising, absl::StrCat("final gaps ", absl::StrJoin(finals, ", "))};
}

Finding SameSteps(const std::string& where, const std::vector<Tuned>& tuned) {
  // Figure 2a, for PipeDream and the deltas in order.
  const std::vector<double> paper = {0.0625, 0.125, 0.125, 0.0625, 0.0625, 0.03125};
  std::vector<std::string> pairs;
  bool same = tuned.size() == paper.size();
  for (size_t i = 0; i < std::min(tuned.size(), paper.size()); ++i) {
    same &= tuned[i].method.learning_rate == paper[i];
    pairs.push_back(
        absl::StrFormat("%s %g (%g)", tuned[i].label, tuned[i].method.learning_rate, paper[i]));
  }
  return {absl::StrCat(where, ": the rule chooses the paper's step sizes"), same,
          absl::StrCat("ours (the paper's): ", absl::StrJoin(pairs, ", "))};
}

absl::StatusOr<std::vector<Tuned>> TuneAll(const QuadraticStudy& study, const Setting& setting,
                                           const std::string& where, int64_t calls,
                                           StudyContext& context) {
  std::vector<Tuned> tuned;
  const auto tune = [&](const std::string& label, int64_t delta, auto run) -> absl::Status {
    context.Announce(absl::StrCat(where, ", ", label), calls);
    PENSTOCK_ASSIGN_OR_RETURN(TunedMethod method,
                              Tune(setting.grid, study.seeds, setting.plan, run, context));
    tuned.push_back({label, delta, std::move(method)});
    return absl::OkStatus();
  };
  PENSTOCK_RETURN_IF_ERROR(tune("PD", 0, [&](double learning_rate, int64_t seed) {
    return RunPipeDream(setting, learning_rate, seed);
  }));
  for (const int64_t delta : study.deltas) {
    PENSTOCK_RETURN_IF_ERROR(
        tune(absl::StrCat("RPD δ = ", delta), delta, [&](double learning_rate, int64_t seed) {
          return RunRandom(setting, delta, learning_rate, seed);
        }));
  }
  return tuned;
}

// Adds the rows, the chart and the findings of one width.
void Report(const QuadraticStudy& study, const Setting& setting, int64_t width,
            const std::vector<Tuned>& tuned, StudyResult& result) {
  const std::string where = absl::StrCat(width, " columns");
  LineChart chart{
      .title = absl::StrCat("PipeDream and RPD, random quadratic, ", where),
      .subtitle = absl::StrFormat("S = %d, batch %d, %d seeds: mean, least and greatest",
                                  study.stages, study.batch, study.seeds),
      .x_label = "block updates",
      .y_label = "f(w) - f*",
      .y_log = true};
  for (const Tuned& entry : tuned) {
    const bool is_random = &entry != &tuned.front();
    std::vector<StudyCell> row = {width, std::string(is_random ? "rpd" : "pipedream"),
                                  is_random ? StudyCell(entry.delta) : StudyCell(std::string("-"))};
    for (StudyCell& cell : TunedCells(entry.method)) row.push_back(std::move(cell));
    result.table.rows.push_back(std::move(row));
    chart.lines.push_back(TunedLine(entry.label, entry.method, CurveClock::kUpdates));
  }
  result.charts.push_back({absl::StrCat(width), std::move(chart)});
  const int64_t proven = PipelineDelay(study.stages);
  result.findings.push_back(Tracks(where, setting, tuned, proven));
  result.findings.push_back(MoreDelayIsWorse(where, tuned));
  result.findings.push_back(SameSteps(where, tuned));
}

}  // namespace

absl::StatusOr<StudyResult> RunQuadraticStudy(const QuadraticStudy& study, StudyContext& context) {
  PENSTOCK_ASSIGN_OR_RETURN(Setting setting, Prepare(study));
  const int64_t runs =
      (1 + static_cast<int64_t>(study.deltas.size())) * static_cast<int64_t>(setting.grid.size());
  const int64_t calls = static_cast<int64_t>(study.widths.size()) * study.seeds * (1 + runs);
  StudyResult result{.title = "PipeDream and RPD on the random quadratic",
                     .settings = {{"seeds", study.seeds},
                                  {"stages", int64_t{study.stages}},
                                  {"rows", study.rows},
                                  {"batch", study.batch},
                                  {"microbatches", setting.sequence.microbatches},
                                  {"ticks", setting.sequence.ticks},
                                  {"block_updates", setting.sequence.updates()}}};
  result.table.columns = {"width", "method", "delta"};
  for (const std::string& column : TunedColumns()) result.table.columns.push_back(column);
  for (const int64_t width : study.widths) {
    const std::string where = absl::StrCat(width, " columns");
    context.Announce(where, calls);
    setting.problems.assign(study.seeds, {});
    PENSTOCK_RETURN_IF_ERROR(context.ForEach(study.seeds, [&](int64_t seed) {
      setting.problems[seed] = RandomQuadratic({.rows = study.rows, .width = width}, seed);
    }));
    PENSTOCK_ASSIGN_OR_RETURN(const std::vector<Tuned> tuned,
                              TuneAll(study, setting, where, calls, context));
    Report(study, setting, width, tuned, result);
  }
  return result;
}

}  // namespace penstock
