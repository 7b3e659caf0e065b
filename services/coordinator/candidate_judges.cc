#include "services/coordinator/candidate_judges.h"

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace penstock {
namespace {

void Answer(EventLoop& loop, const std::string& job_id, absl::StatusOr<JobPlan> plan) {
  loop.Post(
      [job_id, answer = std::make_shared<const EffectAnswer>(CandidatesJudged{std::move(plan)})](
          Coordinator& coordinator, Now now) { coordinator.OnAnswer(job_id, *answer, now); });
}

}  // namespace

CandidateJudges::CandidateJudges(EventLoop& loop, Clock& clock)
    : loop_(loop), clock_(clock), tasks_(/*threads=*/1, kTasksMax, "planner") {}

void CandidateJudges::Perform(const JudgeCandidates& judge) {
  const bool taken = tasks_.Submit([this, judge] {
    TimeBudget budget(clock_, absl::Seconds(judge.budget_s));
    PlanJobOptions options = judge.options;
    options.may_go_on = [this] {
      return stopping_ ? absl::CancelledError("the coordinator is stopping") : absl::OkStatus();
    };
    Answer(loop_, judge.job_id, PlanJob(*judge.input, options, budget));
  });
  if (taken) return;
  Answer(loop_, judge.job_id,
         absl::ResourceExhaustedError("too many jobs are being planned at the same time"));
}

}  // namespace penstock
