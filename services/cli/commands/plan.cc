// penstock plan: how a profiled model is best cut into stages.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/clock.h"
#include "base/status.h"
#include "planner/render_plan.h"
#include "planner/stage_planner.h"
#include "services/cli/commands/commands.h"
#include "services/cli/drawings.h"
#include "services/cli/json_output.h"
#include "services/cli/plan_input.h"
#include "services/cli/table.h"
#include "services/cli/text.h"

namespace penstock {
namespace {

constexpr double kBytesOfGigabit = 1e9 / 8;

struct Options {
  std::string profile;
  std::optional<int64_t> samples;
  std::string workers = "4";
  std::vector<double> gigabits = {10.0};
  std::string model = "consistent";
  bool straight = false;
  double budget_s = 10.0;
  std::string svg_path;
  bool json = false;
};

// A cost model of planner/cost_model.h, by its name here.
struct NamedModel {
  const char* name;
  StageCostModel (*make)(double bytes_per_second);
  CutRule cuts;
};

constexpr NamedModel kModels[] = {
    {"consistent", ConsistentModel, CutRule::kIdeals},
    {"pipedream-2018", PipeDream2018Model, CutRule::kIdeals},
    {"pipedream-2019", PipeDream2019Model, CutRule::kIdeals},
    {"pipedream-code",
     [](double bytes_per_second) { return PipeDreamReleasedModel(bytes_per_second, true); },
     CutRule::kAntichains},
};

// "16", or by levels from the lowest up, "4x2".
absl::StatusOr<std::vector<int>> ParseWorkers(const std::string& text) {
  std::vector<int> levels;
  for (const absl::string_view part : absl::StrSplit(text, 'x')) {
    int workers = 0;
    if (!absl::SimpleAtoi(part, &workers) || workers < 1 || workers > kPlanWorkersMax) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--workers: is ", text, "; expected a number from 1 to ", kPlanWorkersMax,
          ", or one for each level from the lowest up, as in 4x2 (2 hosts of 4 workers)"));
    }
    levels.push_back(workers);
  }
  return levels;
}

absl::StatusOr<StagePlanRequest> RequestOf(const Options& options) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<int> workers, ParseWorkers(options.workers));
  if (options.gigabits.size() != workers.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--gigabits: has ", options.gigabits.size(), " numbers; expected one for each of the ",
        workers.size(), " levels of --workers ", options.workers));
  }
  const NamedModel& named =
      *std::find_if(std::begin(kModels), std::end(kModels),
                    [&](const NamedModel& model) { return options.model == model.name; });
  StagePlanRequest request = {.cuts = named.cuts};
  for (size_t level = 0; level < workers.size(); ++level) {
    StageCostModel model = named.make(options.gigabits[level] * kBytesOfGigabit);
    model.replicates = !options.straight;
    request.levels.push_back({.workers = workers[level], .model = model});
  }
  return request;
}

std::string LayersText(const LayerGraph& graph, const PlannedStage& stage) {
  const std::string& first = graph.nodes[stage.nodes.front()].id;
  return stage.nodes.size() == 1 ? first
                                 : absl::StrCat(first, " .. ", graph.nodes[stage.nodes.back()].id,
                                                " (", stage.nodes.size(), ")");
}

std::string Milliseconds(double seconds) { return FormatFixed(seconds * 1e3, 3); }

void AddRows(const LayerGraph& graph, const std::vector<PlannedStage>& stages,
             const std::string& prefix, Table& table) {
  for (size_t i = 0; i < stages.size(); ++i) {
    const PlannedStage& stage = stages[i];
    const std::string number = absl::StrCat(prefix, i);
    table.AddRow({number, LayersText(graph, stage), absl::StrCat(stage.replicas),
                  FormatBytes(static_cast<int64_t>(stage.parameter_bytes)),
                  Milliseconds(stage.compute_s), Milliseconds(stage.sync_s),
                  Milliseconds(stage.input_s), Milliseconds(stage.output_s),
                  Milliseconds(stage.period_s())});
    AddRows(graph, stage.inner, absl::StrCat(number, "."), table);
  }
}

std::string PlanText(const PlanInput& input, const StagePlan& plan) {
  Table table({{"STAGE"},
               {"LAYERS"},
               {"REPLICAS", Table::Align::kRight},
               {"PARAMETERS", Table::Align::kRight},
               {"COMPUTE MS", Table::Align::kRight},
               {"SYNC MS", Table::Align::kRight},
               {"INPUT MS", Table::Align::kRight},
               {"OUTPUT MS", Table::Align::kRight},
               {"PERIOD MS", Table::Align::kRight}});
  AddRows(input.graph, plan.stages, "", table);
  return absl::StrCat(input.what, "; model of costs: ", plan.model, "\n", ReplicasText(plan),
                      " on ", plan.workers_used, " workers: ", Milliseconds(plan.period_s),
                      " ms for a minibatch, ", FormatFixed(plan.one_worker_s / plan.period_s, 2),
                      " times as fast as one worker and ",
                      FormatFixed(plan.data_parallel_s / plan.period_s, 2),
                      " times as fast as data parallel\n\n", table.Render(), "\n",
                      RenderPlanText(input.graph, plan), "\n", Explain(input.graph, plan), "\n");
}

