// Authorities, the certificates they issue, and how those lie on disk.
#include "services/security/authority.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "base/files.h"
#include "services/security/authority_directory.h"
#include "services/security/credential_directory.h"
#include "services/security/secret_file.h"
#include "tests/services/http/certificates.h"
#include "tests/services/security/credentials.h"
#include "tests/support/full_disk.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::_;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Optional;
using ::testing::SizeIs;

const absl::Time kNow = absl::FromUnixSeconds(1'900'000'000);
const Validity kYear = {kNow - absl::Hours(1), kNow + absl::Hours(24 * 365)};
const Identity kWorker = {"penstock", Role::kWorker, "w1"};

Authority MakeAuthority(const std::string& trust_domain = "penstock") {
  return *Authority::Make(trust_domain, kYear);
}

TEST(Authority, IssuedCertificate_SaysWhoHoldsItAndPasses) {
  const Authority authority = MakeAuthority();
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const CertificatePem pem,
      authority.Issue(kWorker, {"gpu-1.example.org", "10.0.0.7", "::1"}, kYear));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const CertificateFacts facts,
                                CheckCertificate(pem, authority.pem().certificate, kNow));
  EXPECT_EQ(facts.identity, kWorker);
  EXPECT_THAT(facts.hosts, ElementsAre("gpu-1.example.org", "10.0.0.7", "::1"));
  EXPECT_EQ(facts.not_after, kYear.not_after);
}

TEST(Authority, ReadAgain_IssuesWhatTheFirstVouchesFor) {
  const Authority first = MakeAuthority();
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Authority again, Authority::Load(first.pem()));
  EXPECT_EQ(again.trust_domain(), "penstock");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const CertificatePem pem, again.Issue(kWorker, {}, kYear));
  EXPECT_THAT(CheckCertificate(pem, first.pem().certificate, kNow), IsOk());
}

TEST(Authority, CertificateThatOutlivesIt_EndsWithIt) {
  const Authority authority = MakeAuthority();
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const CertificatePem pem,
      authority.Issue(kWorker, {}, {kNow, kYear.not_after + absl::Hours(1)}));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const CertificateFacts facts,
                                CheckCertificate(pem, authority.pem().certificate, kNow));
  EXPECT_EQ(facts.not_after, kYear.not_after);
}

TEST(Certificates, TextThatIsNone_IsRefused) {
  const std::string large(size_t{20} << 20, '\n');
  for (const absl::string_view pem : {absl::string_view(), absl::string_view(""),
                                      absl::string_view("-----BEGIN"), absl::string_view(large)}) {
    EXPECT_THAT(ParseCertificates(pem), StatusIs(absl::StatusCode::kInvalidArgument, _));
    EXPECT_THAT(ParseKey(pem), StatusIs(absl::StatusCode::kInvalidArgument, _));
  }
}

TEST(Authority, HostsThatAreNone_AreRefused) {
  const Authority authority = MakeAuthority();
  for (const char* host : {"", "a b", "a,URI:spiffe://penstock/coordinator", "a\nb", "ü.org"}) {
    EXPECT_THAT(authority.Issue(kWorker, {host}, kYear),
                StatusIs(absl::StatusCode::kInvalidArgument, _))
        << host;
  }
  EXPECT_THAT(authority.Issue({"other", Role::kWorker, ""}, {}, kYear),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("trust domain")));
}

TEST(CheckCertificate, WhatDoesNotFit_IsNamed) {
  const Authority authority = MakeAuthority();
  const Authority other = MakeAuthority();
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const CertificatePem good, authority.Issue(kWorker, {}, kYear));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const CertificatePem second, authority.Issue(kWorker, {}, kYear));
  const std::string& ca = authority.pem().certificate;

  EXPECT_THAT(CheckCertificate(good, other.pem().certificate, kNow),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("do not vouch")));
  EXPECT_THAT(CheckCertificate({good.certificate, second.key}, ca, kNow),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("private key")));
  EXPECT_THAT(CheckCertificate(good, ca, kYear.not_after + absl::Seconds(1)),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("expired")));
  EXPECT_THAT(CheckCertificate(good, ca, kYear.not_before - absl::Seconds(1)),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("not yet valid")));
  EXPECT_THAT(CheckCertificate(authority.pem(), ca, kNow),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("0 URIs")));
}

