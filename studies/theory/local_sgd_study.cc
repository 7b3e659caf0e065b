// PipeDream and LocalSGD over ticks, on logistic regression and Nesterov's quadratic: figure 4.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "studies/theory/pipeline_descent.h"
#include "studies/theory/studies.h"
#include "studies/theory/tuned_report.h"
#include "studies/theory/tuning.h"

namespace penstock {
namespace {

// One kind of problem, for all seeds.
struct Family {
  std::string name;  // "logistic"
  int64_t batch = 10;
  int64_t microbatches = 0;  // of PipeDream
  double noise = 0.0;
  bool shows_objective = false;
  bool pipedream_wins = false;    // in the paper
  std::vector<Problem> problems;  // by seed; one alone if it is data
  std::vector<GradientNoise> noises;

  const Problem& Of(int64_t seed) const { return problems[seed % problems.size()]; }
};

struct FamilyResult {
  int64_t ticks = 0;
  TunedMethod pipedream;
  std::vector<TunedMethod> local;  // by H
  std::vector<int64_t> local_microbatches;
};

std::vector<Family> MakeFamilies(const LocalSgdStudy& study) {
  const auto family = [&](const std::string& name, int64_t batch) {
    return Family{
        .name = name, .batch = batch, .microbatches = study.size.rows / batch * study.epochs};
  };
  if (study.data != nullptr) return {family("data", 10)};
  const LocalSgdStudy::Logistic& setting = study.logistic;
  Family logistic{.name = "logistic",
                  .batch = setting.batch,
                  .microbatches = setting.size.rows / setting.batch * setting.epochs,
                  .noise = setting.noise,
                  .shows_objective = setting.shows_objective};
  std::vector<Family> families = {logistic};
  if (setting.also_without_noise) {
    logistic.name = "logistic-without-noise";
    logistic.noise = 0.0;
    families.push_back(logistic);
  }
  families.push_back(family("quadratic", 5));
  families.back().pipedream_wins = true;
  return families;
}

// Makes the problems of all families for one seed.
void MakeProblems(const LocalSgdStudy& study, int64_t seed, std::vector<Family>& families) {
  for (Family& family : families) {
    if (study.data != nullptr) {
      if (seed == 0) family.problems[0] = *study.data;
    } else {
      family.problems[seed] = family.pipedream_wins ? NesterovQuadratic(study.size, seed)
                                                    : SyntheticLogistic(study.logistic.size, seed);
      if (family.shows_objective) family.problems[seed].optimum = 0.0;
    }
    const int64_t count = family.microbatches * family.Of(seed).width();
    if (family.noise > 0.0) family.noises[seed] = GradientNoise(family.noise, count, seed);
  }
}

absl::StatusOr<FamilyResult> RunFamily(const LocalSgdStudy& study, const Family& family,
                                       int64_t calls, StudyContext& context) {
  PENSTOCK_ASSIGN_OR_RETURN(const TickSequence pipedream,
                            PipeDreamSequence(study.order, study.stages, family.microbatches));
  FamilyResult result{.ticks = pipedream.ticks};
  CurvePlan plan{.ticks = pipedream.ticks};
  // On a large data set the objective is looked at now and then.
  const bool large = family.Of(0).rows() > 10 * study.size.rows;
  if (large) plan.stride = plan.tail_stride = std::max<int64_t>(1, plan.ticks / 150);
  const auto play = [&](const TickSequence& sequence, int64_t replicas, int64_t round,
                        double learning_rate, int64_t seed) {
    const PipelineDescentOptions options{.learning_rate = learning_rate,
                                         .batch = family.batch,
                                         .replicas = replicas,
                                         .round = round,
                                         .first_minibatch = seed * plan.ticks,
                                         .plan = plan};
    return PipelineDescent(family.Of(seed), sequence, options, family.noises[seed]).curve;
  };
  context.Announce(absl::StrCat(family.name, ", PipeDream"), calls);
  PENSTOCK_ASSIGN_OR_RETURN(
      result.pipedream,
      Tune(
          PipelineGrid(), study.seeds, plan,
          [&](double step, int64_t seed) { return play(pipedream, 1, 0, step, seed); }, context));
  for (const int64_t local_steps : study.local_steps) {
    const LocalSgdShape shape{study.stages, study.stages, local_steps};
    const TickSequence local = LocalSgdSequence(shape, LocalSgdMicrobatches(shape, plan.ticks));
    context.Announce(absl::StrCat(family.name, ", LocalSGD H = ", local_steps), calls);
    PENSTOCK_ASSIGN_OR_RETURN(TunedMethod tuned, Tune(
                                                     LocalSgdGrid(), study.seeds, plan,
                                                     [&](double step, int64_t seed) {
                                                       return play(local, shape.replicas,
                                                                   shape.round(), step, seed);
                                                     },
                                                     context));
    result.local.push_back(std::move(tuned));
    result.local_microbatches.push_back(local.microbatches);
  }
  return result;
}

// Tests the paper's claim that PipeDream (or LocalSGD, by its best H) ends nearer to the optimum.
Finding WhoWins(const LocalSgdStudy& study, const Family& family, const FamilyResult& result) {
  std::vector<std::string> finals;
  double best = result.local.front().final_mean();
  for (size_t i = 0; i < result.local.size(); ++i) {
    best = std::min(best, result.local[i].final_mean());
    finals.push_back(
        absl::StrFormat("H = %d %s", study.local_steps[i], Short(result.local[i].final_mean())));
  }
  const double pipedream = result.pipedream.final_mean();
  return {absl::StrCat(family.pipedream_wins ? "PipeDream" : "LocalSGD", " wins on ", family.name),
          family.pipedream_wins == (pipedream < best),
          absl::StrCat("final gaps: PipeDream ", Short(pipedream), ", LocalSGD ",
                       absl::StrJoin(finals, ", "))};
}

StudyChart ChartOf(const LocalSgdStudy& study, const Family& family, const FamilyResult& result) {
  LineChart chart{.title = absl::StrCat("PipeDream and LocalSGD, ", family.Of(0).name),
                  .subtitle = absl::StrFormat(
                      "S = R = %d, batch %d, noise %g, %d seeds: mean, least and greatest",
                      study.stages, family.batch, family.noise, study.seeds),
                  .x_label = "ticks",
                  .y_label = family.shows_objective ? "f(w)" : "f(w) - f*",
                  .y_log = true};
  chart.lines.push_back(TunedLine("PD", result.pipedream, CurveClock::kTicks));
  for (size_t i = 0; i < result.local.size(); ++i) {
    chart.lines.push_back(TunedLine(absl::StrCat("LocalSGD H = ", study.local_steps[i]),
                                    result.local[i], CurveClock::kTicks));
  }
  return {family.name, std::move(chart)};
}

void AddRows(const LocalSgdStudy& study, const Family& family, const FamilyResult& result,
             StudyTable& table) {
  const auto add = [&](const std::string& method, StudyCell steps, int64_t microbatches,
                       const TunedMethod& tuned) {
    std::vector<StudyCell> row = {family.name, method, std::move(steps), result.ticks,
                                  microbatches};
    for (StudyCell& cell : TunedCells(tuned)) row.push_back(std::move(cell));
    table.rows.push_back(std::move(row));
  };
  add("pipedream", std::string("-"), family.microbatches, result.pipedream);
  for (size_t i = 0; i < result.local.size(); ++i) {
    add("local-sgd", study.local_steps[i], result.local_microbatches[i], result.local[i]);
  }
}

}  // namespace

absl::StatusOr<StudyResult> RunLocalSgdStudy(const LocalSgdStudy& study, StudyContext& context) {
  std::vector<Family> families = MakeFamilies(study);
  for (Family& family : families) {
    family.problems.resize(study.data != nullptr ? 1 : study.seeds);
    family.noises.resize(study.seeds);
  }
  const auto steps = static_cast<int64_t>(PipelineGrid().size() +
                                          study.local_steps.size() * LocalSgdGrid().size());
  const int64_t calls = study.seeds * (1 + static_cast<int64_t>(families.size()) * steps);
  context.Announce("problems", calls);
  PENSTOCK_RETURN_IF_ERROR(
      context.ForEach(study.seeds, [&](int64_t seed) { MakeProblems(study, seed, families); }));

  StudyResult result{.title = "PipeDream and LocalSGD in the same time",
                     .settings = {{"seeds", study.seeds},
                                  {"stages", int64_t{study.stages}},
                                  {"problem", families[0].Of(0).name},
                                  {"width", families[0].Of(0).width()},
                                  {"rows", families[0].Of(0).rows()},
                                  {"noise", families[0].noise}}};
  result.table.columns = {"problem", "method", "local_steps", "ticks", "microbatches"};
  for (const std::string& column : TunedColumns()) result.table.columns.push_back(column);
  for (const Family& family : families) {
    PENSTOCK_ASSIGN_OR_RETURN(const FamilyResult outcome, RunFamily(study, family, calls, context));
    AddRows(study, family, outcome, result.table);
    result.charts.push_back(ChartOf(study, family, outcome));
    result.findings.push_back(WhoWins(study, family, outcome));
  }
  return result;
}

}  // namespace penstock
