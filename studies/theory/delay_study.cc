// PipeDream's delay against the number of stages: proposition 4.1 and figure 6.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "schedule/block_delay.h"
#include "schedule/catalog/catalog.h"
#include "studies/theory/delays.h"
#include "studies/theory/studies.h"
#include "studies/theory/ticks.h"

namespace penstock {
namespace {

constexpr double kRounding = 1e-9;

struct CountedDelays {
  int32_t stages = 0;
  std::vector<Delays> counted;  // by convention
  BlockDelay product;           // what `penstock simulate` says
};

absl::StatusOr<CountedDelays> CountAll(int32_t stages) {
  CountedDelays delays{.stages = stages};
  PENSTOCK_ASSIGN_OR_RETURN(const TickSequence sequence,
                            PipeDreamSequence(stages, SteadyMicrobatches(stages)));
  for (const DelayConvention convention : kDelayConventions) {
    delays.counted.push_back(CountDelays(sequence, convention));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const Method* const method, FindMethod("pipedream"));
  PENSTOCK_ASSIGN_OR_RETURN(delays.product,
                            PredictBlockDelay(*method, {.topology = StraightPipeline(stages)}));
  return delays;
}

bool Equal(const Delays& a, const Delays& b) {
  return a.max == b.max && std::fabs(a.mean - b.mean) < kRounding;
}

// One finding for each convention: whether its closed form holds for every number of stages.
Finding ClosedForm(DelayConvention convention, const std::vector<CountedDelays>& all) {
  constexpr absl::string_view kForms[] = {"max floor(S^2 - S/2), mean (S^2-1)/2",
                                          "max as A, 1 less for even S; mean as A",
                                          "max as A; mean S^2/2 + (S-2)/4 (even S)",
                                          "max S^2 - S; mean S^2/2 - (S+2)/4 (even S)",
                                          "max as A; mean S^2/2 (even S), S^2/2 - 1/(2S) (odd S)",
                                          "max and mean as A",
                                          "max S-1, mean (S-1)/2"};
  const auto index = static_cast<size_t>(convention);
  int exact = 0;
  for (const CountedDelays& delays : all) {
    exact += Equal(delays.counted[index], PipeDreamDelays(delays.stages, convention));
  }
  return {absl::StrCat(ConventionLetter(convention), " (", ConventionMeaning(convention),
                       "): ", kForms[index]),
          exact == static_cast<int>(all.size()),
          absl::StrFormat("exact for %d of %d numbers of stages", exact, all.size())};
}

Finding SameAsProduct(const std::vector<CountedDelays>& all) {
  bool same = true;
  for (const CountedDelays& delays : all) {
    const Delays& replay = delays.counted[static_cast<size_t>(DelayConvention::kReplay)];
    same &= replay.max == delays.product.max &&
            std::fabs(replay.mean - delays.product.mean) < kRounding;
  }
  return {"`penstock simulate` reports the same block delay as A", same,
          absl::StrFormat("compared for %d numbers of stages", all.size())};
}

ChartLine MeasuredLine(const std::string& label, const std::vector<CountedDelays>& all,
                       const std::function<double(const CountedDelays&)>& value) {
  ChartLine line{.label = label, .marked = true};
  for (const CountedDelays& delays : all) {
    const double y = value(delays);
    line.points.push_back({static_cast<double>(delays.stages), y, y, y});
  }
  return line;
}

ChartLine FormulaLine(const std::string& label, int32_t stages_max,
                      const std::function<double(double)>& value) {
  ChartLine line{.label = label, .dashed = true};
  for (int32_t stages = 1; stages <= stages_max; ++stages) {
    const double y = value(stages);
    line.points.push_back({static_cast<double>(stages), y, y, y});
  }
  return line;
}

LineChart ChartOf(const std::vector<CountedDelays>& all) {
  const auto counted = [](DelayConvention convention, const CountedDelays& delays) {
    return delays.counted[static_cast<size_t>(convention)];
  };
  LineChart chart{.title = "PipeDream: delay against stages",
                  .subtitle = "in block updates of the whole model, steady state",
                  .x_label = "stages S",
                  .y_label = "delay (block updates)",
                  .x_log = true,
                  .y_log = true};
  const int32_t stages_max = all.back().stages;
  chart.lines = {
      MeasuredLine("greatest", all,
                   [&](const CountedDelays& d) {
                     return static_cast<double>(counted(DelayConvention::kReplay, d).max);
                   }),
      MeasuredLine(
          "mean", all,
          [&](const CountedDelays& d) { return counted(DelayConvention::kReplay, d).mean; }),
      MeasuredLine("greatest, own stage alone", all,
                   [&](const CountedDelays& d) {
                     return static_cast<double>(counted(DelayConvention::kLocal, d).max);
                   }),
      FormulaLine("S² - S/2", stages_max, [](double s) { return s * s - s / 2; }),
      FormulaLine("S²/2", stages_max, [](double s) { return s * s / 2; }),
      FormulaLine("S - 1", stages_max, [](double s) { return s - 1; })};
  return chart;
}

}  // namespace

absl::StatusOr<StudyResult> RunDelayStudy(const DelayStudy& study, StudyContext& context) {
  context.Announce("delays", static_cast<int64_t>(study.stages.size()));
  std::vector<absl::StatusOr<CountedDelays>> counted(study.stages.size(),
                                                     absl::UnknownError("not counted"));
  PENSTOCK_RETURN_IF_ERROR(context.ForEach(static_cast<int64_t>(counted.size()), [&](int64_t i) {
    counted[i] = CountAll(study.stages[i]);
  }));
  std::vector<CountedDelays> all;
  for (absl::StatusOr<CountedDelays>& delays : counted) {
    PENSTOCK_RETURN_IF_ERROR(delays.status());
    all.push_back(*std::move(delays));
  }

  StudyResult result{.title = "Delay of PipeDream against stages"};
  result.table.columns = {"stages", "bound"};
  for (const DelayConvention convention : kDelayConventions) {
    result.table.columns.push_back(absl::StrCat(ConventionLetter(convention), "_max"));
    result.table.columns.push_back(absl::StrCat(ConventionLetter(convention), "_mean"));
  }
  for (const CountedDelays& delays : all) {
    const double s = delays.stages;
    std::vector<StudyCell> row = {int64_t{delays.stages}, s * s - s / 2};
    for (const Delays& counts : delays.counted) {
      row.emplace_back(counts.max);
      row.emplace_back(counts.mean);
    }
    result.table.rows.push_back(std::move(row));
  }
  result.charts = {{"", ChartOf(all)}};
  for (const DelayConvention convention : kDelayConventions) {
    result.findings.push_back(ClosedForm(convention, all));
  }
  result.findings.push_back(SameAsProduct(all));
  return result;
}

}  // namespace penstock
