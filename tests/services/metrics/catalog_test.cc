// The catalogue against Prometheus' rules (prometheus.io/docs/practices/naming), and against its document.
#include "services/metrics/catalog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "absl/strings/match.h"
#include "tests/support/golden.h"

namespace penstock {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::EndsWith;
using ::testing::Not;
using ::testing::StartsWith;

std::vector<MetricDescription> All() {
  std::vector<MetricDescription> all;
  for (const MetricGroup& group : MetricCatalog()) {
    all.insert(all.end(), group.metrics.begin(), group.metrics.end());
  }
  return all;
}

TEST(MetricCatalog, Names_ArePrefixedAndUnique) {
  std::set<std::string> names;
  for (const MetricDescription& metric : All()) {
    EXPECT_TRUE(std::regex_match(metric.name, std::regex("(penstock|process)_[a-z]+(_[a-z]+)*")))
        << metric.name;
    EXPECT_TRUE(names.insert(metric.name).second) << metric.name << " is described twice";
    EXPECT_EQ(FindMetric(metric.name)->help, metric.help);
  }
  // What a histogram or, in OpenMetrics, a counter makes of its name must not be another metric.
  for (const MetricDescription& metric : All()) {
    for (const char* suffix : {"_bucket", "_sum", "_count", "_total", "_created"}) {
      EXPECT_FALSE(names.contains(std::string(metric.name) + suffix)) << metric.name << suffix;
    }
  }
}

TEST(MetricCatalog, Suffixes_SayTypeAndBaseUnit) {
  for (const MetricDescription& metric : All()) {
    const std::string name = metric.name;
    EXPECT_EQ(metric.kind == MetricKind::kCounter, absl::EndsWith(name, "_total")) << name;
    EXPECT_FALSE(std::regex_search(name, std::regex("_(bucket|sum|count|created)$"))) << name;
    EXPECT_FALSE(std::regex_search(
        name, std::regex("(milli|micro|nano)seconds|_(ms|us|ns|minutes|hours|kb|kib|mb|mib|gb|gib|"
                         "bits|percent)(_|$)|_(gauge|counter|histogram)(_|$)")))
        << name;
    // A unit is in the plural, and at the end.
    EXPECT_FALSE(std::regex_search(
        name, std::regex("_(second|byte|step|token|message|update|version)(_total)?$|"
                         "_(seconds|bytes|updates|messages)_(?!total)")))
        << name;
  }
}

// Gauges without a unit are few: amounts of what their name says, and statements that are 1 or 0.
TEST(MetricCatalog, Gauges_HaveAUnitOrCountThings) {
  const std::set<std::string> things = {"penstock_jobs",
                                        "penstock_workers",
                                        "penstock_stage_weight_versions",
                                        "penstock_stage_peak_weight_versions",
                                        "penstock_stage_activations",
                                        "penstock_stage_peak_activations",
                                        "penstock_stage_attention_fallbacks",
                                        "penstock_run_loss",
                                        "penstock_run_learning_rate",
                                        "penstock_run_gradient_norm",
                                        "penstock_job_train_loss",
                                        "penstock_job_validation_loss",
                                        "penstock_state_pending_writes",
                                        "process_open_fds"};
  const std::set<std::string> statements = {
      "penstock_worker_running",      "penstock_worker_up",          "penstock_job_running",
      "penstock_job_loss_not_finite", "penstock_job_off_prediction", "penstock_state_writable",
      "penstock_coordinator_leader"};
  for (const MetricDescription& metric : All()) {
    if (metric.kind != MetricKind::kGauge || things.contains(metric.name)) continue;
    if (statements.contains(metric.name)) {
      EXPECT_THAT(metric.help, StartsWith("1 ")) << metric.name;
      continue;
    }
    EXPECT_TRUE(std::regex_search(
        metric.name, std::regex("_(seconds|bytes|ratio|updates|messages|steps|info)$")))
        << metric.name;
  }
}

TEST(MetricCatalog, Labels_AreDescribedAndBounded) {
  std::set<std::string> described;
  for (const LabelDescription& label : MetricLabels()) described.insert(label.name);
  std::set<std::string> used;
  for (const MetricDescription& metric : All()) {
    for (const std::string& label : metric.labels) {
      used.insert(label);
      EXPECT_THAT(described, Contains(label)) << metric.name;
    }
  }
  EXPECT_EQ(used, described);
  for (const char* unbounded : {"step", "microbatch", "epoch", "incarnation", "sequence", "le"}) {
    EXPECT_THAT(used, Not(Contains(unbounded)));
  }
}

TEST(MetricCatalog, Help_IsSentences) {
  for (const MetricDescription& metric : All()) {
    EXPECT_THAT(metric.help, EndsWith(".")) << metric.name;
    EXPECT_THAT(metric.help, Not(::testing::HasSubstr("|"))) << "it would end a cell of the table";
  }
}

TEST(MetricCatalog, Document_IsUpToDate) {
  ExpectEqualsSourceFile("docs/metrics.md", MetricsReference());
}

}  // namespace
}  // namespace penstock
