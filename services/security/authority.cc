#include "services/security/authority.h"

#include <arpa/inet.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/status.h"

namespace penstock {
namespace {

using openssl::BioPtr;
using openssl::CertificatePtr;
using openssl::KeyPtr;

// The authority's subject; the trust domain is what follows.
constexpr char kAuthorityPrefix[] = "Penstock authority of ";
constexpr size_t kHostsMax = 64;

absl::Status SigningError(absl::string_view what) {
  return openssl::Error(absl::StatusCode::kInternal, what);
}

absl::StatusOr<std::string> ToPem(const KeyPtr& key) {
  const BioPtr writer(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_PKCS8PrivateKey(writer.get(), key.get(), nullptr, nullptr, 0, nullptr,
                                    nullptr) != 1) {
    return SigningError("cannot write a private key");
  }
  char* data = nullptr;
  const auto size = static_cast<size_t>(BIO_get_mem_data(writer.get(), &data));
  return std::string(data, size);
}

absl::StatusOr<std::string> ToPem(const CertificatePtr& certificate) {
  const BioPtr writer(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_X509(writer.get(), certificate.get()) != 1) {
    return SigningError("cannot write a certificate");
  }
  char* data = nullptr;
  const auto size = static_cast<size_t>(BIO_get_mem_data(writer.get(), &data));
  return std::string(data, size);
}

absl::Status SetSerial(X509* certificate) {
  unsigned char bytes[16];
  if (RAND_bytes(bytes, sizeof bytes) != 1) return SigningError("no random numbers");
  bytes[0] &= 0x7f;  // a positive number
  BIGNUM* number = BN_bin2bn(bytes, sizeof bytes, nullptr);
  const bool set = number != nullptr &&
                   BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate)) != nullptr;
  BN_free(number);
  return set ? absl::OkStatus() : SigningError("cannot number a certificate");
}

absl::Status AddExtension(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const openssl::ExtensionPtr extension(
      X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str()));
  if (extension == nullptr || X509_add_ext(certificate, extension.get(), -1) != 1) {
    return SigningError(absl::StrCat("cannot add '", value, "' to a certificate"));
  }
  return absl::OkStatus();
}

// A certificate of `key` for `subject`, without issuer, extensions and signature.
absl::StatusOr<CertificatePtr> Blank(const KeyPtr& key, const std::string& subject,
                                     const Validity& validity) {
  CertificatePtr certificate(X509_new());
  X509_set_version(certificate.get(), X509_VERSION_3);
  PENSTOCK_RETURN_IF_ERROR(SetSerial(certificate.get()));
  // Uses GeneralizedTime where the year asks for it.
  ASN1_TIME_set(X509_getm_notBefore(certificate.get()), absl::ToTimeT(validity.not_before));
  ASN1_TIME_set(X509_getm_notAfter(certificate.get()), absl::ToTimeT(validity.not_after));
  X509_NAME* const name = X509_get_subject_name(certificate.get());
  if (X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8,
                                 reinterpret_cast<const unsigned char*>(subject.data()),
                                 static_cast<int>(subject.size()), -1, 0) != 1 ||
      X509_set_pubkey(certificate.get(), key.get()) != 1) {
    return SigningError(absl::StrCat("cannot make a certificate for '", subject, "'"));
  }
  return certificate;
}

absl::StatusOr<KeyPtr> NewKey() {
  KeyPtr key(EVP_EC_gen("P-256"));
  if (key == nullptr) return SigningError("cannot make a key");
  return key;
}

bool IsAddress(const std::string& host) {
  unsigned char bytes[16];
  return inet_pton(AF_INET, host.c_str(), bytes) == 1 ||
         inet_pton(AF_INET6, host.c_str(), bytes) == 1;
}

// A label's letters alone: the name goes into OpenSSL's own little language.
bool IsHostName(absl::string_view host) {
  absl::ConsumePrefix(&host, "*.");
  return !host.empty() && host.size() <= 253 && std::all_of(host.begin(), host.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '-' || c == '.' || c == '_';
  });
}

absl::StatusOr<std::string> AlternativeNames(const Identity& identity,
                                             const std::vector<std::string>& hosts) {
  if (hosts.size() > kHostsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a certificate for ", hosts.size(), " hosts, at most ", kHostsMax));
  }
  std::vector<std::string> names = {absl::StrCat("URI:", identity.ToUri())};
  for (const std::string& host : hosts) {
    const bool address = IsAddress(host);
    if (!address && !IsHostName(host)) {
      return absl::InvalidArgumentError(
          absl::StrCat("host '", host, "': expected a host name or an IP address"));
    }
    names.push_back(absl::StrCat(address ? "IP:" : "DNS:", host));
  }
  return absl::StrJoin(names, ",");
}

// Seals `certificate` and puts it beside its key.
absl::StatusOr<CertificatePem> Seal(const CertificatePtr& certificate, const KeyPtr& key,
                                    const KeyPtr& authority_key) {
  if (X509_sign(certificate.get(), authority_key.get(), EVP_sha256()) == 0) {
    return SigningError("cannot sign a certificate");
  }
  CertificatePem pem;
  PENSTOCK_ASSIGN_OR_RETURN(pem.certificate, ToPem(certificate));
  PENSTOCK_ASSIGN_OR_RETURN(pem.key, ToPem(key));
  return pem;
}

}  // namespace

