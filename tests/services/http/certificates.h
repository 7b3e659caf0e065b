// Certificates for tests: an authority that signs itself, and what it signs.
#pragma once

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>

namespace penstock {

struct TestIdentity {
  std::shared_ptr<EVP_PKEY> key;
  std::shared_ptr<X509> certificate;
};

// `name` becomes the common name; it is valid for `hosts`. `issuer` null: signs itself, and may sign
// others, as whatever has "CA:TRUE" in `constraints` may.
inline TestIdentity MakeIdentity(const std::string& name, const TestIdentity* issuer = nullptr,
                                 const char* constraints = "critical,CA:FALSE",
                                 const char* hosts = "IP:127.0.0.1") {
  constexpr long kHour = 3600;
  TestIdentity identity = {{EVP_EC_gen("P-256"), EVP_PKEY_free}, {X509_new(), X509_free}};
  X509* const certificate = identity.certificate.get();
  static long serial = 0;
  X509_set_version(certificate, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), ++serial);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -kHour);
  X509_gmtime_adj(X509_getm_notAfter(certificate), kHour);
  X509_set_pubkey(certificate, identity.key.get());
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  const TestIdentity& signer = issuer == nullptr ? identity : *issuer;
  X509_set_issuer_name(certificate, X509_get_subject_name(signer.certificate.get()));
  const auto extend = [&](int id, const char* value) {
    X509V3_CTX context;
    X509V3_set_ctx(&context, signer.certificate.get(), certificate, nullptr, nullptr, 0);
    X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, &context, id, value);
    X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
  };
  extend(NID_basic_constraints, issuer == nullptr ? "critical,CA:TRUE" : constraints);
  extend(NID_subject_alt_name, hosts);
  X509_sign(certificate, signer.key.get(), EVP_sha256());
  return identity;
}

// A server's context that shows `identity` and accepts clients of `authority`, or such that show nothing.
inline std::shared_ptr<SSL_CTX> ServerContext(const TestIdentity& identity,
                                              const TestIdentity& authority) {
  std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  SSL_CTX_use_certificate(context.get(), identity.certificate.get());
  SSL_CTX_use_PrivateKey(context.get(), identity.key.get());
  X509_STORE_add_cert(SSL_CTX_get_cert_store(context.get()), authority.certificate.get());
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  return context;
}

// PEM, as files have it.
inline std::string TextIn(BIO* writer) {
  char* data = nullptr;
  const auto size = static_cast<size_t>(BIO_get_mem_data(writer, &data));
  std::string text(data, size);
  BIO_free(writer);
  return text;
}
inline std::string PemOf(X509& certificate) {
  BIO* const writer = BIO_new(BIO_s_mem());
  PEM_write_bio_X509(writer, &certificate);
  return TextIn(writer);
}
inline std::string PemOf(EVP_PKEY& key) {
  BIO* const writer = BIO_new(BIO_s_mem());
  PEM_write_bio_PKCS8PrivateKey(writer, &key, nullptr, nullptr, 0, nullptr, nullptr);
  return TextIn(writer);
}

inline std::string CommonName(const X509* certificate) {
  char name[256] = "";
  X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, name, sizeof(name));
  return name;
}

}  // namespace penstock
