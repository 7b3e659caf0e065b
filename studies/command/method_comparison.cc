#include "studies/command/method_comparison.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "job/resolve.h"
#include "job/run/run_schedule.h"
#include "job/run/ties.h"
#include "planner/cost/run_costs.h"
#include "planner/cost/run_time.h"
#include "schedule/action.h"
#include "schedule/sent_bytes.h"
#include "services/cli/table.h"
#include "services/cli/text.h"
#include "services/documents/work_done.h"
#include "studies/command/study_output.h"

namespace penstock {
namespace {

constexpr double kMiB = 1 << 20;

// What one method did, and how long devices of the given times would have taken.
struct Outcome {
  const v1::GetJobResponse* job;
  std::map<int64_t, double> seconds_at;  // simulated, by step of a cut
  double bubble_ratio = 0.0;             // simulated
  double sent_bytes_per_step = 0.0;      // simulated, by all workers
  v1::StepDone step;                     // what each trains on

  const std::string& method() const { return job->summary().method(); }
  // Trained on in `steps` steps.
  WorkDone WorkIn(int64_t steps) const {
    const WorkDone work = WorkDoneOf(step);
    return {work.unit, steps * work.count};
  }
};

absl::StatusOr<Outcome> Simulated(const v1::GetJobResponse& job, const v1::DeviceTimes& times) {
  PENSTOCK_ASSIGN_OR_RETURN(const ResolvedJob resolved, ResolveJob(job.spec()));
  std::vector<LayerRange> layers;
  for (const v1::StageAssignment& stage : job.plan().stages()) {
    layers.push_back({stage.first_layer(), stage.layers()});
  }
  const int64_t stages = job.result().stages();
  const Topology topology = TopologyOf(resolved, stages);
  const ScheduleOptions options =
      ScheduleOptionsOf(resolved, topology, LayersOfParts(topology, layers));
  PENSTOCK_ASSIGN_OR_RETURN(const SimulationCosts costs,
                            RunCostsOf(times, resolved, options.topology, layers));
  const std::vector<Cut> cuts = CutsOf(job.spec(), 0, {});
  PENSTOCK_ASSIGN_OR_RETURN(const RunTime run, SimulateRun(resolved, options, 0, cuts, costs));
  const Traffic traffic = TrafficOf(resolved, options.topology, layers);
  double sent_bytes = 0.0;
  int64_t steps = 0;
  for (const Cut& cut : cuts) {
    PENSTOCK_ASSIGN_OR_RETURN(const Schedule schedule,
                              ScheduleOfSteps(resolved, options, steps, cut.step));
    for (const double bytes : SentBytesOf(schedule, traffic)) sent_bytes += bytes;
    steps = cut.step;
  }
  Outcome outcome = {.job = &job,
                     .bubble_ratio = run.bubble_ratio,
                     .sent_bytes_per_step = sent_bytes / static_cast<double>(steps)};
  outcome.step.set_samples(resolved.batch);
  outcome.step.set_tokens(resolved.tokens_per_step());
  for (size_t i = 0; i < cuts.size(); ++i) outcome.seconds_at[cuts[i].step] = run.cut_s[i];
  return outcome;
}

double BestLoss(const v1::GetJobResponse& job) {
  double best = std::numeric_limits<double>::infinity();
  for (const v1::LossPoint& point : job.result().validations()) {
    best = std::min(best, point.loss());
  }
  return best;
}

// When a method reached a loss: after one validation, and not after another.
struct Crossing {
  int validation = 0;    // the first at the loss or below
  int64_t steps = 0;     // until then
  double at_s = 0.0;     // then
  double after_s = 0.0;  // at the validation before; 0: there is none
};

std::optional<Crossing> CrossingOf(double loss, const Outcome& outcome) {
  Crossing crossing;
  for (const v1::LossPoint& point : outcome.job->result().validations()) {
    crossing.at_s = outcome.seconds_at.at(point.step());
    crossing.steps = point.step();
    if (point.loss() <= loss) return crossing;
    crossing.after_s = crossing.at_s;
    ++crossing.validation;
  }
  return std::nullopt;
}

// The first method of a comparison, which the others are held against.
struct Yardstick {
  const Outcome& outcome;
  std::optional<Crossing> crossing;