absl::StatusOr<Authority> Authority::Make(const std::string& trust_domain,
                                          const Validity& validity) {
  PENSTOCK_RETURN_IF_ERROR(CheckIdentity({trust_domain, Role::kClient, ""}));
  PENSTOCK_ASSIGN_OR_RETURN(KeyPtr key, NewKey());
  PENSTOCK_ASSIGN_OR_RETURN(CertificatePtr certificate,
                            Blank(key, absl::StrCat(kAuthorityPrefix, trust_domain), validity));
  X509* const x509 = certificate.get();
  X509_set_issuer_name(x509, X509_get_subject_name(x509));
  PENSTOCK_RETURN_IF_ERROR(
      AddExtension(x509, x509, NID_basic_constraints, "critical,CA:TRUE,pathlen:0"));
  PENSTOCK_RETURN_IF_ERROR(AddExtension(x509, x509, NID_key_usage, "critical,keyCertSign,cRLSign"));
  // Tells an old authority from a new one of the same subject.
  PENSTOCK_RETURN_IF_ERROR(AddExtension(x509, x509, NID_subject_key_identifier, "hash"));
  PENSTOCK_ASSIGN_OR_RETURN(CertificatePem pem, Seal(certificate, key, key));
  return Authority(std::move(certificate), std::move(key), std::move(pem), trust_domain);
}

absl::StatusOr<Authority> Authority::Load(const CertificatePem& pem) {
  PENSTOCK_ASSIGN_OR_RETURN(auto certificates, ParseCertificates(pem.certificate));
  PENSTOCK_ASSIGN_OR_RETURN(KeyPtr key, ParseKey(pem.key));
  // The newest comes first, but its key may be lost: bundle and key are two files, and a writer may be interrupted.
  const auto own = std::find_if(certificates.begin(), certificates.end(), [&](const auto& each) {
    return X509_check_private_key(each.get(), key.get()) == 1;
  });
  ERR_clear_error();
  if (own == certificates.end()) {
    return absl::FailedPreconditionError(
        "the private key (ca.key) is not that of any authority in ca.crt: restore both from where "
        "they were kept");
  }
  CertificatePtr certificate = std::move(*own);
  char subject[256] = {};
  X509_NAME_get_text_by_NID(X509_get_subject_name(certificate.get()), NID_commonName, subject,
                            sizeof subject);
  absl::string_view trust_domain = subject;
  if (X509_check_ca(certificate.get()) != 1 ||
      !absl::ConsumePrefix(&trust_domain, kAuthorityPrefix)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", subject, "' is no authority made by `penstock certs init`"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(std::string alone, ToPem(certificate));
  return Authority(std::move(certificate), std::move(key), {std::move(alone), pem.key},
                   std::string(trust_domain));
}

absl::StatusOr<CertificatePem> Authority::Issue(const Identity& identity,
                                                const std::vector<std::string>& hosts,
                                                const Validity& validity) const {
  PENSTOCK_RETURN_IF_ERROR(CheckIdentity(identity));
  if (identity.trust_domain != trust_domain_) {
    return absl::InvalidArgumentError(
        absl::StrCat(identity.ToUri(), " is not of the authority's trust domain ", trust_domain_));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const std::string names, AlternativeNames(identity, hosts));
  PENSTOCK_ASSIGN_OR_RETURN(const KeyPtr key, NewKey());
  const Validity within = {validity.not_before, std::min(validity.not_after, not_after())};
  const std::string subject = absl::StrCat("Penstock ", RoleName(identity.role),
                                           identity.name.empty() ? "" : " ", identity.name);
  // The name stands in full in the URI; a subject has room for 64 letters.
  PENSTOCK_ASSIGN_OR_RETURN(const CertificatePtr certificate,
                            Blank(key, subject.substr(0, 64), within));
  X509* const x509 = certificate.get();
  X509* const issuer = certificate_.get();
  X509_set_issuer_name(x509, X509_get_subject_name(issuer));
  PENSTOCK_RETURN_IF_ERROR(AddExtension(x509, issuer, NID_basic_constraints, "critical,CA:FALSE"));
  PENSTOCK_RETURN_IF_ERROR(AddExtension(x509, issuer, NID_key_usage, "critical,digitalSignature"));
  PENSTOCK_RETURN_IF_ERROR(AddExtension(x509, issuer, NID_ext_key_usage, "serverAuth,clientAuth"));
  PENSTOCK_RETURN_IF_ERROR(AddExtension(x509, issuer, NID_subject_alt_name, names));
  PENSTOCK_RETURN_IF_ERROR(AddExtension(x509, issuer, NID_authority_key_identifier, "keyid"));
  return Seal(certificate, key, key_);
}

absl::Time Authority::not_after() const {
  std::tm parts = {};
  ASN1_TIME_to_tm(X509_get0_notAfter(certificate_.get()), &parts);
  return absl::FromTimeT(timegm(&parts));
}

}  // namespace penstock
