#include "planner/job/step_reasons.h"

#include <algorithm>

#include "base/status.h"
#include "planner/job/candidate_judge.h"

namespace penstock {

absl::StatusOr<StepReasons> ReasonsOf(const PlanningInput& input, const JudgedCandidate& judged) {
  PENSTOCK_ASSIGN_OR_RETURN(const CandidateJudge judge,
                            CandidateJudge::Of(input, judged.candidate));
  StepReasons reasons;
  const auto busiest = std::max_element(judged.busy_s.begin(), judged.busy_s.end());
  reasons.busiest = static_cast<int>(busiest - judged.busy_s.begin());
  reasons.busiest_s = *busiest;
  v1::DeviceTimes alone = judged.times;
  alone.clear_links();
  PENSTOCK_ASSIGN_OR_RETURN(reasons.without_network_s, judge.StepSeconds(alone, judged.layers));
  double work_s = 0;
  double capacity = 0;
  for (size_t worker = 0; worker < judged.workers.size(); ++worker) {
    const double speed = input.cluster.workers[judged.workers[worker]].speed;
    work_s += judged.busy_s[worker] * speed;
    capacity += speed;
  }
  reasons.spread_s = work_s / capacity;
  return reasons;
}

std::optional<int> FasterButForMemory(const JobPlan& plan) {
  std::optional<int> found;
  double found_s = plan.fastest.has_value() ? plan.candidates[*plan.fastest].step_s : 0;
  for (size_t at = 0; at < plan.candidates.size(); ++at) {
    const JudgedCandidate& judged = plan.candidates[at];
    const bool is_faster = found_s == 0 || judged.step_s < found_s;
    if (!judged.lacks_memory || !is_faster) continue;
    found = static_cast<int>(at);
    found_s = judged.step_s;
  }
  return found;
}

std::optional<int> SmallestButForMemory(const JobPlan& plan) {
  std::optional<int> found;
  for (size_t at = 0; at < plan.candidates.size(); ++at) {
    const JudgedCandidate& judged = plan.candidates[at];
    if (!judged.lacks_memory) continue;
    if (!found.has_value() || judged.most_memory() < plan.candidates[*found].most_memory()) {
      found = static_cast<int>(at);
    }
  }
  return found;
}

}  // namespace penstock
