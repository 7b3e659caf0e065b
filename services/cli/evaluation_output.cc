#include "services/cli/evaluation_output.h"

#include "absl/strings/str_cat.h"
#include "model/metric.h"
#include "services/cli/table.h"
#include "services/cli/text.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

Json NumberOrNull(const std::optional<double>& value) {
  return value.has_value() ? Json(*value) : Json();
}

}  // namespace

std::string EvaluationText(const EvaluationReport& report) {
  const ModelScores& scores = report.scores;
  Table table({{"METRIC"}, {"VALUE", Table::Align::kRight}});
  table.AddRow({"loss", FormatLoss(scores.evaluation.loss)});
  if (scores.perplexity) table.AddRow({"perplexity", FormatFixed(*scores.perplexity, 3)});
  if (report.bits_per_byte) {
    table.AddRow({"bits per byte", FormatFixed(*report.bits_per_byte, 4)});
  }
  for (const MetricValue& metric : scores.evaluation.metrics) {
    table.AddRow({std::string(FindEvaluationMetric(metric.name)->label),
                  absl::StrCat(FormatFixed(100 * metric.value, 2), " %")});
  }
  return absl::StrCat(report.checkpoint, ", step ", report.step, "\n", report.data, ", ",
                      report.split, ": ", scores.samples, " samples, ", scores.targets,
                      " targets\n\n", table.Render());
}

Json EvaluationJson(const EvaluationReport& report) {
  const ModelScores& scores = report.scores;
  Json metrics = Json::object();
  for (const MetricValue& metric : scores.evaluation.metrics) metrics[metric.name] = metric.value;
  return {{"checkpoint", report.checkpoint},
          {"step", report.step},
          {"data", report.data},
          {"split", report.split},
          {"samples", scores.samples},
          {"targets", scores.targets},
          {"loss", scores.evaluation.loss},
          {"perplexity", NumberOrNull(scores.perplexity)},
          {"bits_per_byte", NumberOrNull(report.bits_per_byte)},
          {"metrics", metrics}};
}

}  // namespace penstock