TEST(CheckCertificate, TextThatIsNoPemOrCutShort_IsRefusedAtEveryLength) {
  const Authority authority = MakeAuthority();
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const CertificatePem good, authority.Issue(kWorker, {}, kYear));
  const std::string& ca = authority.pem().certificate;
  for (size_t size = 0; size + 1 < good.certificate.size(); size += 7) {
    EXPECT_FALSE(CheckCertificate({good.certificate.substr(0, size), good.key}, ca, kNow).ok());
    EXPECT_FALSE(CheckCertificate(good, ca.substr(0, std::min(size, ca.size() - 2)), kNow).ok());
  }
  for (size_t size = 0; size + 1 < good.key.size(); size += 7) {
    EXPECT_FALSE(CheckCertificate({good.certificate, good.key.substr(0, size)}, ca, kNow).ok());
  }
}

// A certificate authority below another one, as companies have them.
TEST(CheckCertificate, SignedByAnIntermediate_PassesWithItInTheChain) {
  const TestIdentity root = MakeIdentity("root");
  const TestIdentity middle = MakeIdentity("middle", &root, "critical,CA:TRUE");
  const TestIdentity leaf =
      MakeIdentity("leaf", &middle, "critical,CA:FALSE", "URI:spiffe://penstock/worker/w1");
  const std::string key = PemOf(*leaf.key);
  const std::string chain = PemOf(*leaf.certificate) + PemOf(*middle.certificate);
  const auto facts = CheckCertificate({chain, key}, PemOf(*root.certificate), absl::Now());
  ASSERT_THAT(facts, IsOk());
  EXPECT_EQ(facts->identity, kWorker);
  EXPECT_THAT(
      CheckCertificate({PemOf(*leaf.certificate), key}, PemOf(*root.certificate), absl::Now()),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("do not vouch")));
  EXPECT_THAT(
      CheckCertificate({chain, key}, PemOf(*MakeIdentity("other").certificate), absl::Now()),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("do not vouch")));
}

TEST(ParseCertificates, MoreThanABundleHas_IsAnErrorAndNotCutOff) {
  const std::string one = MakeAuthority().pem().certificate;
  std::string bundle;
  for (int i = 0; i < 64; ++i) bundle += one;
  EXPECT_THAT(ParseCertificates(bundle).status(), IsOk());
  EXPECT_THAT(ParseCertificates(bundle + one).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("more than 64")));
}

mode_t ModeOf(const std::string& path) {
  struct stat info = {};
  EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
  return info.st_mode & 0777;
}

TEST(CredentialDirectory, Keys_AreReadableByTheOwnerAlone) {
  const TestAuthority authority;
  const std::string worker = authority.Issue(Role::kWorker);
  EXPECT_EQ(ModeOf(CredentialPathsIn(worker).key), 0600u);
  EXPECT_EQ(ModeOf(authority.directory() + "/authority/ca.key"), 0600u);
}

TEST(CredentialDirectory, MissingFile_SaysWhatMakesIt) {
  const TestAuthority authority;
  EXPECT_THAT(CheckCredentials(authority.directory() + "/nothing", absl::Now()),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("penstock certs init")));
}

TEST(CredentialDirectory, Rotated_ChangesAllFilesAtOnceAndKeepsTwoGenerations) {
  const TestAuthority authority;
  const std::string worker = authority.Issue(Role::kWorker, "w1");
  std::set<std::string> serials;
  for (int i = 0; i < 20; ++i) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto rotated,
                                  authority.Open().Rotate(absl::Hours(1), absl::Now()));
    ASSERT_THAT(rotated, SizeIs(1));
    EXPECT_EQ(rotated[0].facts.identity, kWorker);
    EXPECT_THAT(rotated[0].facts.hosts, ElementsAre("localhost", "127.0.0.1"));
    serials.insert(rotated[0].facts.serial);
    // Key and certificate are links through one link, which is what changes.
    EXPECT_EQ(std::filesystem::read_symlink(worker + "/tls.key"), "..data/tls.key");
  }
  EXPECT_THAT(serials, SizeIs(20));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto names, RealFiles().List(worker));
  EXPECT_THAT(names, SizeIs(3 + 1 + 2)) << "three links, ..data and two generations";
}

