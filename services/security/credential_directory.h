// One party's credentials on disk, in the files that a Kubernetes TLS secret has:
//
//   ca.crt    the authorities it trusts, one or more
//   tls.crt   its certificate
//   tls.key   its private key, readable by the owner alone
//
// A write changes all three at one moment, as Kubernetes does it: they are symbolic links through `..data`,
// which leads to the directory of the generation in use and is replaced by a rename. A reader of key and
// certificate, one after the other, could get a pair that does not fit if files were replaced singly.
//
// Thread safety: one writer of a directory at a time; reading from any thread.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/security/certificate.h"

namespace penstock {

struct CredentialPaths {
  std::string authorities;
  std::string certificate;
  std::string key;
};
CredentialPaths CredentialPathsIn(const std::string& directory);

struct Credentials {
  std::string authorities;  // PEM
  CertificatePem own;
};

// Errors: NotFound (a file is missing, with what makes it), PermissionDenied, OutOfRange (no such large files).
absl::StatusOr<Credentials> ReadCredentials(const std::string& directory);

// Reads and checks them: see CheckCertificate. Errors name the directory.
absl::StatusOr<CertificateFacts> CheckCredentials(const std::string& directory, absl::Time now);

// Until when the certificate there is good, be it of use or not. Reads only the certificate. Errors: those of the file
// system, InvalidArgument.
absl::StatusOr<absl::Time> CertificateExpiry(const std::string& directory);

// Returns a warning with what to do if others than its owner may read the key.
std::optional<std::string> KeyWarning(const std::string& directory);

// Replaces what is there, or makes the directory. Errors: those of the file system.
absl::Status WriteCredentials(const std::string& directory, const Credentials& credentials);

}  // namespace penstock
