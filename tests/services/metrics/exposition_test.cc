#include "services/metrics/exposition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "services/metrics/metric_set.h"

namespace penstock {
namespace {

TEST(Exposition, Families_AreTextAsPrometheusReadsIt) {
  MetricSet metrics;
  metrics.Add("penstock_run_loss", {"j\"1", "w"}, 2.5);
  metrics.Add("penstock_jobs", {"running"}, 1);
  metrics.Add("penstock_jobs", {"failed"}, 0);
  metrics.Add("penstock_job_drifts_total", {"j"}, 3);
  EXPECT_EQ(ExpositionText(metrics.Take()),
            "# HELP penstock_job_drifts_total Events that steps or memory left their prediction, or "
            "returned to it.\n"
            "# TYPE penstock_job_drifts_total counter\n"
            "penstock_job_drifts_total{job=\"j\"} 3\n"
            "# HELP penstock_jobs Jobs the coordinator lists, by state.\n"
            "# TYPE penstock_jobs gauge\n"
            "penstock_jobs{state=\"running\"} 1\n"
            "penstock_jobs{state=\"failed\"} 0\n"
            "# HELP penstock_run_loss Mean training loss over the samples of the last step.\n"
            "# TYPE penstock_run_loss gauge\n"
            "penstock_run_loss{job=\"j\\\"1\",worker=\"w\"} 2.5\n");
  EXPECT_TRUE(metrics.Take().empty()) << "what was taken is gone";
}

TEST(Exposition, Histogram_HasACumulativeBucketForEveryNumber) {
  MetricSet metrics;
  // Four times 0, once 2, twice more than 2.
  metrics.AddHistogram("penstock_job_block_delay_updates", {"j", "0", "measured"},
                       {.counts = {4, 0, 1, 2}, .sum = 12});
  EXPECT_THAT(
      ExpositionText(metrics.Take()),
      ::testing::EndsWith(
          "# TYPE penstock_job_block_delay_updates histogram\n"
          "penstock_job_block_delay_updates_count{job=\"j\",stage=\"0\",source=\"measured\"} 7\n"
          "penstock_job_block_delay_updates_sum{job=\"j\",stage=\"0\",source=\"measured\"} 12\n"
          "penstock_job_block_delay_updates_bucket{job=\"j\",stage=\"0\",source=\"measured\",le=\"0\"} 4\n"
          "penstock_job_block_delay_updates_bucket{job=\"j\",stage=\"0\",source=\"measured\",le=\"1\"} 4\n"
          "penstock_job_block_delay_updates_bucket{job=\"j\",stage=\"0\",source=\"measured\",le=\"2\"} 5\n"
          "penstock_job_block_delay_updates_bucket{job=\"j\",stage=\"0\",source=\"measured\",le=\"+Inf\"} 7\n"));
}

TEST(MetricSetDeathTest, WhatIsNotDescribed_IsAMistakeOfOurs) {
  MetricSet metrics;
  EXPECT_DEATH(metrics.Add("penstock_unheard_of", {}, 1), "description");
  EXPECT_DEATH(metrics.Add("penstock_jobs", {}, 1), "labels");
  EXPECT_DEATH(metrics.Add("penstock_stage_staleness_updates", {"j", "w", "0"}, 1), "histogram");
}

}  // namespace
}  // namespace penstock