// The key is written last; a machine that stops before it must not lose the authority.
TEST(AuthorityDirectory, NewAuthorityThatWasInterrupted_LeavesTheOldOneInUse) {
  const TestAuthority authority;
  const std::string worker = authority.Issue(Role::kWorker);
  const std::string key = authority.directory() + "/authority/ca.key";
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string old, RealFiles().Read(key, 1 << 20));
  ASSERT_THAT(authority.Open().AddAuthority(absl::Now()), IsOk());
  ASSERT_THAT(RealFiles().WriteDurably(key, {old}), IsOk());

  PENSTOCK_ASSERT_OK_AND_ASSIGN(AuthorityDirectory again,
                                AuthorityDirectory::Open(authority.directory()));
  ASSERT_THAT(again.Rotate(absl::Hours(1), absl::Now()), IsOk());
  EXPECT_THAT(CheckCredentials(worker, absl::Now()), IsOk());
  ASSERT_THAT(again.AddAuthority(absl::Now()), IsOk());
  ASSERT_THAT(authority.Open().Rotate(absl::Hours(1), absl::Now()), IsOk());
  ASSERT_THAT(authority.Open().DropOldAuthorities(), IsOk());
  EXPECT_EQ(authority.Open().authorities(), 1);
  EXPECT_THAT(CheckCredentials(worker, absl::Now()), IsOk());
}

TEST(AuthorityDirectory, KeyOfNobody_IsAnErrorThatSaysWhatToDo) {
  const TestAuthority authority;
  const std::string worker = authority.Issue(Role::kWorker);
  std::filesystem::copy_file(CredentialPathsIn(worker).key,
                             authority.directory() + "/authority/ca.key",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(AuthorityDirectory::Open(authority.directory()).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("restore both")));
}

// A disk that fills up takes a part of a file first.
TEST(WriteNewFile, FullDisk_IsAnErrorAndNotHalfAFile) {
  const TestAuthority authority;
  absl::Status written;
  {
    const FullDisk full(/*file_bytes_max=*/100);
    written = WriteNewFile(authority.directory() + "/file", std::string(1000, 'x'), 0600);
  }
  EXPECT_THAT(written, Not(IsOk()));
}

TEST(KeyWarning, KeyThatEverybodyMayRead_IsNamedWithWhatToDo) {
  const TestAuthority authority;
  const std::string worker = authority.Issue(Role::kWorker);
  EXPECT_EQ(KeyWarning(worker), std::nullopt);
  ASSERT_EQ(chmod(CredentialPathsIn(worker).key.c_str(), 0644), 0);
  EXPECT_THAT(KeyWarning(worker), Optional(HasSubstr("chmod 600")));
}

TEST(AuthorityDirectory, SecondInit_DoesNotReplaceTheFirst) {
  const TestAuthority authority;
  EXPECT_THAT(AuthorityDirectory::Make(authority.directory(), "penstock", absl::Now()),
              StatusIs(absl::StatusCode::kAlreadyExists, _));
}

TEST(AuthorityDirectory, NewAuthority_IsTrustedBesideTheOldUntilThatIsDropped) {
  const TestAuthority authority;
  const std::string worker = authority.Issue(Role::kWorker);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Credentials old, ReadCredentials(worker));

  AuthorityDirectory directory = authority.Open();
  ASSERT_THAT(directory.AddAuthority(absl::Now()), IsOk());
  // Everybody keeps its certificate and trusts both.
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Credentials both, ReadCredentials(worker));
  EXPECT_EQ(both.own.certificate, old.own.certificate);
  EXPECT_THAT(CheckCredentials(worker, absl::Now()), IsOk());
  EXPECT_EQ(authority.Open().authorities(), 2);
  // Dropping the old one now would shut this worker out.
  EXPECT_THAT(authority.Open().DropOldAuthorities(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("certs rotate")));

  ASSERT_THAT(authority.Open().Rotate(absl::Hours(1), absl::Now()), IsOk());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Credentials fresh, ReadCredentials(worker));
  EXPECT_THAT(CheckCertificate(fresh.own, both.authorities, absl::Now()), IsOk());
  EXPECT_THAT(CheckCertificate(fresh.own, old.authorities, absl::Now()),
              StatusIs(absl::StatusCode::kFailedPrecondition, _));

  ASSERT_THAT(authority.Open().DropOldAuthorities(), IsOk());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Credentials last, ReadCredentials(worker));
  EXPECT_THAT(CheckCertificate(old.own, last.authorities, absl::Now()),
              StatusIs(absl::StatusCode::kFailedPrecondition, _));
}

}  // namespace
}  // namespace penstock
