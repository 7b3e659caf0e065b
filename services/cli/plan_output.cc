#include "services/cli/plan_output.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "planner/graph/render_plan.h"
#include "services/cli/table.h"
#include "services/cli/text.h"

namespace penstock {
namespace {

constexpr size_t kSharedRowsMax = 4;

std::string LayersText(const LayerGraph& graph, const PlannedStage& stage) {
  const std::string& first = graph.nodes[stage.nodes.front()].id;
  return stage.nodes.size() == 1 ? first
                                 : absl::StrCat(first, " .. ", graph.nodes[stage.nodes.back()].id,
                                                " (", stage.nodes.size(), ")");
}

std::string Milliseconds(double seconds) { return FormatFixed(seconds * 1e3, 3); }

std::vector<std::string> WorkerNames(const Cluster& cluster, const PlannedStage& stage) {
  std::vector<std::string> names;
  for (const int worker : stage.placed_on) names.push_back(cluster.workers[worker].name);
  return names;
}

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

std::string UsesText(const PlannedStage& stage) {
  if (stage.recomputed_tensors + stage.swapped_tensors == 0) return stage.recomputes ? "yes" : "";
  std::vector<std::string> uses;
  if (stage.recomputed_tensors > 0) uses.push_back(absl::StrCat(stage.recomputed_tensors));
  if (stage.swapped_tensors > 0) uses.push_back(absl::StrCat("swaps ", stage.swapped_tensors));
  return absl::StrJoin(uses, ", ");
}

// Shows each worker's memory, and the load of what stages share.
std::string PlacementText(const Cluster& cluster, const StagePlan& plan) {
  Table table({{"STAGE"},
               {"WORKERS"},
               {"IN FLIGHT", Table::Align::kRight},
               {"MEMORY", Table::Align::kRight},
               {"OF", Table::Align::kRight},
               {"RECOMPUTES"}});
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const PlannedStage& stage = plan.stages[i];
    double limit = std::numeric_limits<double>::infinity();
    for (const int worker : stage.placed_on) {
      limit = std::min(limit, cluster.workers[worker].memory_bytes);
    }
    table.AddRow(
        {absl::StrCat(i), absl::StrJoin(WorkerNames(cluster, stage), " "),
         absl::StrCat(stage.in_flight), FormatBytes(static_cast<int64_t>(stage.memory_bytes)),
         limit < std::numeric_limits<double>::infinity() ? FormatBytes(static_cast<int64_t>(limit))
                                                         : "",
         UsesText(stage)});
  }
  std::string text = table.Render();
  const size_t rows = std::min(plan.shared.size(), kSharedRowsMax);
  for (size_t i = 0; i < rows; ++i) {
    absl::StrAppend(&text, i == 0 ? "\n" : "", plan.shared[i].name, " is busy for ",
                    Milliseconds(plan.shared[i].busy_s), " ms\n");
  }
  return text + "\n";
}

std::string DataParallelText(const StagePlan& plan) {
  if (!std::isfinite(plan.data_parallel_s)) return "; data parallel does not fit into memory";
  return absl::StrCat(" and ", FormatFixed(plan.data_parallel_s / plan.period_s, 2),
                      " times as fast as data parallel");
}

nlohmann::ordered_json StagesJson(const LayerGraph& graph, const Cluster& cluster,
                                  const std::vector<PlannedStage>& stages) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const PlannedStage& stage : stages) {
    nlohmann::ordered_json layers = nlohmann::ordered_json::array();
    for (const int node : stage.nodes) layers.push_back(graph.nodes[node].id);
    nlohmann::ordered_json one = {{"layers", layers},
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
                                  {"stages", StagesJson(graph, cluster, stage.inner)}};
    if (!stage.placed_on.empty()) {
      one["placed_on"] = WorkerNames(cluster, stage);
      one["in_flight"] = stage.in_flight;
      one["memory_bytes"] = stage.memory_bytes;
      one["recomputes"] = stage.recomputes;
      one["recomputed_tensors"] = stage.recomputed_tensors;
      one["swapped_tensors"] = stage.swapped_tensors;
    }
    list.push_back(std::move(one));
  }
  return list;
}

}  // namespace

std::string PlanText(const PlanInput& input, const Cluster& cluster, const StagePlan& plan) {
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
                      " times as fast as one worker", DataParallelText(plan), "\n\n",
                      table.Render(), "\n",
                      cluster.workers.empty() ? "" : PlacementText(cluster, plan),
                      RenderPlanText(input.graph, plan), "\n", Explain(input.graph, plan), "\n");
}

nlohmann::ordered_json PlanJson(const PlanInput& input, const Cluster& cluster,
                                const StagePlan& plan) {
  nlohmann::ordered_json json = {{"model", plan.model},
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
                                 {"stages", StagesJson(input.graph, cluster, plan.stages)}};
  if (!cluster.workers.empty()) {
    nlohmann::ordered_json shared = nlohmann::ordered_json::array();
    for (const SharedResource& resource : plan.shared) {
      shared.push_back({{"name", resource.name}, {"busy_seconds", resource.busy_s}});
    }
    json["shared"] = std::move(shared);
  }
  return json;
}

}  // namespace penstock
