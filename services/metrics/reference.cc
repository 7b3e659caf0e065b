// docs/metrics.md from the catalogue.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/metrics/catalog.h"

namespace penstock {
namespace {

constexpr char kIntroduction[] = R"(# Metrics

Generated from the tables of [services/metrics](../services/metrics/README.md) by
`UPDATE_GOLDEN=1 ctest --preset release -R services_metrics_test`; a test fails when the two differ.
[monitoring.md](monitoring.md) says how to scrape them, and has dashboards and alerts. The words are those of
the [glossary](glossary.md).

Every coordinator and every worker answers scrapes at `/metrics` (`--metrics`). A scrape reads what is counted
anyway, so metrics cost a run nothing between scrapes. No label grows with steps or microbatches.

The series of a job stay for five minutes after its end, on workers and coordinator alike, and then go away:
a dashboard shows how it ended, and a cluster that has run a thousand jobs has not a thousand jobs' series. A
later attempt at the same job takes the place of an earlier one at once. `penstock train --metrics HOST:PORT` ends
with its job: it waits until each of its programs was scraped once more, 15 s at most.
)";

const char* NameOf(MetricKind kind) {
  switch (kind) {
    case MetricKind::kCounter:
      return "counter";
    case MetricKind::kGauge:
      return "gauge";
    case MetricKind::kHistogram:
      return "histogram";
  }
  return "";
}

const char* NameOf(MetricProgram program) {
  switch (program) {
    case MetricProgram::kWorker:
      return "From `penstock-worker`.";
    case MetricProgram::kCoordinator:
      return "From `penstock-coordinator`.";
    case MetricProgram::kBoth:
      return "From both programs.";
  }
  return "";
}

std::string Code(absl::string_view text) { return absl::StrCat("`", text, "`"); }

std::string GroupText(const MetricGroup& group) {
  std::string text = absl::StrCat("\n## ", group.title, "\n\n", NameOf(group.program));
  if (group.about[0] != '\0') absl::StrAppend(&text, " ", group.about);
  absl::StrAppend(&text, "\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n");
  for (const MetricDescription& metric : group.metrics) {
    const std::string labels = absl::StrJoin(
        metric.labels, ", ",
        [](std::string* out, const std::string& label) { absl::StrAppend(out, Code(label)); });
    absl::StrAppend(&text, "| ", Code(metric.name), " | ", NameOf(metric.kind), " | ", labels,
                    " | ", metric.help, " |\n");
  }
  return text;
}

}  // namespace

std::string MetricsReference() {
  std::string text = kIntroduction;
  for (const MetricGroup& group : MetricCatalog()) absl::StrAppend(&text, GroupText(group));
  absl::StrAppend(&text, "\n## Labels\n\n| label | values |\n|---|---|\n");
  for (const LabelDescription& label : MetricLabels()) {
    absl::StrAppend(&text, "| ", Code(label.name), " | ", label.meaning, " |\n");
  }
  return text;
}

}  // namespace penstock
