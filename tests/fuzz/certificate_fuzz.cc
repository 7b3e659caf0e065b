// Certificates, keys and authorities in PEM, from files and from peers: what says who holds it says it in our form.
#include <string>

#include "services/security/certificate.h"
#include "tests/fuzz/fuzz_target.h"

PENSTOCK_FUZZ_TARGET(certificate) {
  using namespace penstock;
  const absl::string_view pem = FuzzBytes(data, size).rest();
  const bool has_key = ParseKey(pem).ok();
  const absl::StatusOr<std::vector<openssl::CertificatePtr>> certificates = ParseCertificates(pem);
  // One text serves as everything that a party has.
  const CertificatePem all = {std::string(pem), std::string(pem)};
  const bool usable = CheckCertificate(all, pem, absl::FromUnixSeconds(1'800'000'000)).ok();
  PENSTOCK_CHECK(!usable || (has_key && certificates.ok()));
  if (!certificates.ok()) return 0;
  FuzzAccepted();
  PENSTOCK_CHECK(!certificates->empty());
  for (const openssl::CertificatePtr& certificate : *certificates) {
    const absl::StatusOr<CertificateFacts> facts = FactsOf(*certificate);
    if (!facts.ok()) continue;
    PENSTOCK_CHECK(CheckIdentity(facts->identity).ok());
    const absl::StatusOr<Identity> again = ParseIdentity(facts->identity.ToUri());
    PENSTOCK_CHECK(again.ok() && *again == facts->identity);
  }
  return 0;
}
