#include "services/metrics/endpoint.h"

#include "tests/services/metrics/http_get.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(MetricsEndpoint, EveryScrape_ShowsTheValuesOfTheMoment) {
  double value = 1;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const auto endpoint, MetricsEndpoint::Listen({"127.0.0.1", 0}, nullptr, [&] {
        return std::vector<MetricFamily>{
            {MetricFamily::Kind::kCounter,
             "penstock_test_total",
             "Counts.",
             {{{{"job", "a\"b"}}, value}}},
            {MetricFamily::Kind::kGauge, "penstock_test_ratio", "Measures.", {{{}, 0.25}}}};
      }));
  const int port = endpoint->address().port;
  ASSERT_GT(port, 0);
  EXPECT_THAT(HttpGet(port, "/metrics"),
              AllOf(HasSubstr("200 OK"), HasSubstr("# TYPE penstock_test_total counter"),
                    HasSubstr("penstock_test_total{job=\"a\\\"b\"} 1\n"),
                    HasSubstr("# HELP penstock_test_ratio Measures."),
                    HasSubstr("penstock_test_ratio 0.25\n")));
  value = 7;
  EXPECT_THAT(HttpGet(port, "/metrics"), HasSubstr("penstock_test_total{job=\"a\\\"b\"} 7\n"));
}

TEST(MetricsEndpoint, OccupiedPort_SaysSo) {
  const auto nothing = [] { return std::vector<MetricFamily>(); };
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto first,
                                MetricsEndpoint::Listen({"127.0.0.1", 0}, nullptr, nothing));
  EXPECT_THAT(MetricsEndpoint::Listen(first->address(), nullptr, nothing),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("metrics"), HasSubstr(first->address().ToString()),
                             HasSubstr("Address already in use"))));
}

}  // namespace
}  // namespace penstock
