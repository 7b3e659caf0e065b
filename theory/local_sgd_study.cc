// PipeDream and LocalSGD over ticks, on logistic regression and Nesterov's quadratic: figure 4.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "theory/pipeline_descent.h"
#include "theory/studies.h"
#include "theory/tuned_report.h"
#include "theory/tuning.h"

namespace penstock {
namespace {

struct Sequences {
  TickSequence pipedream;
  std::vector<LocalSgdShape> shapes;  // by H
  std::vector<TickSequence> local;
  CurvePlan plan;
};

// One kind of problem, for all seeds.
struct Family {
  std::string name;  // "logistic"
  std::vector<Problem> problems;
  const Problem& Of(int64_t seed) const { return problems[seed % problems.size()]; }
};

struct FamilyResult {
  std::string problem;
  TunedMethod pipedream;
  std::vector<TunedMethod> local;  // by H
};

absl::StatusOr<Sequences> PrepareSequences(const LocalSgdStudy& study) {
  Sequences sequences;
  PENSTOCK_ASSIGN_OR_RETURN(sequences.pipedream,
                            PipeDreamSequence(study.stages, study.microbatches));
  const int64_t ticks = sequences.pipedream.ticks;
  for (const int64_t steps : study.local_steps) {
    const LocalSgdShape shape{study.stages, study.stages, steps};
    sequences.shapes.push_back(shape);
    sequences.local.push_back(LocalSgdSequence(shape, LocalSgdMicrobatches(shape, ticks)));
  }
  sequences.plan = {.ticks = ticks};
  return sequences;
}

absl::StatusOr<FamilyResult> RunFamily(const LocalSgdStudy& study, const Sequences& sequences,
                                       const Family& family, int64_t calls, StudyContext& context) {
  CurvePlan plan = sequences.plan;
  // Of a large data set the objective is looked at now and then.
  const bool large = family.Of(0).rows() > 10 * study.size.rows;
  if (large) plan.stride = plan.tail_stride = std::max<int64_t>(1, plan.ticks / 150);
  const auto play = [&](const TickSequence& sequence, int64_t replicas, int64_t round,
                        double learning_rate, int64_t seed) {
    const PipelineDescentOptions options{.learning_rate = learning_rate,
                                         .batch = study.batch,
                                         .replicas = replicas,
                                         .round = round,
                                         .first_minibatch = seed * plan.ticks,
                                         .plan = plan};
    return PipelineDescent(family.Of(seed), sequence, options).curve;
  };
  FamilyResult result{.problem = family.name};
  context.Announce(absl::StrCat(family.name, ", PipeDream"), calls);
  PENSTOCK_ASSIGN_OR_RETURN(result.pipedream, Tune(
                                                  PipelineGrid(), study.seeds, plan,
                                                  [&](double learning_rate, int64_t seed) {
                                                    return play(sequences.pipedream, 1, 0,
                                                                learning_rate, seed);
                                                  },
                                                  context));
  for (size_t i = 0; i < sequences.shapes.size(); ++i) {
    const LocalSgdShape& shape = sequences.shapes[i];
    context.Announce(absl::StrCat(family.name, ", LocalSGD H = ", shape.local_steps), calls);
    PENSTOCK_ASSIGN_OR_RETURN(TunedMethod tuned, Tune(
                                                     LocalSgdGrid(), study.seeds, plan,
                                                     [&](double learning_rate, int64_t seed) {
                                                       return play(sequences.local[i],
                                                                   shape.replicas, shape.round(),
                                                                   learning_rate, seed);
                                                     },
                                                     context));
    result.local.push_back(std::move(tuned));
  }
  return result;
}

// Whether PipeDream (or else LocalSGD, by its best H) ends nearer to the optimum.
Finding WhoWins(const FamilyResult& family, const std::vector<int64_t>& local_steps,
                bool pipedream_wins) {
  std::vector<std::string> finals;
  double best = family.local.front().final_mean();
  for (size_t i = 0; i < family.local.size(); ++i) {
    best = std::min(best, family.local[i].final_mean());
    finals.push_back(
        absl::StrFormat("H = %d %s", local_steps[i], Short(family.local[i].final_mean())));
  }
  const double pipedream = family.pipedream.final_mean();
  return {absl::StrCat(pipedream_wins ? "PipeDream" : "LocalSGD", " wins on ", family.problem),
          pipedream_wins == (pipedream < best),
          absl::StrCat("final gaps: PipeDream ", Short(pipedream), ", LocalSGD ",
                       absl::StrJoin(finals, ", "))};
}

StudyChart ChartOf(const LocalSgdStudy& study, const FamilyResult& family, const Problem& problem) {
  LineChart chart{
      .title = absl::StrCat("PipeDream and LocalSGD, ", problem.name),
      .subtitle = absl::StrFormat("S = R = %d, batch %d, %d seeds: mean, least and greatest",
                                  study.stages, study.batch, study.seeds),
      .x_label = "ticks",
      .y_label = "f(w) - f*",
      .y_log = true};
  chart.lines.push_back(TunedLine("PD", family.pipedream, CurveClock::kTicks));
  for (size_t i = 0; i < family.local.size(); ++i) {
    chart.lines.push_back(TunedLine(absl::StrCat("LocalSGD H = ", study.local_steps[i]),
                                    family.local[i], CurveClock::kTicks));
  }
  return {family.problem, std::move(chart)};
}

void AddRows(const LocalSgdStudy& study, const Sequences& sequences, const FamilyResult& family,
             StudyTable& table) {
  const auto add = [&](const std::string& method, StudyCell steps, int64_t microbatches,
                       const TunedMethod& tuned) {
    std::vector<StudyCell> row = {family.problem, method, std::move(steps), microbatches};
    for (StudyCell& cell : TunedCells(tuned)) row.push_back(std::move(cell));
    table.rows.push_back(std::move(row));
  };
  add("pipedream", std::string("-"), study.microbatches, family.pipedream);
  for (size_t i = 0; i < family.local.size(); ++i) {
    add("local-sgd", study.local_steps[i], sequences.local[i].microbatches, family.local[i]);
  }
}

}  // namespace

absl::StatusOr<StudyResult> RunLocalSgdStudy(const LocalSgdStudy& study, StudyContext& context) {
  PENSTOCK_ASSIGN_OR_RETURN(const Sequences sequences, PrepareSequences(study));
  std::vector<Family> families(2);
  families[0].name = "logistic";
  families[1].name = "quadratic";
  families[0].problems.resize(study.data != nullptr ? 1 : study.seeds);
  families[1].problems.resize(study.seeds);
  const auto steps = static_cast<int64_t>(PipelineGrid().size() +
                                          study.local_steps.size() * LocalSgdGrid().size());
  const int64_t calls = study.seeds * (1 + static_cast<int64_t>(families.size()) * steps);
  context.Announce("problems", calls);
  PENSTOCK_RETURN_IF_ERROR(context.ForEach(study.seeds, [&](int64_t seed) {
    if (study.data == nullptr) {
      families[0].problems[seed] = SyntheticLogistic(study.size, seed);
    } else if (seed == 0) {
      families[0].problems[0] = *study.data;
    }
    families[1].problems[seed] = NesterovQuadratic(study.size, seed);
  }));

  StudyResult result{.title = "PipeDream and LocalSGD in the same time",
                     .settings = {{"seeds", study.seeds},
                                  {"stages", int64_t{study.stages}},
                                  {"batch", study.batch},
                                  {"ticks", sequences.plan.ticks}}};
  result.table.columns = {"problem", "method", "local_steps", "microbatches"};
  for (const std::string& column : TunedColumns()) result.table.columns.push_back(column);
  for (const Family& family : families) {
    PENSTOCK_ASSIGN_OR_RETURN(const FamilyResult outcome,
                              RunFamily(study, sequences, family, calls, context));
    AddRows(study, sequences, outcome, result.table);
    result.charts.push_back(ChartOf(study, outcome, family.Of(0)));
    const bool pipedream_wins = family.Of(0).loss == Loss::kSquared;
    result.findings.push_back(WhoWins(outcome, study.local_steps, pipedream_wins));
  }
  return result;
}

}  // namespace penstock
