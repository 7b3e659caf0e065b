// penstock methods: the catalog, with what each method costs on a pipeline of a given size.
#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "schedule/catalog/catalog.h"
#include "schedule/search.h"
#include "schedule/simulate.h"
#include "schedule/verify.h"
#include "services/cli/commands/commands.h"
#include "services/cli/json_output.h"
#include "services/cli/table.h"

namespace penstock {
namespace {

struct MethodsOptions {
  int32_t workers = 4;
  int64_t microbatches = 8;
  bool json = false;
};

// The costs of a method, or why it cannot run at this size.
struct Costs {
  double bubble_ratio = 0.0;  // of a step in the middle of a long run
  int64_t versions_peak = 0;  // the most on any stage, as the others
  int64_t predicted_copies = 0;
  // All versions, predicted copies and replicas on a worker, in weights of its share of the model.
  double weights_kept = 0.0;
  int64_t staleness_max = 0;
  int64_t version_drift_max = 0;
};

std::string ToString(absl::string_view view) { return std::string(view.data(), view.size()); }

// Steps of a run, so that filling and draining at its ends does not count.
constexpr int64_t kStepsFew = 8;
constexpr int64_t kStepsMany = 16;
// Of the search for an order.
constexpr int64_t kMoves = 4'000;
constexpr int64_t kSteps = 3;

// The catalog, and the method whose order is searched.
std::vector<const Method*> AllMethods() {
  std::vector<const Method*> methods;
  for (const Method& method : Methods()) methods.push_back(&method);
  methods.push_back(&SearchedMethod());
  return methods;
}

absl::StatusOr<Costs> CostsOf(const Method& method, const MethodsOptions& options) {
  const int32_t per_worker = StagesPerWorkerMin(method.placement);
  const int32_t stages = options.workers * per_worker;
  const bool is_searched = method.placement == Placement::kListed;
  PENSTOCK_ASSIGN_OR_RETURN(const Topology topology,
                            PlaceMethod(is_searched ? **FindMethod("1f1b") : method, stages,
                                        options.workers, options.microbatches));
  // F, I and W take the same time on every stage, messages none.
  const SimulationCosts equal = {.stages =
                                     std::vector<StageCosts>(topology.stages(), {1, 1, 1, 0})};
  ScheduleOptions catalog = {.topology = topology, .microbatches_per_step = options.microbatches};
  if (is_searched) {
    const std::vector<int64_t> as_zb_h2(options.workers, 2 * options.workers);
    PENSTOCK_ASSIGN_OR_RETURN(
        const SearchResult found,
        SearchSchedule(
            topology, options.microbatches,
            {.costs = equal, .activations_max = as_zb_h2, .moves = kMoves, .steps = kSteps}));
    catalog.listed = std::make_shared<const Schedule>(found.schedule);
  }
  double makespan_s[2] = {};
  VerifyReport report;
  for (const int64_t steps : {kStepsFew, kStepsMany}) {
    PENSTOCK_ASSIGN_OR_RETURN(
        const Schedule schedule,
        BuildSchedule(method, catalog, {.first = 0, .count = steps * options.microbatches}));
    PENSTOCK_ASSIGN_OR_RETURN(report, Verify(schedule));
    PENSTOCK_ASSIGN_OR_RETURN(
        const SimulationResult result,
        Simulate(schedule, equal,
                 {.channel_capacity =
                      report.channel_capacity_min +
                      std::max<int32_t>(2, static_cast<int32_t>(topology.rounds.microbatches))}));
    makespan_s[steps == kStepsMany] = result.makespan_s;
  }
  const double step_s = (makespan_s[1] - makespan_s[0]) / (kStepsMany - kStepsFew);
  // Forwards that each worker repeats for a microbatch.
  const auto again = std::count_if(
      topology.table.begin(), topology.table.end(),
      [](const StageWiring& stage) { return stage.recomputes && stage.pipeline == 0; });
  const double work_s = static_cast<double>(options.microbatches) *
                        (3.0 * stages + static_cast<double>(again)) /
                        static_cast<double>(options.workers);
  Costs costs = {.bubble_ratio = std::max(0.0, 1.0 - work_s / step_s)};
  for (int32_t worker = 0; worker < options.workers; ++worker) {
    std::map<int32_t, int64_t> kept;  // by the first stage with the same weights
    int64_t on_worker = 0;            // first those of others, where weights are streamed
    for (const StageId stage : topology.StagesOf(WorkerId(worker))) {
      const StageCounts& counts = report.stages[stage.value];
      on_worker = std::max(on_worker, counts.streamed_peak);
      if (topology[stage].source.value >= 0) continue;
      int64_t& copies = kept[topology[stage].holder.value];
      copies = std::max(copies, counts.versions_peak + counts.moved_copies);
    }
    for (const auto& [holder, copies] : kept) on_worker += copies;
    costs.weights_kept = std::max(costs.weights_kept, static_cast<double>(on_worker) / per_worker);
  }
  for (const StageCounts& counts : report.stages) {
    costs.versions_peak = std::max(costs.versions_peak, counts.versions_peak);
    costs.predicted_copies = std::max(costs.predicted_copies, counts.moved_copies);
    costs.staleness_max = std::max(costs.staleness_max, counts.staleness.max);
    costs.version_drift_max = std::max(costs.version_drift_max, counts.version_drift.max);
  }
  return costs;
}

nlohmann::ordered_json MethodJson(const Method& method, const absl::StatusOr<Costs>& costs) {
  nlohmann::ordered_json json = {
      {"method", ToString(method.name)},
      {"summary", ToString(method.summary)},
      {"paper", ToString(method.paper)},
      {"synchronous", method.synchronous},
      {"updates_each_microbatch", method.updates_each_microbatch},
      {"optimizer", method.update.optimizer.empty()
                        ? nlohmann::ordered_json()
                        : nlohmann::ordered_json(ToString(method.update.optimizer))},
      {"reschedules_rates", method.update.reschedules_rates},
      {"stage_momentum", method.update.stage_momentum},
      {"weights", ToString(method.weights->name)},
      {"stages_per_worker_min", StagesPerWorkerMin(method.placement)},
      {"bubble_ratio", nullptr},
      {"versions_peak", nullptr},
      {"predicted_weight_copies", nullptr},
      {"moved_weight_copies", nullptr},  // its name before, for one version
      {"weights_kept", nullptr},
      {"staleness_max", nullptr},
      {"version_drift_max", nullptr},
      {"refusal", nullptr}};
  if (costs.ok()) {
    json["bubble_ratio"] = costs->bubble_ratio;
    json["versions_peak"] = costs->versions_peak;
    json["predicted_weight_copies"] = costs->predicted_copies;
    json["moved_weight_copies"] = costs->predicted_copies;
    json["weights_kept"] = costs->weights_kept;
    json["staleness_max"] = costs->staleness_max;
    json["version_drift_max"] = costs->version_drift_max;
  } else {
    json["refusal"] = ToString(costs.status().message());
  }
  return json;
}

absl::Status RunMethods(const MethodsOptions& options, Console& console) {
  if (options.json) {
    nlohmann::ordered_json methods = nlohmann::ordered_json::array();
    for (const Method* const method : AllMethods()) {
      methods.push_back(MethodJson(*method, CostsOf(*method, options)));
    }
    PrintJson(methods, console);
    return absl::OkStatus();
  }
  constexpr auto kRight = Table::Align::kRight;
  Table table({{"METHOD"},
               {"BUBBLE", kRight},
               {"VERSIONS", kRight},
               {"WEIGHTS", kRight},
               {"STALENESS", kRight},
               {"SUMMARY"},
               {"PAPER"}});
  for (const Method* const method : AllMethods()) {
    const absl::StatusOr<Costs> costs = CostsOf(*method, options);
    table.AddRow({ToString(method->name),
                  costs.ok() ? absl::StrFormat("%.0f %%", costs->bubble_ratio * 100.0) : "-",
                  costs.ok() ? absl::StrCat(costs->versions_peak + costs->predicted_copies) : "-",
                  costs.ok() ? absl::StrCat(costs->weights_kept) : "-",
                  costs.ok() ? absl::StrCat(costs->staleness_max) : "-", ToString(method->summary),
                  ToString(method->paper)});
  }
  console.out
      << table.Render() << "\n"
      << "On " << options.workers << " workers with " << options.microbatches
      << " microbatches in a step, forward and both halves of the backward equal: the bubble\n"
         "of a step in a long run, the most copies of the weights (versions and predicted) and "
         "staleness (updates)\nof a stage, and the most weights that a worker keeps, all versions "
         "and "
         "replicas, in those of its share of the model.\n";
  return absl::OkStatus();
}

}  // namespace

CommandRunner DeclareMethods(CLI::App& app) {
  const auto options = std::make_shared<MethodsOptions>();
  app.add_option("--workers", options->workers, "Workers of the pipeline that figures are for")
      ->type_name("W")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--microbatches", options->microbatches, "Microbatches in a step")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, int64_t{1024}))
      ->capture_default_str();
  app.add_flag("--json", options->json, "Print JSON");
  return [options](Console& console) { return RunMethods(*options, console); };
}

}  // namespace penstock
