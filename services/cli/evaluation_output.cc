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

std::string DecodedText(const DecodedPairs& decoded) {
  std::string text = absl::StrCat("\nwrote ", decoded.files.hypotheses, " beside ",
                                  decoded.files.references, ": ", decoded.pairs, " pairs");
  if (decoded.left_out > 0) {
    absl::StrAppend(&text, "; ", decoded.left_out,
                    " are not among them, because the model does not read sources of their length");
  }
  return absl::StrCat(text, "\n");
}

Json DecodedJson(const DecodedPairs& decoded) {
  return {{"hypotheses", decoded.files.hypotheses},
          {"references", decoded.files.references},
          {"sources", decoded.files.sources},
          {"pairs", decoded.pairs},
          {"left_out", decoded.left_out}};
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
  const bool is_average = report.weights == WeightChoice::kAverage;
  return absl::StrCat(report.checkpoint, ", step ", report.step,
                      is_average ? ", averaged weights" : "", "\n", report.data, ", ", report.split,
                      ": ", scores.samples, " samples, ", scores.targets, " targets\n\n",
                      table.Render(), report.decoded ? DecodedText(*report.decoded) : "");
}

Json EvaluationJson(const EvaluationReport& report) {
  const ModelScores& scores = report.scores;
  Json metrics = Json::object();
  for (const MetricValue& metric : scores.evaluation.metrics) metrics[metric.name] = metric.value;
  return {{"checkpoint", report.checkpoint},
          {"step", report.step},
          {"weights", std::string(Name(report.weights))},
          {"data", report.data},
          {"split", report.split},
          {"samples", scores.samples},
          {"targets", scores.targets},
          {"loss", scores.evaluation.loss},
          {"perplexity", NumberOrNull(scores.perplexity)},
          {"bits_per_byte", NumberOrNull(report.bits_per_byte)},
          {"metrics", metrics},
          {"decoded", report.decoded ? DecodedJson(*report.decoded) : Json()}};
}

}  // namespace penstock
