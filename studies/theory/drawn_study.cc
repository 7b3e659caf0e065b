// PipeDream with the very numbers that its authors' code drew: points of figure 2b.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "studies/theory/pipeline_descent.h"
#include "studies/theory/studies.h"

namespace penstock {

absl::StatusOr<StudyResult> RunDrawnStudy(const DrawnStudy& study, StudyContext& context) {
  Problem problem = study.numbers->problem;
  problem.optimum = 0.0;  // the figure shows f(w)
  const std::vector<DrawnNumbers::OfStages>& all = study.numbers->of_stages;
  const CurvePlan plan{.ticks = study.ticks, .stride = study.ticks, .tail_stride = study.ticks};
  std::vector<int64_t> microbatches;
  std::vector<double> ends(all.size());
  for (const DrawnNumbers::OfStages& of : all) {
    if (of.stages > problem.width()) {
      return absl::InvalidArgumentError(absl::StrFormat("%s has %d features, too few for %d stages",
                                                        problem.name, problem.width(), of.stages));
    }
    microbatches.push_back(PipeDreamMicrobatches(of.stages, study.ticks));
    // A run that needs more numbers would start over with the first.
    if (of.noise.count() < microbatches.back() * problem.width()) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: the noise of %d stages has %d numbers, fewer than the %d that %d microbatches need",
          problem.name, of.stages, of.noise.count(), microbatches.back() * problem.width(),
          microbatches.back()));
    }
  }
  context.Announce("PipeDream", static_cast<int64_t>(all.size()));
  PENSTOCK_RETURN_IF_ERROR(context.ForEach(static_cast<int64_t>(all.size()), [&](int64_t i) {
    const TickSequence sequence = EagerPipeDreamSequence(all[i].stages, microbatches[i]);
    const PipelineDescentOptions options{
        .learning_rate = study.learning_rate, .batch = study.batch, .plan = plan};
    ends[i] = PipelineDescent(problem, sequence, options, all[i].noise).curve.back().gap;
  }));

  StudyResult result{.title = "PipeDream with the numbers that its authors' code drew",
                     .settings = {{"problem", problem.name},
                                  {"width", problem.width()},
                                  {"rows", problem.rows()},
                                  {"batch", study.batch},
                                  {"l2", problem.l2},
                                  {"learning_rate", study.learning_rate},
                                  {"ticks", study.ticks}}};
  result.table.columns = {"stages", "microbatches", "objective", "published"};
  ChartLine line{.label = "PD", .marked = true};
  for (size_t i = 0; i < all.size(); ++i) {
    const DrawnNumbers::OfStages& of = all[i];
    result.table.rows.push_back({int64_t{of.stages}, microbatches[i], ends[i],
                                 of.published.empty() ? std::string("-") : of.published});
    line.points.push_back({static_cast<double>(of.stages), ends[i], ends[i], ends[i]});
    if (of.published.empty()) continue;
    const std::string digits = absl::StrFormat("%.4e", ends[i]);
    result.findings.push_back(
        {absl::StrCat("S = ", of.stages, ": f(w) ends at the published ", of.published),
         digits == of.published, absl::StrCat("ends at ", digits)});
  }
  result.charts = {
      {"",
       {.title = absl::StrCat("PipeDream after ", study.ticks, " ticks, ", problem.name),
        .subtitle = absl::StrFormat("step size %g, the authors' numbers", study.learning_rate),
        .x_label = "stages S",
        .y_label = "f(w)",
        .x_log = true,
        .y_log = true,
        .lines = {line}}}};
  return result;
}

}  // namespace penstock
