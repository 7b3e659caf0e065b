#include "services/rpc/security_flags.h"

#include <cstdlib>

#include "services/rpc/one_line.h"
#include "services/rpc/refusal_log.h"
#include "services/rpc/worker_name.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Optional;

TEST(MakeTransportSecurity, CertificatesAndPlainText_AreRefusedTogether) {
  EXPECT_THAT(
      MakeTransportSecurity({.certificates = "DIR", .insecure_network = true}, {}, absl::Now())
          .status(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("--certificates DIR"), HasSubstr("--insecure-network"))));
  EXPECT_THAT(
      MakeTransportSecurity({.certificates = "DIR", .insecure = true}, {}, absl::Now()).status(),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("say one of them")));
}

TEST(MakeTransportSecurity, CertificatesOfTheEnvironment_GiveWayToAFlag) {
  setenv("PENSTOCK_CERTIFICATES", "DIR", /*overwrite=*/1);
  CLI::App app;
  SecurityFlags flags;
  AddSecurityFlags(app, flags);
  app.parse("--insecure");
  EXPECT_EQ(flags.certificates, "DIR");
  const auto security = MakeTransportSecurity(flags, {}, absl::Now());
  unsetenv("PENSTOCK_CERTIFICATES");
  ASSERT_THAT(security.status(), IsOk());
  EXPECT_FALSE(security->encrypted());
  EXPECT_THAT(WarningOf(*security), Optional(HasSubstr("plain text")));
}

TEST(OneLine, WhatOthersWrote_StaysOneLineOfBoundedLength) {
  EXPECT_EQ(OneLine("plain \xc3\xa9"), "plain \xc3\xa9");
  EXPECT_EQ(OneLine("a\nforged line\r\x1b[31m\x7f"), "a\\nforged line\\x0d\\x1b[31m\\x7f");
  EXPECT_EQ(OneLine(absl::string_view("\0", 1)), "\\x00");
  EXPECT_LT(OneLine(std::string(1 << 20, 'x')).size(), 5000u);
}

TEST(LogLine, AnyText_IsOneLineWithTheTimeInUtc) {
  EXPECT_EQ(LogLine(absl::FromUnixMillis(1'782'914'585'127), 'I', "coordinator", "a\nb"),
            "2026-07-01T14:03:05.127Z I coordinator: a\\nb\n");
}

TEST(RefusalLog, ManyInOneSecond_AreOneLineAndAllCounted) {
  RefusalLog log;
  const absl::Time now = absl::FromUnixSeconds(1'900'000'000);
  const absl::Status refused = absl::PermissionDeniedError("not you");
  EXPECT_THAT(log.Add(refused, now), Optional(std::string("refused a call: not you")));
  for (int i = 0; i < 999; ++i) EXPECT_EQ(log.Add(refused, now), std::nullopt);
  EXPECT_THAT(log.Add(absl::UnauthenticatedError("who?"), now + absl::Seconds(1)),
              Optional(AllOf(HasSubstr("who?"), HasSubstr("999 before it"))));
  EXPECT_EQ(log.rejected().count(Rejection::kForbidden), 1000);
  EXPECT_EQ(log.rejected().count(Rejection::kUnauthenticated), 1);
}

TEST(CheckWorkerName, LettersThatAnotherPlaceWouldTakeForMore_AreRefused) {
  for (const char* name : {"w", "node-3.cluster_A-4711"})
    EXPECT_THAT(CheckWorkerName(name), IsOk());
  for (const std::string& name :
       {std::string(), std::string("a b"), std::string("a\nb"), std::string("a/b"),
        std::string("\xc3\xa9"), std::string(129, 'a')}) {
    EXPECT_THAT(CheckWorkerName(name),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--name")));
  }
}

}  // namespace
}  // namespace penstock
