#include "studies/experiments/race_study.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "planner/job/race.h"
#include "studies/theory/logistic_problems.h"
#include "studies/theory/pipeline_descent.h"
#include "studies/theory/ticks.h"
#include "studies/theory/tuned_report.h"
#include "studies/theory/tuning.h"

namespace penstock {
namespace {

constexpr int64_t kBatch = 10;
constexpr int64_t kLocalSteps = 5;
constexpr int64_t kMicrobatches = 8;  // of a step that drains
constexpr int64_t kLooks = 120;       // at a curve, evenly over the budget
constexpr int64_t kFirstRound = 8;    // parts of the budget
constexpr double kNearEnough = 1.1;   // times the first's time

// The mean over the seeds.
double StartGap(const LogisticProblems& problems) {
  double sum = 0;
  for (const Problem& problem : problems.by_seed) {
    sum += problem.Objective(std::vector<double>(problem.width())) - problem.optimum;
  }
  return sum / static_cast<double>(problems.by_seed.size());
}

// A way to train, as the descent that it is and the clock of its pipeline.
struct Way {
  std::string name;
  std::vector<double> grid;
  TickSequence sequence;
  int64_t batch = kBatch;
  int64_t replicas = 1;
  int64_t round = 0;
  int64_t stretch = 1;  // ticks of the pipeline for a tick of the sequence
};

absl::StatusOr<std::vector<Way>> WaysThrough(int32_t stages, int64_t ticks) {
  PENSTOCK_ASSIGN_OR_RETURN(TickSequence pipedream,
                            PipeDreamSequence(stages, PipeDreamMicrobatches(stages, ticks)));
  const LocalSgdShape shape{stages, stages, kLocalSteps};
  // Draining is one stage's descent with larger batches; a step takes 2 (m + S - 1) ticks, one stage 2.
  const int64_t stretch = kMicrobatches + stages - 1;
  PENSTOCK_ASSIGN_OR_RETURN(TickSequence draining,
                            PipeDreamSequence(1, PipeDreamMicrobatches(1, ticks / stretch + 1)));
  return std::vector<Way>{
      {.name = "pipedream", .grid = PipelineGrid(), .sequence = std::move(pipedream)},
      {.name = "local-sgd",
       .grid = LocalSgdGrid(),
       .sequence = LocalSgdSequence(shape, LocalSgdMicrobatches(shape, ticks)),
       .replicas = shape.replicas,
       .round = shape.round()},
      {.name = "1f1b",
       .grid = LocalSgdGrid(),
       .sequence = std::move(draining),
       .batch = kBatch * kMicrobatches,
       .stretch = stretch}};
}

struct Ran {
  std::string name;
  double learning_rate = 0;
  std::vector<double> gaps;  // by look, without the one at the start
};

absl::StatusOr<Ran> RunWay(const Way& way, const RaceStudy& study, const LogisticProblems& problems,
                           StudyContext& context) {
  const int64_t ticks = study.ticks / way.stretch;
  const int64_t stride = std::max<int64_t>(1, ticks / kLooks);
  const CurvePlan plan = {.ticks = ticks, .stride = stride, .tail_stride = stride};
  const auto run = [&](double learning_rate, int64_t seed) {
    return PipelineDescent(problems.Of(seed), way.sequence,
                           {.learning_rate = learning_rate,
                            .batch = way.batch,
                            .replicas = way.replicas,
                            .round = way.round,
                            .first_minibatch = seed * study.ticks,
                            .plan = plan},
                           problems.noise[seed])
        .curve;
  };
  PENSTOCK_ASSIGN_OR_RETURN(const TunedMethod tuned,
                            Tune(way.grid, study.seeds, plan, run, context));
  Ran ran = {.name = way.name, .learning_rate = tuned.learning_rate};
  for (int64_t look = 1; look <= kLooks; ++look) {
    const int64_t tick = study.ticks * look / kLooks / way.stretch;
    const auto after =
        std::upper_bound(tuned.mean.begin(), tuned.mean.end(), tick,
                         [](int64_t at, const CurvePoint& point) { return at < point.tick; });
    ran.gaps.push_back(std::prev(after)->gap);
  }
  return ran;
}

struct Outcome {
  std::vector<std::optional<int64_t>> reached;  // by run: the look
  std::optional<int> first;                     // absent: none reached it
  int chosen = 0;
  double cost() const {
    return reached[chosen].has_value()
               ? static_cast<double>(*reached[chosen]) / static_cast<double>(*reached[*first])
               : std::numeric_limits<double>::infinity();
  }
};

Outcome OutcomeOf(const std::vector<Ran>& runs, double target) {
  Outcome outcome;
  std::vector<Racer> racers;
  for (const Ran& run : runs) {
    // Sees the curve of the run as far as it would have trained.
    const auto train_to = [&run](int64_t steps) {
      const auto seen = std::min(steps, static_cast<int64_t>(run.gaps.size()));
      return std::vector<double>(run.gaps.begin(), run.gaps.begin() + seen);
    };
    racers.push_back({.step_s = 1.0, .train_to = train_to});
    const auto found =
        std::find_if(run.gaps.begin(), run.gaps.end(), [&](double gap) { return gap <= target; });
    outcome.reached.emplace_back();
    if (found != run.gaps.end()) outcome.reached.back() = found - run.gaps.begin() + 1;
    const std::optional<int64_t>& reached = outcome.reached.back();
    if (reached.has_value() &&
        (!outcome.first.has_value() || *reached < *outcome.reached[*outcome.first])) {
      outcome.first = static_cast<int>(outcome.reached.size()) - 1;
    }
  }
  const RaceResult race = RunRace(racers, {.first_s = static_cast<double>(kLooks) / kFirstRound,
                                           .longest_s = static_cast<double>(kLooks),
                                           .until_loss = target});
  outcome.chosen = *race.winner;  // none fails
  return outcome;
}

StudyChart ChartOf(int32_t stages, const std::vector<Ran>& runs, int64_t ticks) {
  StudyChart chart{.name = absl::StrCat(stages, "-stages"),
                   .chart = {.title = absl::StrFormat("%d stages", stages),
                             .x_label = "ticks",
                             .y_label = "f(w) - f*",
                             .y_log = true}};
  for (const Ran& run : runs) {
    ChartLine line{.label = absl::StrCat(run.name, ", step ", Short(run.learning_rate))};
    for (int64_t look = 1; look <= kLooks; ++look) {
      const double gap = run.gaps[look - 1];
      line.points.push_back({static_cast<double>(ticks * look) / kLooks, gap, gap, gap});
    }
    chart.chart.lines.push_back(std::move(line));
  }
  return chart;
}

}  // namespace

absl::StatusOr<StudyResult> RunRaceStudy(const RaceStudy& study, StudyContext& context) {
  const auto runs_of_depth =
      static_cast<int64_t>(PipelineGrid().size() + 2 * LocalSgdGrid().size());
  const int64_t calls =
      study.seeds * (1 + static_cast<int64_t>(study.stages.size()) * runs_of_depth);
  context.Announce("problems", calls);
  PENSTOCK_ASSIGN_OR_RETURN(const LogisticProblems problems,
                            MakeLogisticProblems({.seeds = study.seeds,
                                                  .ticks = study.ticks,
                                                  .size = study.size,
                                                  .noise = study.noise,
                                                  .data = study.data},
                                                 context));
  const Problem& first = problems.by_seed.front();
  StudyResult result{
      .title = "Whether a race chooses the method that is first, on logistic regression",
      .settings = {{"seeds", study.seeds},
                   {"problem", first.name},
                   {"width", first.width()},
                   {"rows", first.rows()},
                   {"batch", kBatch},
                   {"noise", study.data != nullptr ? 0.0 : study.noise},
                   {"ticks", study.ticks},
                   {"local_steps", kLocalSteps},
                   {"microbatches", kMicrobatches}}};
  result.table.columns = {"stages", "share_of_gap", "first", "ticks", "chosen", "cost"};
  const double start = StartGap(problems);
  bool is_near = true;
  std::vector<std::string> missed;
  for (const int32_t stages : study.stages) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::vector<Way> ways, WaysThrough(stages, study.ticks));
    std::vector<Ran> runs;
    for (const Way& way : ways) {
      context.Announce(absl::StrFormat("S = %d, %s", stages, way.name), calls);
      PENSTOCK_ASSIGN_OR_RETURN(Ran ran, RunWay(way, study, problems, context));
      runs.push_back(std::move(ran));
    }
    result.charts.push_back(ChartOf(stages, runs, study.ticks));
    for (const double share : study.shares) {
      const Outcome outcome = OutcomeOf(runs, share * start);
      if (!outcome.first.has_value()) continue;
      const double cost = outcome.cost();
      const int64_t ticks = *outcome.reached[*outcome.first] * study.ticks / kLooks;
      result.table.rows.push_back({int64_t{stages}, share, runs[*outcome.first].name, ticks,
                                   runs[outcome.chosen].name, cost});
      if (cost <= kNearEnough) continue;
      is_near = false;
      missed.push_back(absl::StrFormat("%.2f at S = %d and %.3g of the gap", cost, stages, share));
    }
  }
  const std::string evidence = result.table.rows.empty() ? "no method came to any of the shares"
                               : is_near                 ? "in all rows"
                                         : absl::StrCat("times: ", absl::StrJoin(missed, ", "));
  result.findings = {{absl::StrCat("what the race chooses is at most ", kNearEnough,
                                   " times as late as the first"),
                      is_near && !result.table.rows.empty(), evidence}};
  return result;
}

}  // namespace penstock
