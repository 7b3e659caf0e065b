#include "services/security/certificate.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include <ctime>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace penstock {
namespace {

using openssl::BioPtr;
using openssl::CertificatePtr;
using openssl::KeyPtr;

// Certificates in one file; a bundle has an old and a new authority.
constexpr size_t kCertificatesMax = 64;
// OpenSSL counts in int, and takes a negative number for "up to the first zero byte".
constexpr size_t kPemBytesMax = size_t{16} << 20;

struct NamesDeleter {
  void operator()(GENERAL_NAMES* names) const { GENERAL_NAMES_free(names); }
};
using NamesPtr = std::unique_ptr<GENERAL_NAMES, NamesDeleter>;

// A text that is too long to be certificates is as good as none.
BioPtr ReaderOf(absl::string_view text) {
  if (text.empty() || text.size() > kPemBytesMax)
    text = "\n";  // OpenSSL reads from no null pointer
  return BioPtr(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// No password is asked for: a service has no user.
int NoPassword(char*, int, int, void*) { return -1; }

absl::Time ToTime(const ASN1_TIME* time) {
  std::tm parts = {};
  return ASN1_TIME_to_tm(time, &parts) == 1 ? absl::FromTimeT(timegm(&parts))
                                            : absl::InfinitePast();
}

std::string TextOf(const ASN1_STRING* text) {
  return std::string(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
                     static_cast<size_t>(ASN1_STRING_length(text)));
}

std::string AddressOf(const ASN1_OCTET_STRING* bytes) {
  char text[INET6_ADDRSTRLEN] = {};
  const int family = ASN1_STRING_length(bytes) == 4 ? AF_INET : AF_INET6;
  const bool fits = ASN1_STRING_length(bytes) == 4 || ASN1_STRING_length(bytes) == 16;
  if (!fits || inet_ntop(family, ASN1_STRING_get0_data(bytes), text, sizeof text) == nullptr) {
    return "?";
  }
  return text;
}

std::string SerialOf(X509& certificate) {
  BIGNUM* number = ASN1_INTEGER_to_BN(X509_get0_serialNumber(&certificate), nullptr);
  char* hex = number == nullptr ? nullptr : BN_bn2hex(number);
  std::string serial = hex == nullptr ? "" : hex;
  OPENSSL_free(hex);
  BN_free(number);
  return serial;
}

struct StackDeleter {
  void operator()(STACK_OF(X509) * certificates) const { sk_X509_free(certificates); }
};

// Checks that an authority vouches at `now` for the first of `chain`, if necessary through the others.
absl::Status CheckSignature(const std::vector<CertificatePtr>& chain,
                            const std::vector<CertificatePtr>& authorities, absl::Time now) {
  const std::unique_ptr<STACK_OF(X509), StackDeleter> others(sk_X509_new_null());
  for (size_t i = 1; i < chain.size(); ++i) sk_X509_push(others.get(), chain[i].get());
  const openssl::StorePtr store(X509_STORE_new());
  for (const CertificatePtr& authority : authorities)
    X509_STORE_add_cert(store.get(), authority.get());
  const openssl::StoreContextPtr context(X509_STORE_CTX_new());
  if (X509_STORE_CTX_init(context.get(), store.get(), chain.front().get(), others.get()) != 1) {
    return openssl::Error(absl::StatusCode::kInternal, "cannot check a certificate");
  }
  X509_VERIFY_PARAM_set_time(X509_STORE_CTX_get0_param(context.get()), absl::ToTimeT(now));
  if (X509_verify_cert(context.get()) == 1) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the authorities do not vouch for the certificate: ",
                   X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get()))));
}

}  // namespace

absl::StatusOr<std::vector<CertificatePtr>> ParseCertificates(absl::string_view pem) {
  const BioPtr reader = ReaderOf(pem);
  std::vector<CertificatePtr> certificates;
  for (;;) {
    CertificatePtr next(PEM_read_bio_X509(reader.get(), nullptr, NoPassword, nullptr));
    if (next == nullptr) break;
    if (certificates.size() == kCertificatesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("more than ", kCertificatesMax,
                       " certificates in one file: take out those that are not needed"));
    }
    certificates.push_back(std::move(next));
  }
  const unsigned long reason = ERR_peek_last_error();
  const bool at_end =
      ERR_GET_LIB(reason) == ERR_LIB_PEM && ERR_GET_REASON(reason) == PEM_R_NO_START_LINE;
  if (certificates.empty() || (reason != 0 && !at_end)) {
    return openssl::Error(absl::StatusCode::kInvalidArgument, "not certificates in PEM form");
  }
  ERR_clear_error();
  return certificates;
}

absl::StatusOr<KeyPtr> ParseKey(absl::string_view pem) {
  const BioPtr reader = ReaderOf(pem);
  KeyPtr key(PEM_read_bio_PrivateKey(reader.get(), nullptr, NoPassword, nullptr));
  if (key == nullptr) {
    return openssl::Error(absl::StatusCode::kInvalidArgument,
                          "not a private key in PEM form without password");
  }
  return key;
}

absl::StatusOr<CertificateFacts> FactsOf(X509& certificate) {
  CertificateFacts facts;
  const NamesPtr names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(&certificate, NID_subject_alt_name, nullptr, nullptr)));
  std::vector<std::string> uris;
  for (int i = 0; i < (names == nullptr ? 0 : sk_GENERAL_NAME_num(names.get())); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type == GEN_URI) uris.push_back(TextOf(name->d.uniformResourceIdentifier));
    if (name->type == GEN_DNS) facts.hosts.push_back(TextOf(name->d.dNSName));
    if (name->type == GEN_IPADD) facts.hosts.push_back(AddressOf(name->d.iPAddress));
  }
  if (uris.size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("the certificate has ", uris.size(),
                     " URIs, expected one that says who holds it: spiffe://TRUST_DOMAIN/ROLE"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(facts.identity, ParseIdentity(uris.front()));
  facts.serial = SerialOf(certificate);
  facts.not_before = ToTime(X509_get0_notBefore(&certificate));
  facts.not_after = ToTime(X509_get0_notAfter(&certificate));
  return facts;
}

absl::StatusOr<CertificateFacts> CheckCertificate(const CertificatePem& pem,
                                                  absl::string_view authorities_pem,
                                                  absl::Time now) {
  PENSTOCK_ASSIGN_OR_RETURN(const auto certificates, ParseCertificates(pem.certificate));
  PENSTOCK_ASSIGN_OR_RETURN(const KeyPtr key, ParseKey(pem.key));
  auto authorities = ParseCertificates(authorities_pem);
  if (!authorities.ok()) return Annotate(authorities.status(), "authorities");
  X509& certificate = *certificates.front();
  if (X509_check_private_key(&certificate, key.get()) != 1) {
    ERR_clear_error();
    return absl::FailedPreconditionError("the private key is not the certificate's");
  }
  PENSTOCK_ASSIGN_OR_RETURN(CertificateFacts facts, FactsOf(certificate));
  if (now > facts.not_after) {
    return absl::FailedPreconditionError(
        absl::StrCat("the certificate of ", facts.identity.ToUri(), " has expired at ",
                     absl::FormatTime(absl::RFC3339_sec, facts.not_after, absl::UTCTimeZone()),
                     ": `penstock certs rotate` makes a new one"));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckSignature(certificates, *authorities, now));
  return facts;
}

}  // namespace penstock