  // Whether `other` had the same losses up to there, as methods that drain have: then it crossed in the same step.
  bool CrossedWith(const Outcome& other, const Crossing& there) const {
    const auto& losses = outcome.job->result().validations();
    const auto& its = other.job->result().validations();
    if (crossing->validation != there.validation) return false;
    return std::equal(losses.begin(), losses.begin() + there.validation + 1, its.begin(),
                      [](const v1::LossPoint& a, const v1::LossPoint& b) {
                        return a.step() == b.step() && a.loss() == b.loss();
                      });
  }
};

struct Speedup {
  double told = 0.0;
  double least = 0.0;
  double most = 0.0;  // infinite: no validation says
};

Speedup SpeedupOf(const Yardstick& first, const Outcome& outcome, const Crossing& crossing) {
  const double told = first.crossing->at_s / crossing.at_s;
  if (first.CrossedWith(outcome, crossing)) {
    const double before =
        crossing.after_s > 0.0 ? first.crossing->after_s / crossing.after_s : told;
    return {told, std::min(told, before), std::max(told, before)};
  }
  return {told, first.crossing->after_s / crossing.at_s,
          crossing.after_s > 0.0 ? first.crossing->at_s / crossing.after_s
                                 : std::numeric_limits<double>::infinity()};
}

// Of all steps done: from the first action of any worker to the last.
double TrainingSeconds(const v1::JobResult& result) {
  double seconds = 0.0;
  for (const v1::StageReport& stage : result.per_stage()) {
    seconds = std::max(seconds, stage.window_seconds());
  }
  return seconds;
}

// What all workers together sent others in a step, on the mean.
double MeasuredBytesPerStep(const v1::JobResult& result) {
  double bytes = 0.0;
  for (const v1::WorkerUse& worker : result.feedback().measured().workers()) {
    bytes += worker.sent_bytes_per_step();
  }
  return bytes;
}

std::vector<StudyCell> Row(const Outcome& outcome, double loss, const Yardstick& first) {
  const v1::JobResult& result = outcome.job->result();
  const std::optional<Crossing> crossing = CrossingOf(loss, outcome);
  std::vector<StudyCell> row = {outcome.method()};
  if (crossing.has_value()) {
    const int64_t tokens = crossing->steps * outcome.step.tokens();
    const double share = static_cast<double>(crossing->steps) / static_cast<double>(result.steps());
    row.insert(row.end(), {crossing->steps, tokens > 0 ? StudyCell(tokens) : "-", crossing->at_s,
                           share * TrainingSeconds(result)});
  } else {
    row.insert(row.end(), 4, "-");
  }
  if (crossing.has_value() && first.crossing.has_value()) {
    const Speedup speedup = SpeedupOf(first, outcome, *crossing);
    row.insert(row.end(), {speedup.told, speedup.least, speedup.most});
  } else {
    row.insert(row.end(), 3, "-");
  }
  double staleness = 0.0;
  int64_t versions = 0;
  int64_t memory = 0;
  for (const v1::StageReport& stage : result.per_stage()) {
    staleness = std::max(staleness, stage.staleness().max());
    versions = std::max(versions, stage.versions_peak());
    memory = std::max(memory, stage.peak_memory_bytes());
  }
  row.insert(row.end(),
             {outcome.bubble_ratio, result.bubble_ratio(), staleness, versions,
              static_cast<double>(memory) / kMiB, outcome.sent_bytes_per_step,
              MeasuredBytesPerStep(result), BestLoss(*outcome.job),
              crossing.has_value() ? StudyCell(crossing->steps * outcome.step.samples()) : "-"});
  return row;
}

// The unit of a loss, behind a comma or a blank; empty where it depends on the model.
std::string UnitOfLoss(const Outcome& outcome, absl::string_view before) {
  return outcome.step.tokens() > 0 ? absl::StrCat(before, "nats per token") : "";
}

// Validation loss of every method, over what `x` makes of a step.
template <typename X>
LineChart ChartOf(absl::Span<const Outcome> outcomes, double loss, const X& x) {
  LineChart chart = {.y_label =
                         absl::StrCat("validation loss", UnitOfLoss(outcomes.front(), ", "))};
  double x_max = 0.0;
  for (const Outcome& outcome : outcomes) {
    ChartLine line = {.label = outcome.method(), .marked = true};
    for (const v1::LossPoint& point : outcome.job->result().validations()) {
      const auto at = outcome.seconds_at.find(point.step());
      if (at == outcome.seconds_at.end()) continue;
      const double where = x(outcome, point.step());
      line.points.push_back({where, point.loss(), point.loss(), point.loss()});
      x_max = std::max(x_max, where);
    }
    chart.lines.push_back(std::move(line));
  }
  chart.lines.push_back({.label = absl::StrFormat("%.4g", loss),
                         .points = {{0.0, loss, loss, loss}, {x_max, loss, loss, loss}},
                         .dashed = true});
  return chart;
}

// A cell as `format` writes it; what is not known is "-" already.
template <typename Format>
std::string TextOf(const StudyCell& cell, const Format& format) {
  if (const auto* text = std::get_if<std::string>(&cell)) return *text;
  if (const auto* number = std::get_if<int64_t>(&cell)) return format(static_cast<double>(*number));
  return format(std::get<double>(cell));
}

// "1.45x"; where validations leave it open, in no more digits than that is worth, "1.4x (1.2x to 1.8x)".
std::string SpeedupText(const StudyCell& told, const StudyCell& least, const StudyCell& most) {
  const auto times = [](double value, int digits = 2) {
    return absl::StrCat(FormatDigits(value, digits), "x");
  };
  if (!std::holds_alternative<double>(told)) return "-";
  const double ratio = std::get<double>(told);
  const double low = std::get<double>(least), high = std::get<double>(most);
  if (times(low, 3) == times(high, 3)) return times(ratio, 3);
  const std::string range = std::isinf(high) ? low > 0.0 ? times(low) + " or more" : "or any"
                            : low > 0.0      ? absl::StrCat(times(low), " to ", times(high))
                                             : times(high) + " or less";
  return absl::StrCat(times(ratio), " (", range, ")");
}

}  // namespace

absl::StatusOr<v1::DeviceTimes> MeasuredTimes(const v1::GetJobResponse& job) {
  struct Sum {
    double ms = 0.0;
    int stages = 0;
  };
  // By the first layer: several stages may have the same layers, replicas of a stage or of the model, and not
  // all do everything (of roundpipe's one updates).
  std::map<std::string, std::map<int32_t, Sum>> sums;
  for (const v1::StageReport& stage : job.result().per_stage()) {
    for (const v1::ActionTime& action : stage.actions()) {
      Sum& sum = sums[action.action()][stage.first_layer()];
      sum.ms += action.median_seconds() * 1e3;
      ++sum.stages;
    }
  }
  const auto time = [&](ActionKind kind) {
    double ms = 0.0;  // of one model
    for (const auto& [layer, sum] : sums[std::string(ActionName(kind))]) ms += sum.ms / sum.stages;
    return ms;
  };
  v1::DeviceTimes times;
  times.set_device("as measured");
  v1::PassTimes& model = *times.mutable_model();
  model.set_forward_ms(time(ActionKind::kForward));
  model.set_backward_input_ms(time(ActionKind::kBackwardInput));
  model.set_backward_weight_ms(time(ActionKind::kBackwardWeight));
  model.set_update_ms(time(ActionKind::kUpdate));
  if (model.forward_ms() + model.backward_input_ms() + model.backward_weight_ms() > 0.0) {
    return times;
  }
  return absl::FailedPreconditionError(
      absl::StrCat("job ", job.summary().name(), " with ", job.summary().method(),
                   " reported no times of its passes; give --times FILE"));
}

absl::StatusOr<StudyResult> CompareMethods(absl::Span<const v1::GetJobResponse> jobs,
                                           const v1::DeviceTimes& times,
                                           std::optional<double> until) {
  std::vector<Outcome> outcomes;
  double loss = until.value_or(0.0);
  for (const v1::GetJobResponse& job : jobs) {
    absl::StatusOr<Outcome> outcome = Simulated(job, times);
    if (!outcome.ok()) return Annotate(outcome.status(), job.summary().method());
    outcomes.push_back(*std::move(outcome));
    if (!until.has_value()) loss = std::max(loss, BestLoss(job));
  }
  const Outcome& first = outcomes.front();
  const WorkDone of_step = first.WorkIn(1);
  const std::string unit(of_step.unit);
  const Yardstick yardstick = {.outcome = first, .crossing = CrossingOf(loss, first)};

  StudyResult result = {
      .title = absl::StrFormat("%s: time to a validation loss of %.4g%s",
                               first.job->summary().name(), loss, UnitOfLoss(first, " ")),
      .settings = {{"loss", loss},
                   {"stages", int64_t{first.job->result().stages()}},
                   {"microbatches", first.job->result().microbatches()},
                   {absl::StrCat(unit, "_per_step"), of_step.count},
                   {"times", times.device()}},
      .table = {.columns = {"method", "steps", "tokens", "simulated_seconds", "measured_seconds",
                            "speedup", "speedup_min", "speedup_max", "bubble", "bubble_measured",
                            "staleness_max", "versions", "memory_mib", "sent_bytes_per_step",
                            "sent_bytes_per_step_measured", "best_loss", "samples"}}};
  for (const Outcome& outcome : outcomes) {
    result.table.rows.push_back(Row(outcome, loss, yardstick));
  }
  LineChart by_time = ChartOf(outcomes, loss, [](const Outcome& outcome, int64_t step) {
    return outcome.seconds_at.at(step);
  });
  by_time.title = result.title;
  by_time.subtitle =
      absl::StrFormat("%d stages on %sdevices, times %s", first.job->result().stages(),
                      times.speeds().empty() ? "equal " : "", times.device());
  by_time.x_label = "simulated time, s";
  LineChart by_work = ChartOf(outcomes, loss, [](const Outcome& outcome, int64_t step) {
    return static_cast<double>(outcome.WorkIn(step).count);
  });
  by_work.title = absl::StrCat(first.job->summary().name(), ": what staleness costs");
  by_work.subtitle = "the same data in the same order";
  by_work.x_label = unit;
  result.charts = {{"time", std::move(by_time)}, {unit, std::move(by_work)}};
  return result;
}

std::string ComparisonText(const StudyResult& result) {
  using Align = Table::Align;
  const std::string unit = result.charts.back().chart.x_label;
  Table table({{"METHOD"},
               {"STEPS", Align::kRight},
               {absl::AsciiStrToUpper(unit), Align::kRight},
               {"SIMULATED", Align::kRight},
               {"MEASURED", Align::kRight},
               {"SPEED-UP"},
               {"BUBBLE", Align::kRight},
               {"BUBBLE MEASURED", Align::kRight},
               {"STALENESS (UPDATES)", Align::kRight},
               {"VERSIONS", Align::kRight},
               {"MEMORY", Align::kRight},
               {"BEST LOSS (NATS)", Align::kRight}});
  const auto seconds = [](double value) { return absl::StrCat(FormatDigits(value, 4), " s"); };
  const auto whole = [](double value) { return FormatFixed(value, 0); };
  const auto mebibytes = [](double value) {
    return FormatBytes(static_cast<int64_t>(value * kMiB));
  };
  for (const std::vector<StudyCell>& row : result.table.rows) {
    const auto cell = [&](absl::string_view column) -> const StudyCell& {
      const auto& columns = result.table.columns;
      return row.at(std::find(columns.begin(), columns.end(), column) - columns.begin());
    };
    table.AddRow({TextOf(cell("method"), whole), TextOf(cell("steps"), whole),
                  TextOf(cell(unit), FormatCount), TextOf(cell("simulated_seconds"), seconds),
                  TextOf(cell("measured_seconds"), seconds),
                  SpeedupText(cell("speedup"), cell("speedup_min"), cell("speedup_max")),
                  TextOf(cell("bubble"), FormatPercent),
                  TextOf(cell("bubble_measured"), FormatPercent),
                  TextOf(cell("staleness_max"), whole), TextOf(cell("versions"), whole),
                  TextOf(cell("memory_mib"), mebibytes), TextOf(cell("best_loss"), FormatLoss)});
  }
  return absl::StrCat(StudyHead(result), "\n", table.Render());
}

}  // namespace penstock
