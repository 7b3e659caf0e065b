// Certificates and their keys as PEM text, and what stands in them.
//
// Pure functions on text; any input is safe. Thread safety: from any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "services/security/identity.h"
#include "services/security/openssl.h"

namespace penstock {

// A certificate and the private key that belongs to it.
struct CertificatePem {
  std::string certificate;
  std::string key;
};

// The facts in a certificate.
struct CertificateFacts {
  Identity identity;
  std::vector<std::string>
      hosts;           // names and addresses for checks of host names, as a browser makes them
  std::string serial;  // hexadecimal
  absl::Time not_before;
  absl::Time not_after;
};

// The certificates in `pem`, at least one. Errors: InvalidArgument (not PEM, or damaged).
absl::StatusOr<std::vector<openssl::CertificatePtr>> ParseCertificates(absl::string_view pem);
// Errors: InvalidArgument (not PEM, damaged, or asks for a password).
absl::StatusOr<openssl::KeyPtr> ParseKey(absl::string_view pem);

// Errors: InvalidArgument if it does not have exactly one URI, or one that is no Identity.
absl::StatusOr<CertificateFacts> FactsOf(X509& certificate);

// Checks that a party may use `pem` with the authorities in `authorities_pem`: the key fits, one of them signed
// the certificate, it says who holds it, and it is valid now. Returns what it says.
// Errors: InvalidArgument (no PEM, no identity), FailedPrecondition (mismatch or expired, with what to do).
absl::StatusOr<CertificateFacts> CheckCertificate(const CertificatePem& pem,
                                                  absl::string_view authorities_pem,
                                                  absl::Time now);

}  // namespace penstock
