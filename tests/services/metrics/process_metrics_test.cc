#include "services/metrics/process_metrics.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <ctime>

#include "tests/services/metrics/flatten.h"
#include "tests/services/security/credentials.h"

namespace penstock {
namespace {

std::map<std::string, double> Measure() {
  MetricSet metrics;
  AddProcessMetrics("penstock-test", "1.2.3", metrics);
  return Flatten(metrics.Take());
}

TEST(ProcessMetrics, Process_IsMeasured) {
  const auto before = Measure();
  EXPECT_EQ(before.at("penstock_build_info{program=penstock-test,version=1.2.3}"), 1);
  EXPECT_GT(before.at("process_resident_memory_bytes{}"), 1 << 20);
  EXPECT_GT(before.at("process_cpu_seconds_total{}"), 0);
  const double now = static_cast<double>(time(nullptr));
  EXPECT_GT(before.at("process_start_time_seconds{}"), now - 3600);
  EXPECT_LE(before.at("process_start_time_seconds{}"), now + 1);
  const int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(Measure().at("process_open_fds{}"), before.at("process_open_fds{}") + 1);
  close(file);
}

TEST(ProcessMetrics, RejectedMessages_AreAddedUpByReason) {
  RejectedMessages streams;
  RejectedMessages calls;
  streams.Count(absl::DataLossError("checksum"));
  streams.Count(absl::AbortedError("an epoch that is over"));
  calls.Count(Rejection::kStaleEpoch, 2);
  calls.Count(absl::InternalError("whatever"));
  MetricSet metrics;
  AddRejectedMessages({&streams, &calls}, metrics);
  const auto values = Flatten(metrics.Take());
  EXPECT_EQ(values.size(), static_cast<size_t>(kRejections));
  EXPECT_EQ(values.at("penstock_rejected_messages_total{reason=corrupt}"), 1);
  EXPECT_EQ(values.at("penstock_rejected_messages_total{reason=stale_epoch}"), 3);
  EXPECT_EQ(values.at("penstock_rejected_messages_total{reason=other}"), 1);
  EXPECT_EQ(values.at("penstock_rejected_messages_total{reason=duplicate}"), 0);
}

TEST(CertificateMetrics, DirectoryWithACertificate_SaysUntilWhenItIsGood) {
  const TestAuthority authority;
  const absl::Time now = absl::Now();
  const std::string worker = authority.Issue(Role::kWorker, "", absl::Hours(10), now);
  MetricSet metrics;
  AddCertificateMetrics(worker, metrics);
  EXPECT_NEAR(Flatten(metrics.Take()).at("penstock_certificate_expiry_timestamp_seconds{}"),
              absl::ToDoubleSeconds(now + absl::Hours(10) - absl::UnixEpoch()), 1);
}

TEST(CertificateMetrics, NoCertificate_IsNoSeries) {
  MetricSet metrics;
  AddCertificateMetrics("/nonexistent", metrics);
  EXPECT_TRUE(metrics.Take().empty());
}

}  // namespace
}  // namespace penstock
