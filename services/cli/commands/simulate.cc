// penstock simulate: what a method costs, without training.
#include "schedule/simulate.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "schedule/block_delay.h"
#include "schedule/verify.h"
#include "services/cli/command_text.h"
#include "services/cli/commands/commands.h"
#include "services/cli/cost_options.h"
#include "services/cli/drawings.h"
#include "services/cli/json_output.h"
#include "services/cli/schedule_source.h"
#include "services/cli/table.h"
#include "services/cli/text.h"

namespace penstock {
namespace {

struct SimulateOptions {
  ScheduleSource source;
  CostOptions costs;
  DrawingOptions drawing;
  bool json = false;
};

// The results of a simulation; without `result` when the schedule blocks for ever.
struct Report {
  int32_t channel_capacity_min = 0;
  std::string deadlock;  // empty: none
  std::optional<SimulationResult> result;
  std::optional<BlockDelay> block_delay;  // unknown where the schedule is too short
};

absl::StatusOr<BlockDelay> BlockDelayOf(const SimulateOptions& options, const Schedule& schedule) {
  const absl::StatusOr<const Method*> method = FindMethod(options.source.name);
  if (method.ok()) {
    PENSTOCK_ASSIGN_OR_RETURN(const ScheduleOptions catalog,
                              CatalogOptions(**method, options.source));
    return PredictBlockDelay(**method, catalog);
  }
  return PredictBlockDelay(schedule);
}

absl::StatusOr<Report> MakeReport(const SimulateOptions& options, const Schedule& schedule) {
  Report report;
  PENSTOCK_ASSIGN_OR_RETURN(const SimulationCosts costs, CostsOf(options.costs, schedule.topology));
  VerifyLimits limits;
  limits.channel_capacity = std::max(limits.channel_capacity, options.costs.capacity.value_or(1));
  const absl::StatusOr<VerifyReport> verified = Verify(schedule, limits);
  if (IsDeadlock(verified.status())) {
    report.deadlock = std::string(verified.status().message());
    return report;
  }
  PENSTOCK_RETURN_IF_ERROR(verified.status());
  report.channel_capacity_min = verified->channel_capacity_min;
  const absl::StatusOr<SimulationResult> result =
      Simulate(schedule, costs,
               {.channel_capacity = options.costs.capacity,
                .timeline_spans_max = options.drawing.any() ? kDrawnSpansMax : 0});
  if (options.costs.capacity.has_value() && *options.costs.capacity < report.channel_capacity_min &&
      IsDeadlock(result.status())) {
    report.deadlock = absl::StrCat(result.status().message(), "\n--capacity ",
                                   report.channel_capacity_min, " or more would do");
    return report;
  }
  PENSTOCK_RETURN_IF_ERROR(result.status());
  report.result = *result;
  const absl::StatusOr<BlockDelay> delay = BlockDelayOf(options, schedule);
  if (delay.ok()) report.block_delay = *delay;
  return report;
}

nlohmann::ordered_json CountJson(const StalenessCount& count) {
  return {{"max", count.max}, {"mean", count.mean()}};
}

// The times of one stage alone, as a run reports them.
struct StageTimes {
  double busy_s = 0.0;
  double idle_s = 0.0;
  double bubble_ratio = 0.0;
};

StageTimes StageTimesOf(int32_t stage, const WorkerTimes& worker, const SimulationResult& result) {
  StageTimes times = {.busy_s = result.stage_busy_s[stage]};
  times.idle_s = result.makespan_s - times.busy_s - worker.overhead_s;
  if (result.makespan_s > 0.0) times.bubble_ratio = times.idle_s / result.makespan_s;
  return times;
}

nlohmann::ordered_json StageJson(int32_t stage, const Schedule& schedule,
                                 const SimulationResult& result) {
  const int32_t worker = schedule.topology.table[stage].worker.value;
  const WorkerTimes& times = result.workers[worker];
  const StageCounts& counts = result.stages[stage];
  const StageTimes own = StageTimesOf(stage, times, result);
  nlohmann::ordered_json causes = {{"input", times.wait_input_s},
                                   {"credit", times.wait_credit_s},
                                   {"collective", times.wait_collective_s},
                                   {"done_early", times.done_early_s}};
  if (counts.offloaded_peak > 0) causes["host"] = times.wait_host_s;
  return {{"stage", stage},
          {"worker", worker},
          {"busy_seconds", own.busy_s},
          {"idle_seconds", own.idle_s},
          {"bubble_ratio", own.bubble_ratio},
          {"staleness", CountJson(counts.staleness)},
          {"version_drift", CountJson(counts.version_drift)},
          {"versions_peak", counts.versions_peak},
          {"predicted_weight_copies", counts.moved_copies},
          {"moved_weight_copies", counts.moved_copies},  // its name before, for one version
          {"activations_peak", counts.activations_peak},
          {"overhead_seconds", times.overhead_s},
          {"idle_causes", causes}};
}

nlohmann::ordered_json ReportJson(const SimulateOptions& options, const Schedule& schedule,
                                  const Report& report) {
  using Json = nlohmann::ordered_json;
  Json per_stage = Json::array();
  for (int32_t stage = 0; report.result && stage < schedule.topology.stages(); ++stage) {
    per_stage.push_back(StageJson(stage, schedule, *report.result));
  }
  const auto number = [&](double SimulationResult::*field) {
    return report.result ? Json((*report.result).*field) : Json();
  };
  return {{"method", options.source.name},
          {"stages", schedule.topology.parts()},
          {"microbatches", schedule.range.count},
          {"makespan", number(&SimulationResult::makespan_s)},
          {"steady_state_period", number(&SimulationResult::steady_state_period_s)},
          {"bubble_ratio", number(&SimulationResult::bubble_ratio)},
          {"block_delay", report.block_delay ? Json{{"max", report.block_delay->max},
                                                    {"mean", report.block_delay->mean}}
                                             : Json()},
          {"deadlock", report.deadlock.empty() ? Json(false) : Json(report.deadlock)},
          {"channel_capacity_min", report.channel_capacity_min},
          {"per_stage", per_stage}};
}

std::string ReportText(const SimulateOptions& options, const Schedule& schedule,
                       const Report& report) {
  const SimulationResult& result = *report.result;
  std::string text = absl::StrFormat(
      "%s, %d stages, %d microbatches: length %g, %g for each further microbatch, bubble %s\n",
      options.source.name, schedule.topology.parts(), schedule.range.count, result.makespan_s,
      result.steady_state_period_s, FormatPercent(result.bubble_ratio));
  if (report.block_delay) {
    absl::StrAppendFormat(&text, "block delay max %d, mean %.2f; ", report.block_delay->max,
                          report.block_delay->mean);
  }
  absl::StrAppend(&text, "smallest channel capacity ", report.channel_capacity_min, "\n\n");
  using Align = Table::Align;
  Table table({{"STAGE", Align::kRight},
               {"BUSY", Align::kRight},
               {"IDLE", Align::kRight},
               {"BUBBLE", Align::kRight},
               {"STALENESS", Align::kRight},
               {"DRIFT", Align::kRight},
               {"VERSIONS", Align::kRight},
               {"ACTIVATIONS", Align::kRight}});
  for (int32_t stage = 0; stage < schedule.topology.stages(); ++stage) {
    const StageTimes times =
        StageTimesOf(stage, result.workers[schedule.topology.table[stage].worker.value], result);
    const StageCounts& counts = result.stages[stage];
    table.AddRow(
        {absl::StrCat(stage), absl::StrFormat("%g", times.busy_s),
         absl::StrFormat("%g", times.idle_s), FormatPercent(times.bubble_ratio),
         absl::StrFormat("%d / %.2f", counts.staleness.max, counts.staleness.mean()),
         absl::StrFormat("%d / %.2f", counts.version_drift.max, counts.version_drift.mean()),
         absl::StrCat(counts.versions_peak), absl::StrCat(counts.activations_peak)});
  }
  return absl::StrCat(text, table.Render());
}

absl::Status RunSimulate(const SimulateOptions& options, Console& console) {
  PENSTOCK_ASSIGN_OR_RETURN(const Schedule schedule, LoadSchedule(options.source, console));
  PENSTOCK_ASSIGN_OR_RETURN(const Report report, MakeReport(options, schedule));
  if (options.json) PrintJson(ReportJson(options, schedule, report), console);
  if (!report.result) return FailedError(report.deadlock);
  if (!options.json) console.out << ReportText(options, schedule, report);
  return Draw(*report.result, schedule, options.drawing, console);
}

}  // namespace

CommandRunner DeclareSimulate(CLI::App& app) {
  const auto options = std::make_shared<SimulateOptions>();
  app.add_option("--method", options->source.name,
                 "A method of the catalog, or a schedule file (`penstock schedule show -o`)")
      ->required()
      ->type_name("NAME|FILE")
      ->check(KnownMethods());
  AddScheduleOptions(app, options->source);
  AddCostOptions(app, options->costs);
  CLI::Option* text = AddDrawingOptions(app, "--trace", options->drawing);
  app.add_flag("--json", options->json, "Print JSON")->excludes(text);
  return [options](Console& console) { return RunSimulate(*options, console); };
}

}  // namespace penstock
