#include "planner/job/stage_picture.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "compute/tensor.h"
#include "job/run/message_bytes.h"
#include "planner/job/candidate_judge.h"
#include "planner/job/profiled_graph.h"

namespace penstock {
namespace {

class Painter {
 public:
  Painter(const CandidateJudge& judge, const JudgedCandidate& judged, const LayerGraph& graph)
      : judge_(judge), topology_(judge.topology()), judged_(judged), holders_(topology_.parts()) {
    for (size_t node = 0; node < graph.nodes.size(); ++node) {
      nodes_[graph.nodes[node].id] = static_cast<int>(node);
    }
    for (int32_t id = 0; id < topology_.stages(); ++id) {
      std::vector<int>& holders = holders_[topology_[StageId(id)].part];
      const int worker = topology_.worker(StageId(id)).value;
      if (std::find(holders.begin(), holders.end(), worker) == holders.end()) {
        holders.push_back(worker);
      }
    }
  }

  StagePlan Paint() const {
    StagePlan plan;
    plan.model = "the simulated step";
    plan.period_s = judged_.step_s / static_cast<double>(judge_.job().microbatches);
    plan.workers_used = static_cast<int>(judged_.workers.size());
    for (int part = 0; part < topology_.parts(); ++part) plan.stages.push_back(StageOf(part));
    return plan;
  }

 private:
  PlannedStage StageOf(int part) const {
    PlannedStage stage;
    const LayerRange& range = judged_.layers[part];
    stage.recomputes = judged_.candidate.recompute.Has(part);
    for (int layer = range.first; layer < range.end(); ++layer) {
      stage.nodes.push_back(nodes_.at(judge_.job().model.layers[layer].name));
      const StageCosts& costs = judge_.layer_costs()[layer];
      stage.work_s += costs.forward_s + costs.backward_input_s + costs.backward_weight_s +
                      (stage.recomputes ? costs.forward_s : 0.0);
    }
    const std::vector<int>& holders = holders_[part];
    stage.replicas = static_cast<int>(holders.size());
    stage.workers = stage.replicas;
    stage.parameter_bytes =
        static_cast<double>(WeightsOfLayers(judge_.job().model, range) * SizeOf(DType::kF32));
    double speed = std::numeric_limits<double>::infinity();
    for (const int worker : holders) {
      speed = std::min(speed, judged_.times.speeds(worker));
      stage.placed_on.push_back(judged_.workers[worker]);
      stage.memory_bytes =
          std::max(stage.memory_bytes, static_cast<double>(judged_.memory[worker].total()));
    }
    stage.compute_s = stage.work_s / (speed * stage.replicas);
    stage.stage_s = stage.compute_s;
    if (part > 0) {
      stage.input_bytes = BytesAt(range.first);
      stage.input_s = LinkSeconds(stage.input_bytes, holders_[part - 1], holders);
    }
    if (part + 1 < topology_.parts()) {
      stage.output_bytes = BytesAt(range.end());
      stage.output_s = LinkSeconds(stage.output_bytes, holders, holders_[part + 1]);
    }
    return stage;
  }

  double BytesAt(int layer) const {
    return static_cast<double>(ActivationMessageBytesAt(judge_.job(), layer));
  }

  // Returns the time of a microbatch one way; all pairs of replicas take turns.
  double LinkSeconds(double bytes, const std::vector<int>& from, const std::vector<int>& to) const {
    const double share = 1.0 / static_cast<double>(from.size() * to.size());
    double longest_s = 0;
    for (const v1::LinkTimes& link : judged_.times.links()) {
      const auto joins = [&](const std::vector<int>& one, const std::vector<int>& other) {
        return std::find(one.begin(), one.end(), link.workers(0)) != one.end() &&
               std::find(other.begin(), other.end(), link.workers(1)) != other.end();
      };
      if (!link.has_gigabits_per_second() || !(joins(from, to) || joins(to, from))) continue;
      longest_s = std::max(longest_s, bytes * share / (link.gigabits_per_second() * 1e9 / 8.0));
    }
    return longest_s;
  }

  const CandidateJudge& judge_;
  const Topology& topology_;
  const JudgedCandidate& judged_;
  std::map<std::string, int> nodes_;       // of the graph, by layer
  std::vector<std::vector<int>> holders_;  // by part: workers of the pipeline
};

}  // namespace

absl::StatusOr<StagePicture> PictureOf(const PlanningInput& input, const JudgedCandidate& judged) {
  PENSTOCK_ASSIGN_OR_RETURN(const CandidateJudge judge,
                            CandidateJudge::Of(input, judged.candidate));
  PENSTOCK_ASSIGN_OR_RETURN(ProfiledGraph profiled,
                            GraphOfProfile(input.profile, judge.job().microbatch_samples));
  StagePlan plan = Painter(judge, judged, profiled.graph).Paint();
  return StagePicture{std::move(profiled.graph), std::move(plan)};
}

}  // namespace penstock