nlohmann::ordered_json StagesJson(const LayerGraph& graph,
                                  const std::vector<PlannedStage>& stages) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const PlannedStage& stage : stages) {
    nlohmann::ordered_json layers = nlohmann::ordered_json::array();
    for (const int node : stage.nodes) layers.push_back(graph.nodes[node].id);
    list.push_back({{"layers", layers},
                    {"replicas", stage.replicas},
                    {"workers", stage.workers},
                    {"parameter_bytes", stage.parameter_bytes},
                    {"input_bytes", stage.input_bytes},
                    {"output_bytes", stage.output_bytes},
                    {"compute_seconds", stage.compute_s},
                    {"sync_seconds", stage.sync_s},
                    {"input_seconds", stage.input_s},
                    {"output_seconds", stage.output_s},
                    {"period_seconds", stage.period_s()},
                    {"stages", StagesJson(graph, stage.inner)}});
  }
  return list;
}

nlohmann::ordered_json PlanJson(const PlanInput& input, const StagePlan& plan) {
  return {{"model", plan.model},
          {"replicas", ReplicasText(plan)},
          {"period_seconds", plan.period_s},
          {"lower_bound_seconds", plan.lower_bound_s},
          {"optimal", plan.is_optimal},
          {"in_time", plan.in_time},
          {"workers_used", plan.workers_used},
          {"one_worker_seconds", plan.one_worker_s},
          {"data_parallel_seconds", plan.data_parallel_s},
          {"binding_stage", plan.binding_stage},
          {"binding", NameOf(plan.binding)},
          {"cuts_examined", plan.cuts_examined},
          {"stages", StagesJson(input.graph, plan.stages)}};
}

absl::Status Run(const Options& options, Console& console) {
  PENSTOCK_ASSIGN_OR_RETURN(const StagePlanRequest request, RequestOf(options));
  PENSTOCK_ASSIGN_OR_RETURN(const PlanInput input, ReadPlanInput(options.profile, options.samples));
  if (!options.svg_path.empty()) PENSTOCK_RETURN_IF_ERROR(CheckCanWrite(options.svg_path));
  TimeBudget budget(RealClock(), absl::Seconds(options.budget_s));
  const absl::StatusOr<StagePlan> plan = PlanStages(input.graph, request, budget);
  if (!plan.ok()) return Annotate(plan.status(), options.profile);
  if (options.json) {
    PrintJson(PlanJson(input, *plan), console);
  } else {
    console.out << PlanText(input, *plan);
  }
  if (options.svg_path.empty()) return absl::OkStatus();
  PENSTOCK_RETURN_IF_ERROR(
      WriteTextFile(options.svg_path, RenderPlanSvg(input.graph, *plan, input.what)));
  console.err << "wrote " << options.svg_path << "\n";
  return absl::OkStatus();
}

}  // namespace

CommandRunner DeclarePlan(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  app.add_option("--profile", options->profile,
                 "What `penstock profile -o` wrote (.yaml), or PipeDream's graph.txt")
      ->required()
      ->type_name("FILE");
  app.add_option("--samples", options->samples,
                 "Of a .yaml: samples in a microbatch; default: the largest measured")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  app.add_option("--workers", options->workers,
                 "Workers, or those of each level from the lowest up: 4x2 is 2 hosts of 4")
      ->type_name("N[xN...]")
      ->capture_default_str();
  app.add_option("--gigabits", options->gigabits,
                 "Gigabits a second of a worker's link, one number for each level")
      ->type_name("G[,G...]")
      ->delimiter(',')
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  std::vector<std::string> models;
  for (const NamedModel& model : kModels) models.emplace_back(model.name);
  app.add_option("--model", options->model,
                 "What stages and links cost: our own, or that of PipeDream's papers or code")
      ->type_name("NAME")
      ->check(CLI::IsMember(models))
      ->capture_default_str();
  app.add_flag("--straight", options->straight, "One worker for each stage, no replicas");
  app.add_option("--budget", options->budget_s, "Seconds to plan; then the best found so far")
      ->type_name("S")
      ->check(CLI::Range(0.0, 86'400.0))
      ->capture_default_str();
  app.add_option("--svg", options->svg_path, "Draw the plan")->type_name("FILE");
  app.add_flag("--json", options->json, "Print JSON");
  return [options](Console& console) { return Run(*options, console); };
}

}  // namespace penstock
