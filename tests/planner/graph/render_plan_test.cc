#include "planner/graph/render_plan.h"

#include <gmock/gmock.h>

#include <algorithm>

namespace penstock {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

LayerGraph Graph() { return ChainGraph({{.id = "first & last"}, {.id = "b"}, {.id = "c"}}); }

// Two stages and a link that is as long as the period.
StagePlan Plan() {
  StagePlan plan{.model = "consistent"};
  plan.stages = {
      {.nodes = {0, 1},
       .replicas = 3,
       .parameter_bytes = 2.5e6,
       .output_bytes = 1000,
       .compute_s = 0.25,
       .sync_s = 0.25,
       .output_s = 1.0,
       .stage_s = 0.5},
      {.nodes = {2}, .input_bytes = 1000, .compute_s = 0.5, .input_s = 1.0, .stage_s = 0.5}};
  plan.period_s = 1.0;
  plan.workers_used = 4;
  return plan;
}

TEST(RenderPlanText, Bars_AreTheSharesOfThePeriod) {
  const std::string text = RenderPlanText(Graph(), Plan());
  const std::string quarter(12, '#');
  EXPECT_THAT(text,
              HasSubstr("stage 0 x3 |" + quarter + std::string(12, '+') + std::string(24, ' ') +
                        "|    500.000 ms  first & last to b, 2 layers, 2.5 MB of parameters"));
  EXPECT_THAT(text,
              HasSubstr("link 0-1   |" + std::string(48, '-') + "|   1000.000 ms  1 kB each way"));
  EXPECT_THAT(text, HasSubstr("stage 1 x1 |" + quarter + quarter + std::string(24, ' ') + "|"));
}

TEST(RenderPlanText, AveragingHiddenBehindComputing_IsNotDrawnBehindIt) {
  StagePlan plan = Plan();
  plan.stages[0].stage_s = plan.stages[0].compute_s;
  EXPECT_THAT(RenderPlanText(Graph(), plan),
              HasSubstr("stage 0 x3 |" + std::string(12, '#') + std::string(36, ' ') + "|"));
}

TEST(RenderPlanSvg, Picture_HasARowForEachStageAndLinkAndEscapesNames) {
  const std::string svg = RenderPlanSvg(Graph(), Plan(), "a < b");
  EXPECT_THAT(svg, HasSubstr("<svg "));
  EXPECT_THAT(svg, HasSubstr("</svg>"));
  EXPECT_THAT(svg, HasSubstr("a &lt; b"));
  EXPECT_THAT(svg, HasSubstr("first &amp; last"));
  EXPECT_THAT(svg, HasSubstr("3-1 on 4 workers: 1000.000 ms"));
  for (const char* label : {"stage 0 x3", "link 0-1", "stage 1 x1"})
    EXPECT_THAT(svg, HasSubstr(label));
}

TEST(RenderPlanSvg, PlanWithoutTimes_IsDrawnEmpty) {
  StagePlan plan = Plan();
  plan.period_s = 0;
  for (PlannedStage& stage : plan.stages) {
    stage.compute_s = stage.sync_s = stage.input_s = stage.output_s = stage.stage_s = 0;
  }
  EXPECT_THAT(RenderPlanSvg(Graph(), plan, "nothing"), Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace penstock
