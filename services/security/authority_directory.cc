#include "services/security/authority_directory.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"
#include "services/security/credential_directory.h"
#include "services/security/secret_file.h"

namespace penstock {
namespace {

constexpr int64_t kAuthorityBytesMax = 1 << 20;
constexpr char kAuthority[] = "authority";
constexpr char kBundle[] = "ca.crt";
constexpr char kAuthorityKey[] = "ca.key";
// Clocks of machines differ; a certificate that is not valid yet on one of them is refused there.
constexpr absl::Duration kClockSkew = absl::Minutes(5);

Validity From(absl::Time now, absl::Duration lifetime) {
  return {now - kClockSkew, now + lifetime};
}

std::string NameOfDirectory(Role role, const std::string& name) {
  return name.empty() ? RoleName(role) : absl::StrCat(RoleName(role), "-", name);
}

}  // namespace

absl::StatusOr<AuthorityDirectory> AuthorityDirectory::Make(const std::string& directory,
                                                            const std::string& trust_domain,
                                                            absl::Time now) {
  const std::string key = JoinPath(JoinPath(directory, kAuthority), kAuthorityKey);
  if (RealFiles().Exists(key)) {
    return absl::AlreadyExistsError(
        absl::StrCat(key,
                     " exists: `penstock certs issue` and `rotate` use that authority; choose "
                     "another directory for another cluster"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(Authority authority,
                            Authority::Make(trust_domain, From(now, kAuthorityLifetime)));
  std::string bundle = authority.pem().certificate;
  AuthorityDirectory made(directory, std::move(authority), std::move(bundle), 1);
  PENSTOCK_RETURN_IF_ERROR(made.WriteAuthority());
  return made;
}

absl::StatusOr<AuthorityDirectory> AuthorityDirectory::Open(const std::string& directory) {
  const std::string authority_directory = JoinPath(directory, kAuthority);
  absl::StatusOr<std::string> key =
      RealFiles().Read(JoinPath(authority_directory, kAuthorityKey), kAuthorityBytesMax);
  if (absl::IsNotFound(key.status())) {
    return absl::NotFoundError(absl::StrCat("no certificate authority in ", directory,
                                            ": `penstock certs init` makes one"));
  }
  PENSTOCK_RETURN_IF_ERROR(key.status());
  PENSTOCK_ASSIGN_OR_RETURN(
      std::string bundle,
      RealFiles().Read(JoinPath(authority_directory, kBundle), kAuthorityBytesMax));
  const auto certificates = ParseCertificates(bundle);
  if (!certificates.ok()) return Annotate(certificates.status(), authority_directory);
  absl::StatusOr<Authority> authority = Authority::Load({bundle, *std::move(key)});
  if (!authority.ok()) return Annotate(authority.status(), authority_directory);
  return AuthorityDirectory(directory, *std::move(authority), std::move(bundle),
                            static_cast<int>(certificates->size()));
}

absl::Status AuthorityDirectory::WriteAuthority() const {
  const std::string authority_directory = JoinPath(directory_, kAuthority);
  PENSTOCK_RETURN_IF_ERROR(RealFiles().CreateDirectories(authority_directory));
  // The key last: with the old key and the new bundle the old authority goes on, trusting one more that has no key.
  PENSTOCK_RETURN_IF_ERROR(ReplaceFile(JoinPath(authority_directory, kBundle), bundle_, 0644));
  return ReplaceFile(JoinPath(authority_directory, kAuthorityKey), authority_.pem().key, 0600);
}

absl::StatusOr<IssuedCertificate> AuthorityDirectory::Issue(Role role, const std::string& name,
                                                            const std::vector<std::string>& hosts,
                                                            absl::Duration lifetime,
                                                            absl::Time now) const {
  const Identity identity = {authority_.trust_domain(), role, name};
  PENSTOCK_ASSIGN_OR_RETURN(const CertificatePem pem,
                            authority_.Issue(identity, hosts, From(now, lifetime)));
  IssuedCertificate issued = {JoinPath(directory_, NameOfDirectory(role, name)), {}};
  PENSTOCK_RETURN_IF_ERROR(WriteCredentials(issued.directory, {bundle_, pem}));
  PENSTOCK_ASSIGN_OR_RETURN(issued.facts, CheckCredentials(issued.directory, now));
  return issued;
}

absl::StatusOr<std::vector<std::string>> AuthorityDirectory::IssuedDirectories() const {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<std::string> names, RealFiles().List(directory_));
  std::vector<std::string> directories;
  for (const std::string& name : names) {
    const std::string directory = JoinPath(directory_, name);
    if (RealFiles().Exists(CredentialPathsIn(directory).certificate)) {
      directories.push_back(directory);
    }
  }
  return directories;
}

absl::StatusOr<std::vector<IssuedCertificate>> AuthorityDirectory::List() const {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<std::string> directories, IssuedDirectories());
  std::vector<IssuedCertificate> issued;
  for (const std::string& directory : directories) {
    PENSTOCK_ASSIGN_OR_RETURN(const Credentials credentials, ReadCredentials(directory));
    const auto certificates = ParseCertificates(credentials.own.certificate);
    if (!certificates.ok()) return Annotate(certificates.status(), directory);
    absl::StatusOr<CertificateFacts> facts = FactsOf(*certificates->front());
    if (!facts.ok()) return Annotate(facts.status(), directory);
    issued.push_back({directory, *std::move(facts)});
  }
  return issued;
}

absl::StatusOr<std::vector<IssuedCertificate>> AuthorityDirectory::Rotate(absl::Duration lifetime,
                                                                          absl::Time now) const {
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<IssuedCertificate> issued, List());
  for (IssuedCertificate& one : issued) {
    const Identity& identity = one.facts.identity;
    PENSTOCK_ASSIGN_OR_RETURN(one,
                              Issue(identity.role, identity.name, one.facts.hosts, lifetime, now));
  }
  return issued;
}

absl::Status AuthorityDirectory::AddAuthority(absl::Time now) {
  PENSTOCK_ASSIGN_OR_RETURN(
      Authority fresh, Authority::Make(authority_.trust_domain(), From(now, kAuthorityLifetime)));
  bundle_ = absl::StrCat(fresh.pem().certificate, bundle_);
  authority_ = std::move(fresh);
  ++authorities_;
  PENSTOCK_RETURN_IF_ERROR(WriteAuthority());
  return Distribute();
}

absl::Status AuthorityDirectory::DropOldAuthorities() {
  // Who still has a certificate of an old one would be shut out.
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<std::string> directories, IssuedDirectories());
  for (const std::string& directory : directories) {
    PENSTOCK_ASSIGN_OR_RETURN(const Credentials credentials, ReadCredentials(directory));
    PENSTOCK_RETURN_IF_ERROR(Annotate(
        CheckCertificate(credentials.own, authority_.pem().certificate, absl::Now()).status(),
        absl::StrCat(directory,
                     " has no certificate of the new authority (first `penstock certs rotate`)")));
  }
  bundle_ = authority_.pem().certificate;
  authorities_ = 1;
  PENSTOCK_RETURN_IF_ERROR(WriteAuthority());
  return Distribute();
}

absl::Status AuthorityDirectory::Distribute() const {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<std::string> directories, IssuedDirectories());
  for (const std::string& directory : directories) {
    PENSTOCK_ASSIGN_OR_RETURN(Credentials credentials, ReadCredentials(directory));
    credentials.authorities = bundle_;
    PENSTOCK_RETURN_IF_ERROR(WriteCredentials(directory, credentials));
  }
  return absl::OkStatus();
}

}  // namespace penstock
