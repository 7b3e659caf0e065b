#include "services/etcd/etcd_location.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"
#include "tests/support/test_directory.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

TEST(EtcdLocation, MembersAndPrefix_AreReadAndWritten) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const EtcdLocation location,
      ParseEtcdLocation("etcd://10.0.0.7:2379,etcd-1:2380,[::1]:2379/penstock/production/"));
  ASSERT_EQ(location.members.size(), 3u);
  EXPECT_EQ(location.members[1].host, "etcd-1");
  EXPECT_EQ(location.members[2].port, 2379);
  EXPECT_EQ(location.prefix, "/penstock/production");
  EXPECT_EQ(location.ToString(), "etcd://10.0.0.7:2379,etcd-1:2380,[::1]:2379/penstock/production");
}

TEST(EtcdLocation, WithoutPrefix_HasTheUsualOne) {
  for (const char* text : {"etcd://a:1", "etcd://a:1/"}) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const EtcdLocation location, ParseEtcdLocation(text));
    EXPECT_EQ(location.prefix, "/penstock");
  }
}

TEST(EtcdLocation, FilesAreNone) {
  EXPECT_TRUE(IsEtcdLocation("etcd://a:1"));
  EXPECT_FALSE(IsEtcdLocation("/var/lib/penstock/state.sqlite"));
  EXPECT_FALSE(IsEtcdLocation("etcd"));
}

TEST(EtcdLocation, WhatIsWrong_IsSaid) {
  for (const char* text : {"etcd://", "etcd://a", "etcd://a:0", "etcd://a:1,", "etcd://a:1,,b:2",
                           "etcd://a:1//x", "etcd://a:1//", "etcd://a:1/x//", "http://a:1"}) {
    EXPECT_THAT(ParseEtcdLocation(text), StatusIs(absl::StatusCode::kInvalidArgument,
                                                  HasSubstr("expected etcd://HOST:PORT,HOST:PORT")))
        << text;
  }
}

TEST(EtcdCredentials, PlainTextToOtherMachines_HasToBeAskedFor) {
  const EtcdLocation here = *ParseEtcdLocation("etcd://127.0.0.1:2379");
  const EtcdLocation far = *ParseEtcdLocation("etcd://127.0.0.1:2379,10.0.0.7:2379");
  EXPECT_THAT(MakeEtcdCredentials({}, here, false), IsOk());
  EXPECT_THAT(MakeEtcdCredentials({}, far, false),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("10.0.0.7:2379")));
  EXPECT_THAT(MakeEtcdCredentials({}, far, true), IsOk());
}

TEST(EtcdCredentials, FilesOfTls_BelongTogether) {
  const EtcdLocation here = *ParseEtcdLocation("etcd://127.0.0.1:2379");
  EXPECT_THAT(MakeEtcdCredentials({.authority = "ca.pem", .certificate = "c.pem"}, here, false),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--etcd-key")));
  EXPECT_THAT(MakeEtcdCredentials({.certificate = "c.pem", .key = "k.pem"}, here, false),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--etcd-ca")));
  const TestDirectory directory;
  const std::string missing = directory.path() / "ca.pem";
  EXPECT_THAT(MakeEtcdCredentials({.authority = missing}, here, false),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(missing)));
}

}  // namespace
}  // namespace penstock
