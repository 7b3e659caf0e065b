// Authority: a certificate authority of our own, small and for one cluster.
//
// Keys are on the curve P-256, signatures ECDSA with SHA-256. The authority may only sign
// certificates, and none of its own kind below it; what it issues serves as client and as server.
//
// Thread-compatible.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "services/security/certificate.h"
#include "services/security/identity.h"
#include "services/security/openssl.h"

namespace penstock {

struct Validity {
  absl::Time not_before;
  absl::Time not_after;
};

class Authority {
 public:
  // Errors: InvalidArgument (the trust domain).
  static absl::StatusOr<Authority> Make(const std::string& trust_domain, const Validity& validity);
  // Loads the first certificate. Errors: InvalidArgument (no PEM), FailedPrecondition (the key is another's).
  static absl::StatusOr<Authority> Load(const CertificatePem& pem);

  // A certificate for `identity`, of the authority's trust domain, with a new key. `hosts`: names and
  // addresses under which it is reached, for those who check that; gRPC peers check the identity instead.
  // It ends with the authority at the latest. Errors: InvalidArgument (identity or a host).
  absl::StatusOr<CertificatePem> Issue(const Identity& identity,
                                       const std::vector<std::string>& hosts,
                                       const Validity& validity) const;

  const CertificatePem& pem() const { return pem_; }
  const std::string& trust_domain() const { return trust_domain_; }
  absl::Time not_after() const;

 private:
  Authority(openssl::CertificatePtr certificate, openssl::KeyPtr key, CertificatePem pem,
            std::string trust_domain)
      : certificate_(std::move(certificate)),
        key_(std::move(key)),
        pem_(std::move(pem)),
        trust_domain_(std::move(trust_domain)) {}

  openssl::CertificatePtr certificate_;
  openssl::KeyPtr key_;
  CertificatePem pem_;
  std::string trust_domain_;
};

}  // namespace penstock
