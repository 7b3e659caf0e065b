#include "services/cli/method_comparison.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "job/resolve.h"
#include "job/run_costs.h"
#include "job/run_time.h"
#include "schedule/action.h"

namespace penstock {
namespace {

constexpr double kMiB = 1 << 20;

// What one method did, and how long devices of the given times would have taken.
struct Outcome {
  const v1::GetJobResponse* job;
  std::map<int64_t, double> seconds_at;  // simulated, by step of a cut
  double bubble_ratio = 0.0;             // simulated
  int64_t tokens_per_step = 0;

  const std::string& method() const { return job->summary().method(); }
};

absl::StatusOr<Outcome> Simulated(const v1::GetJobResponse& job, const v1::DeviceTimes& times) {
  PENSTOCK_ASSIGN_OR_RETURN(const ResolvedJob resolved, ResolveJob(job.spec()));
  std::vector<LayerRange> layers;
  for (const v1::StageAssignment& stage : job.plan().stages()) {
    layers.push_back({stage.first_layer(), stage.layers()});
  }
  const int64_t stages = job.result().stages();
  const ScheduleOptions options = ScheduleOptionsOf(resolved, TopologyOf(resolved, stages));
  PENSTOCK_ASSIGN_OR_RETURN(const SimulationCosts costs,
                            RunCostsOf(times, resolved, options.topology, layers));
  const std::vector<Cut> cuts = CutsOf(job.spec(), 0, {});
  PENSTOCK_ASSIGN_OR_RETURN(const RunTime run, SimulateRun(resolved, options, 0, cuts, costs));
  Outcome outcome = {
      .job = &job, .bubble_ratio = run.bubble_ratio, .tokens_per_step = resolved.tokens_per_step()};
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

// The steps after which the first validation was at `loss` or below.
std::optional<int64_t> StepsTo(double loss, const v1::GetJobResponse& job) {
  for (const v1::LossPoint& point : job.result().validations()) {
    if (point.loss() <= loss) return point.step();
  }
  return std::nullopt;
}

// Of all steps done: from the first action of any worker to the last.
double TrainingSeconds(const v1::JobResult& result) {
  double seconds = 0.0;
  for (const v1::StageReport& stage : result.per_stage()) {
    seconds = std::max(seconds, stage.window_seconds());
  }
  return seconds;
}

std::vector<StudyCell> Row(const Outcome& outcome, double loss, std::optional<double> first_s) {
  const v1::JobResult& result = outcome.job->result();
  const std::optional<int64_t> steps = StepsTo(loss, *outcome.job);
  std::vector<StudyCell> row = {outcome.method()};
  if (steps.has_value()) {
    const int64_t tokens = *steps * outcome.tokens_per_step;
    const double seconds = outcome.seconds_at.at(*steps);
    const double share = static_cast<double>(*steps) / static_cast<double>(result.steps());
    row.insert(row.end(), {*steps, tokens, seconds, share * TrainingSeconds(result)});
    row.push_back(first_s.has_value() ? StudyCell(*first_s / seconds) : "-");
  } else {
    row.insert(row.end(), 5, "-");
  }
  double staleness = 0.0;
  int64_t versions = 0;
  int64_t memory = 0;
  for (const v1::StageReport& stage : result.per_stage()) {
    staleness = std::max(staleness, stage.staleness().max());
    versions = std::max(versions, stage.versions_peak());
    memory = std::max(memory, stage.peak_memory_bytes());
  }
  row.insert(row.end(), {outcome.bubble_ratio, result.bubble_ratio(), staleness, versions,
                         static_cast<double>(memory) / kMiB, BestLoss(*outcome.job)});
  return row;
}

// Validation loss of every method, over what `x` makes of a step.
template <typename X>
LineChart ChartOf(absl::Span<const Outcome> outcomes, double loss, const X& x) {
  LineChart chart = {.y_label = "validation loss, nats per token"};
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
  const auto time = [&](Op op) {
    double ms = 0.0;  // of one model
    for (const auto& [layer, sum] : sums[std::string(OpName(op))]) ms += sum.ms / sum.stages;
    return ms;
  };
  v1::DeviceTimes times;
  times.set_device("as measured");
  v1::PassTimes& model = *times.mutable_model();
  model.set_forward_ms(time(Op::kForward));
  model.set_backward_input_ms(time(Op::kBackwardInput));
  model.set_backward_weight_ms(time(Op::kBackwardWeight));
  model.set_update_ms(time(Op::kStep));
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
  const std::optional<int64_t> first_steps = StepsTo(loss, *first.job);
  const auto first_s =
      first_steps ? std::optional(first.seconds_at.at(*first_steps)) : std::nullopt;

  StudyResult result = {
      .title = absl::StrFormat("%s: time to a validation loss of %.4g", first.job->summary().name(),
                               loss),
      .settings = {{"loss", loss},
                   {"stages", int64_t{first.job->result().stages()}},
                   {"microbatches", first.job->result().microbatches()},
                   {"tokens_per_step", first.tokens_per_step},
                   {"times", times.device()}},
      .table = {.columns = {"method", "steps", "tokens", "simulated_seconds", "measured_seconds",
                            "speedup", "bubble", "bubble_measured", "staleness_max", "versions",
                            "memory_mib", "best_loss"}}};
  for (const Outcome& outcome : outcomes) {
    result.table.rows.push_back(Row(outcome, loss, first_s));
  }
  LineChart by_time = ChartOf(outcomes, loss, [](const Outcome& outcome, int64_t step) {
    return outcome.seconds_at.at(step);
  });
  by_time.title = result.title;
  by_time.subtitle =
      absl::StrFormat("%d stages on %sdevices, times %s", first.job->result().stages(),
                      times.speeds().empty() ? "equal " : "", times.device());
  by_time.x_label = "simulated time, s";
  LineChart by_tokens = ChartOf(outcomes, loss, [](const Outcome& outcome, int64_t step) {
    return static_cast<double>(step * outcome.tokens_per_step);
  });
  by_tokens.title = absl::StrCat(first.job->summary().name(), ": what staleness costs");
  by_tokens.subtitle = "the same data in the same order";
  by_tokens.x_label = "tokens";
  result.charts = {{"time", std::move(by_time)}, {"tokens", std::move(by_tokens)}};
  return result;
}

}  // namespace penstock
