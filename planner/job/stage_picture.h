// StagePicture: the stages of a judged candidate as a stage plan of planner/, for planner/graph/render_plan.h to draw.
//
// Times are those of one microbatch in a long run; what a schedule makes of them, such as its bubble, is in the
// candidate's step.
//
// A pure function.
#pragma once

#include "absl/status/statusor.h"
#include "planner/graph/layer_graph.h"
#include "planner/graph/stage_plan.h"
#include "planner/job/candidate.h"

namespace penstock {

struct StagePicture {
  LayerGraph graph;
  StagePlan plan;
};

// REQUIRES: judged.runs(). Errors: those of CandidateJudge and GraphOfProfile.
absl::StatusOr<StagePicture> PictureOf(const PlanningInput& input, const JudgedCandidate& judged);

}  // namespace penstock
