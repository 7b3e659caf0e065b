#include "services/tracing/otlp_endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock {
namespace {

using ::testing::HasSubstr;

TEST(OtlpUrl, BaseUrl_GetsThePathOfTraces) {
  for (const auto& [url, endpoint] : std::vector<std::pair<std::string, std::string>>{
           {"http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"},
           {"http://127.0.0.1:4318/", "http://127.0.0.1:4318/v1/traces"},
           {"http://tempo.example", "http://tempo.example:80/v1/traces"},
           {"https://tempo.example", "https://tempo.example:443/v1/traces"},
           {"https://tempo.example/otlp/", "https://tempo.example:443/otlp/v1/traces"},
           {"https://tempo.example/v1/traces", "https://tempo.example:443/v1/traces"},
           {"https://t:1/a/v1/traces/", "https://t:1/a/v1/traces"},
           {"http://[::1]:4318", "http://[::1]:4318/v1/traces"},
           {"http://[::1]", "http://[::1]:80/v1/traces"}}) {
    const absl::StatusOr<OtlpEndpoint> parsed = ParseOtlpUrl(url);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->ToString(), endpoint);
    EXPECT_EQ(parsed->encrypted, url.starts_with("https"));
  }
}

TEST(OtlpUrl, Bad_IsRefusedSayingWhatIsExpected) {
  for (const std::string url :
       {"", "127.0.0.1:4318", "grpc://h:4317", "HTTP://h", "http://", "http:///v1/traces",
        "http://h:0", "http://h:65536", "http://h:x", "http://h:", "http://:4318",
        "http://user:p@h:1", "http://h/?a=b", "http://h/#a", "http://h h", "http://h\r\nX: y",
        "http://[::1", "http://h%41"}) {
    const absl::StatusOr<OtlpEndpoint> parsed = ParseOtlpUrl(url);
    EXPECT_TRUE(absl::IsInvalidArgument(parsed.status())) << url;
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr("as in http://127.0.0.1:4318"));
  }
  EXPECT_FALSE(ParseOtlpUrl("http://" + std::string(5000, 'a')).ok());
}

}  // namespace
}  // namespace penstock
