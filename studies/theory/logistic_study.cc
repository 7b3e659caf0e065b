// Logistic regression against the number of stages, in a fixed budget of ticks: figure 2b.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "schedule/block_draws.h"
#include "studies/theory/logistic_problems.h"
#include "studies/theory/pipeline_descent.h"
#include "studies/theory/random_descent.h"
#include "studies/theory/studies.h"
#include "studies/theory/tuned_report.h"
#include "studies/theory/tuning.h"

namespace penstock {
namespace {

constexpr int64_t kLocalSteps = 5;
struct Inputs {
  LogisticProblems problems;
  CurvePlan plan;
};

// The results with one number of stages.
struct AtStages {
  int32_t stages = 0;
  int64_t delta = 0;
  int64_t pipeline_microbatches = 0;
  int64_t local_microbatches = 0;
  TunedMethod pipedream;
  TunedMethod rpd;
  TunedMethod local_sgd;
};

absl::StatusOr<Inputs> Prepare(const LogisticStudy& study, StudyContext& context) {
  Inputs inputs;
  // Looking at the objective costs as much as rows / batch microbatches; between the tail's points the
  // curve is only drawn. On a large data set even the tail is looked at now and then.
  const bool large = study.data != nullptr && study.data->rows() > 10 * study.size.rows;
  inputs.plan = {.ticks = study.ticks,
                 .stride = std::max<int64_t>(1, study.ticks / 40),
                 .tail_stride = large ? std::max<int64_t>(1, study.ticks / 150) : 1};
  PENSTOCK_ASSIGN_OR_RETURN(inputs.problems, MakeLogisticProblems({.seeds = study.seeds,
                                                                   .ticks = study.ticks,
                                                                   .size = study.size,
                                                                   .noise = study.noise,
                                                                   .data = study.data},
                                                                  context));
  if (study.shows_objective) {
    for (Problem& problem : inputs.problems.by_seed) problem.optimum = 0.0;
  }
  return inputs;
}

absl::StatusOr<AtStages> RunStages(const LogisticStudy& study, const Inputs& inputs, int32_t stages,
                                   int64_t calls, StudyContext& context) {
  AtStages at{.stages = stages,
              .delta = PipelineDelay(stages),
              .pipeline_microbatches = PipeDreamMicrobatches(stages, study.ticks)};
  PENSTOCK_ASSIGN_OR_RETURN(const TickSequence pipedream,
                            PipeDreamSequence(study.order, stages, at.pipeline_microbatches));
  const std::vector<int64_t> updates_by_tick = UpdatesByTick(pipedream);
  const LocalSgdShape shape{stages, stages, kLocalSteps};
  at.local_microbatches = LocalSgdMicrobatches(shape, study.ticks);
  const TickSequence local = LocalSgdSequence(shape, at.local_microbatches);

  // Every seed meets the rows in another place: of data it changes the order.
  const auto play = [&](const TickSequence& sequence, const LocalSgdShape& models, int64_t round,
                        double learning_rate, int64_t seed) {
    const PipelineDescentOptions options{.learning_rate = learning_rate,
                                         .batch = study.batch,
                                         .replicas = models.replicas,
                                         .round = round,
                                         .first_minibatch = seed * study.ticks,
                                         .plan = inputs.plan};
    return PipelineDescent(inputs.problems.Of(seed), sequence, options, inputs.problems.noise[seed])
        .curve;
  };
  context.Announce(absl::StrFormat("S = %d, PipeDream", stages), calls);
  PENSTOCK_ASSIGN_OR_RETURN(at.pipedream,
                            Tune(
                                PipelineGrid(), study.seeds, inputs.plan,
                                [&](double learning_rate, int64_t seed) {
                                  return play(pipedream, {stages, 1, 1}, 0, learning_rate, seed);
                                },
                                context));
  context.Announce(absl::StrFormat("S = %d, RPD", stages), calls);
  PENSTOCK_ASSIGN_OR_RETURN(
      at.rpd, Tune(
                  PipelineGrid(), study.seeds, inputs.plan,
                  [&](double learning_rate, int64_t seed) {
                    const Problem& problem = inputs.problems.Of(seed);
                    const RandomDescentOptions options{.learning_rate = learning_rate,
                                                       .partition = {stages, study.batch},
                                                       .minibatches = problem.rows() / study.batch,
                                                       .delta = at.delta,
                                                       .seed = static_cast<uint64_t>(seed),
                                                       .plan = inputs.plan,
                                                       .updates_by_tick = updates_by_tick};
                    return RandomDescent(problem, options, inputs.problems.noise[seed]).curve;
                  },
                  context));
  context.Announce(absl::StrFormat("S = %d, LocalSGD", stages), calls);
  PENSTOCK_ASSIGN_OR_RETURN(at.local_sgd, Tune(
                                              LocalSgdGrid(), study.seeds, inputs.plan,
                                              [&](double learning_rate, int64_t seed) {
                                                return play(local, shape, shape.round(),
                                                            learning_rate, seed);
                                              },
                                              context));
  return at;
}

Finding Tracks(const std::vector<AtStages>& all) {
  constexpr double kFactorMax = 2.0;  // what the paper's own figures of one seed differ by
  bool near = true;
  std::vector<std::string> ratios;
  for (const AtStages& at : all) {
    const double ratio = at.rpd.final_mean() / at.pipedream.final_mean();
    near &= ratio < kFactorMax && ratio > 1.0 / kFactorMax;
    ratios.push_back(absl::StrFormat("%.2f (S = %d)", ratio, at.stages));
  }
  return {"RPD with delta = S^2 - S/2 tracks PipeDream: within a factor of 2", near,
          absl::StrCat("final gap of RPD over PipeDream's: ", absl::StrJoin(ratios, ", "))};
}

// Returns how much further from the optimum PipeDream ends than LocalSGD.
using Lead = double (*)(const AtStages& at);
double LeadByRule(const AtStages& at) {
  return at.pipedream.final_mean() / at.local_sgd.final_mean();
}
double LeadByBestStep(const AtStages& at) {
  return at.pipedream.best_end() / at.local_sgd.best_end();
}

// The upper half of the numbers of stages counts as large.
Finding LocalSgdWins(const std::vector<AtStages>& all, const std::string& steps, Lead lead) {
  const int32_t from = all[all.size() / 2].stages;
  bool wins = true;
  std::vector<std::string> ratios;
  for (const AtStages& at : all) {
    if (at.stages >= from) wins &= lead(at) > 1.0;
    ratios.push_back(absl::StrFormat("%.2f (S = %d)", lead(at), at.stages));
  }
  return {absl::StrCat("LocalSGD is ahead of PipeDream for S >= ", from, ", at ", steps), wins,
          absl::StrCat("final gap of PipeDream over LocalSGD's: ", absl::StrJoin(ratios, ", "))};
}

Finding LeadGrows(const std::vector<AtStages>& all, const std::string& steps, Lead lead) {
  return {
      absl::StrCat("LocalSGD gains on PipeDream from the least to the most stages, at ", steps),
      lead(all.back()) > lead(all.front()),
      absl::StrFormat("PipeDream's gap over LocalSGD's: %.2f at S = %d, %.2f at S = %d",
                      lead(all.front()), all.front().stages, lead(all.back()), all.back().stages)};
}

ChartLine LineOf(const std::string& label, const std::vector<AtStages>& all,
                 TunedMethod AtStages::*method) {
  ChartLine line{.label = label, .marked = true};
  for (const AtStages& at : all) {
    const TunedMethod& tuned = at.*method;
    line.points.push_back(
        {static_cast<double>(at.stages), tuned.final_mean(), tuned.final_min(), tuned.final_max()});
  }
  return line;
}

StudyResult Report(const LogisticStudy& study, const Inputs& inputs,
                   const std::vector<AtStages>& all) {
  const Problem& first = inputs.problems.by_seed.front();
  StudyResult result{.title = "PipeDream, RPD and LocalSGD on logistic regression",
                     .settings = {{"seeds", study.seeds},
                                  {"problem", first.name},
                                  {"width", first.width()},
                                  {"rows", first.rows()},
                                  {"batch", study.batch},
                                  {"l2", first.l2},
                                  {"noise", study.data != nullptr ? 0.0 : study.noise},
                                  {"ticks", study.ticks},
                                  {"local_steps", kLocalSteps}}};
  result.table.columns = {"stages", "method", "delta", "microbatches"};
  for (const std::string& column : TunedColumns()) result.table.columns.push_back(column);
  const auto add = [&](const AtStages& at, const std::string& method, StudyCell delta,
                       int64_t microbatches, const TunedMethod& tuned) {
    std::vector<StudyCell> row = {int64_t{at.stages}, method, std::move(delta), microbatches};
    for (StudyCell& cell : TunedCells(tuned)) row.push_back(std::move(cell));
    result.table.rows.push_back(std::move(row));
  };
  for (const AtStages& at : all) {
    add(at, "pipedream", std::string("-"), at.pipeline_microbatches, at.pipedream);
    add(at, "rpd", at.delta, at.pipeline_microbatches, at.rpd);
    add(at, "local-sgd", std::string("-"), at.local_microbatches, at.local_sgd);
  }
  result.charts = {{"",
                    {.title = absl::StrCat("After ", study.ticks, " ticks, ", first.name),
                     .subtitle = absl::StrFormat("batch %d, %d seeds: mean, least and greatest",
                                                 study.batch, study.seeds),
                     .x_label = "stages S",
                     .y_label = study.shows_objective ? "f(w)" : "f(w) - f*",
                     .x_log = true,
                     .y_log = true,
                     .lines = {LineOf("PD", all, &AtStages::pipedream),
                               LineOf("RPD, δ = S² - S/2", all, &AtStages::rpd),
                               LineOf(absl::StrCat("LocalSGD, R = S, H = ", kLocalSteps), all,
                                      &AtStages::local_sgd)}}}};
  result.findings = {Tracks(all)};
  for (const auto& [steps, lead] :
       {std::pair<const char*, Lead>("the rule's steps", LeadByRule),
        {"the best steps of the grids, over the last 1 %", LeadByBestStep}}) {
    result.findings.push_back(LocalSgdWins(all, steps, lead));
    result.findings.push_back(LeadGrows(all, steps, lead));
  }
  return result;
}

}  // namespace

absl::StatusOr<StudyResult> RunLogisticStudy(const LogisticStudy& study, StudyContext& context) {
  const auto steps = static_cast<int64_t>(2 * PipelineGrid().size() + LocalSgdGrid().size());
  const int64_t calls = study.seeds * (1 + static_cast<int64_t>(study.stages.size()) * steps);
  context.Announce("problems", calls);
  PENSTOCK_ASSIGN_OR_RETURN(const Inputs inputs, Prepare(study, context));
  std::vector<AtStages> all;
  for (const int32_t stages : study.stages) {
    if (stages > inputs.problems.by_seed.front().width()) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s has %d features, too few for %d stages", inputs.problems.by_seed.front().name,
          inputs.problems.by_seed.front().width(), stages));
    }
    PENSTOCK_ASSIGN_OR_RETURN(AtStages at, RunStages(study, inputs, stages, calls, context));
    all.push_back(std::move(at));
  }
  return Report(study, inputs, all);
}

}  // namespace penstock
