#include "planner/job/candidate.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "planner/job/candidate_judge.h"

namespace penstock {

namespace {

std::string Recomputing(const RecomputeChoice& choice) {
  if (choice.none()) return "";
  return choice.all ? ", recomputing" : absl::StrCat(", recomputing stages ", TextOf(choice));
}

std::string OffloadingText(const OffloadChoice& choice) {
  if (choice.none()) return "";
  return absl::StrCat(", offloading", choice.all > 0 ? " " : " stages ", TextOf(choice));
}

}  // namespace

std::string NameOf(const Candidate& candidate) {
  std::string stages = absl::StrCat(candidate.stages, " stages");
  if (candidate.workers > 0) absl::StrAppend(&stages, " on ", candidate.workers, " workers");
  if (candidate.replicas.size() == 1) {
    stages = absl::StrCat(candidate.replicas.front(), " replicas");
  } else if (!candidate.replicas.empty()) {
    stages = absl::StrJoin(candidate.replicas, "-");
  }
  return absl::StrCat(candidate.method, ", ", stages, ", ", candidate.microbatches, " microbatches",
                      Recomputing(candidate.recompute), OffloadingText(candidate.offload),
                      candidate.layer_order.empty() ? "" : ", reordered");
}

int64_t JudgedCandidate::most_staleness() const {
  int64_t most = 0;
  for (const StageLateness& stage : lateness) most = std::max(most, stage.staleness);
  return most;
}

absl::StatusOr<JudgedCandidate> JudgeCandidate(const PlanningInput& input,
                                               const Candidate& candidate,
                                               const std::vector<LayerRange>& layers) {
  PENSTOCK_ASSIGN_OR_RETURN(const CandidateJudge judge, CandidateJudge::Of(input, candidate));
  if (!judge.may_run()) return judge.draft();
  PENSTOCK_ASSIGN_OR_RETURN(StagePlacement placement, judge.Evenly());
  if (!layers.empty()) placement.layers = layers;
  return judge.Judge(placement);
}

}  // namespace penstock
