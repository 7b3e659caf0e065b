// AuthorityDirectory: a cluster's certificate authority and what it has issued, in one directory.
//
//   authority/{ca.crt,ca.key}    the authorities, newest first, and the newest one's key: keep it to yourself
//   coordinator/ worker/ client/ monitor/      credentials (credential_directory.h) of each role
//   worker-NAME/ ...                           of single parties
//
// The key is needed only for signing: the other directories alone are handed out.
//
// Thread-compatible.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/security/authority.h"
#include "services/security/certificate.h"
#include "services/security/identity.h"

namespace penstock {

struct IssuedCertificate {
  std::string directory;
  CertificateFacts facts;
};

class AuthorityDirectory {
 public:
  static constexpr absl::Duration kAuthorityLifetime = absl::Hours(24 * 3650);

  // Makes the authority. Errors: AlreadyExists (there is one, which would be lost), InvalidArgument (the
  // trust domain), those of the file system.
  static absl::StatusOr<AuthorityDirectory> Make(const std::string& directory,
                                                 const std::string& trust_domain, absl::Time now);
  // Errors: NotFound (no authority there, with what makes one), those of Authority::Load.
  static absl::StatusOr<AuthorityDirectory> Open(const std::string& directory);

  // Issues a certificate into the role's or party's directory, in place of the one there.
  // Errors: those of Authority::Issue and of the file system.
  absl::StatusOr<IssuedCertificate> Issue(Role role, const std::string& name,
                                          const std::vector<std::string>& hosts,
                                          absl::Duration lifetime, absl::Time now) const;

  // New keys and certificates for all that was issued, each with the identity and hosts it has.
  absl::StatusOr<std::vector<IssuedCertificate>> Rotate(absl::Duration lifetime,
                                                        absl::Time now) const;

  // A new authority, which signs from now on, beside the old ones: everybody is given trust in all of them
  // and keeps its certificate. When that has reached everybody, Rotate, and then DropOldAuthorities.
  absl::Status AddAuthority(absl::Time now);
  absl::Status DropOldAuthorities();

  absl::StatusOr<std::vector<IssuedCertificate>> List() const;
  absl::Time authority_not_after() const { return authority_.not_after(); }
  int authorities() const { return authorities_; }

 private:
  AuthorityDirectory(std::string directory, Authority authority, std::string bundle,
                     int authorities)
      : directory_(std::move(directory)),
        authority_(std::move(authority)),
        bundle_(std::move(bundle)),
        authorities_(authorities) {}

  // Names of the directories with credentials.
  absl::StatusOr<std::vector<std::string>> IssuedDirectories() const;
  absl::Status WriteAuthority() const;
  // Gives everybody the bundle.
  absl::Status Distribute() const;

  std::string directory_;
  Authority authority_;
  std::string bundle_;  // PEM of all authorities, newest first
  int authorities_ = 1;
};

}  // namespace penstock
