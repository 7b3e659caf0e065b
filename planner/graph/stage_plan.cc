#include "planner/graph/stage_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace penstock {
namespace {

std::string JoinReplicas(const std::vector<PlannedStage>& stages) {
  return absl::StrJoin(stages, "-", [](std::string* text, const PlannedStage& stage) {
    absl::StrAppend(text, stage.replicas);
  });
}

std::string NodesText(const LayerGraph& graph, const PlannedStage& stage) {
  const std::string& first = graph.nodes[stage.nodes.front()].id;
  if (stage.nodes.size() == 1) return absl::StrCat("layer ", first);
  return absl::StrCat(stage.nodes.size(), " layers, ", first, " to ",
                      graph.nodes[stage.nodes.back()].id);
}

std::string BoundText(const StagePlan& plan) {
  if (plan.is_optimal) return "No plan under this model is faster.";
  const double gap = plan.lower_bound_s > 0 ? plan.period_s / plan.lower_bound_s - 1 : 0;
  return absl::StrFormat("No plan under this model is faster by more than %.2f %%.",
                         gap / (1 + gap) * 100);
}

}  // namespace

const char* NameOf(Binding binding) {
  switch (binding) {
    case Binding::kCompute:
      return "compute";
    case Binding::kSync:
      return "sync";
    case Binding::kLink:
      return "link";
    case Binding::kShared:
      return "shared";
  }
  return "unknown";
}

double PlannedStage::period_s() const { return std::max({stage_s, input_s, output_s}); }

std::string ReplicasText(const StagePlan& plan) {
  const bool has_levels =
      std::any_of(plan.stages.begin(), plan.stages.end(),
                  [](const PlannedStage& stage) { return !stage.inner.empty(); });
  if (!has_levels) return JoinReplicas(plan.stages);
  return absl::StrJoin(plan.stages, " + ", [](std::string* text, const PlannedStage& stage) {
    absl::StrAppend(text, stage.replicas, "x(", JoinReplicas(stage.inner), ")");
  });
}

std::string Explain(const LayerGraph& graph, const StagePlan& plan) {
  const PlannedStage& stage = plan.stages[plan.binding_stage];
  std::string what;
  switch (plan.binding) {
    case Binding::kCompute:
      what =
          absl::StrFormat("computing its layers takes %.3f ms, averaging their gradients %.3f ms",
                          stage.compute_s * 1e3, stage.sync_s * 1e3);
      break;
    case Binding::kSync:
      what =
          absl::StrFormat("averaging its %.1f MB of gradients takes %.3f ms, computing %.3f ms",
                          stage.parameter_bytes / 1e6, stage.sync_s * 1e3, stage.compute_s * 1e3);
      break;
    case Binding::kLink: {
      const bool is_input = stage.input_s >= stage.output_s;
      what = absl::StrFormat("its %s of %.1f MB takes %.3f ms on the link",
                             is_input ? "input" : "output",
                             (is_input ? stage.input_bytes : stage.output_bytes) / 1e6,
                             (is_input ? stage.input_s : stage.output_s) * 1e3);
      break;
    }
    case Binding::kShared:
      return absl::StrFormat(
          "%s on %d workers: %.3f ms per minibatch, set by %s, busy for all of it. %s",
          ReplicasText(plan), plan.workers_used, plan.period_s * 1e3, plan.shared.front().name,
          BoundText(plan));
  }
  return absl::StrFormat(
      "%s on %d workers: %.3f ms per minibatch, set by stage %d (%s, replicas: %d): %s. %s",
      ReplicasText(plan), plan.workers_used, plan.period_s * 1e3, plan.binding_stage,
      NodesText(graph, stage), stage.replicas, what, BoundText(plan));
}

}  // namespace penstock
